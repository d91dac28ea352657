"""`ablate gate`: the verdict on a row as an exit code, for scripts and CI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ablate import advice
from ablate.cli.options import (
    DEFAULT_RUNS,
    FormatOption,
    RunsOption,
    StoreOption,
    StudyArgument,
    url_of,
)
from ablate.cli.output import Format, say, show
from ablate.errors import AblateError

if TYPE_CHECKING:
    from ablate.report.tables import Table

# The exit code by verdict. 1 and 2 are for failures and for mistakes.
GATE_CODES = {"helps": 0, "hurts": 3, "no difference": 4, "inconclusive": 5}


@dataclass(frozen=True)
class Gated:
    """The verdict on a row: its sentence, and its row of the table of effects."""

    verdict: str
    sentence: str
    table: Table


def gate(
    study: StudyArgument,
    row: Annotated[
        int, typer.Option("--row", min=1, help="The row, as `ablate table` numbers it.")
    ],
    project: Annotated[
        bool,
        typer.Option(
            "--project",
            help="Count only what stands beside all other studies of the store.",
        ),
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Print the verdict on one row, and exit with a code that a script can read.

    The code is 0 for helps, 3 for hurts, 4 for no difference and 5 for inconclusive,
    also while trials are unfinished. It is 1 or 2 if there is no verdict to take.
    """
    url = url_of(store, runs)
    found = _gated(study, row, url)
    if project and found.verdict in ("helps", "hurts"):
        found = _in_project(found, study, row, url)
    if form is Format.table:
        say(found.sentence)
    else:
        show(found.table, form.value)
    raise typer.Exit(GATE_CODES[found.verdict])


def _in_project(found: Gated, study: str, row: int, url: str) -> Gated:
    """Returns a verdict that stands in the error budget of the store.

    Otherwise it is inconclusive.
    """
    from ablate.project import budget_of

    lines = {line.test.name: line for line in budget_of(url).lines}
    line = lines.get(study)
    if line is None:
        why = "the study is not finished, so it has no level in the error budget"
    elif f"row {row}" in line.standing:
        return found
    else:
        why = (
            f"p = {line.test.p_values[f'row {row}']:.2g} is above the level of the study"
            f" in the error budget of the store, {100 * line.level:.2g} %"
        )
    return Gated(
        verdict="inconclusive",
        sentence=f"{found.sentence} But {why} (`ablate status --error-budget`).",
        table=found.table,
    )


def _gated(study: str, row: int, url: str) -> Gated:
    """Returns the verdict on a row.

    Raises:
        AblateError: the study has no such row to compare, or its rows are exploratory.
    """
    from ablate.primary import CONTROLS, primary_factors, primary_is_elsewhere
    from ablate.report.effects_table import effects_table
    from ablate.report.wording import sentence
    from ablate.study import Study

    stored = Study(study, url)
    results, declared = stored.read()
    if primary_is_elsewhere(declared.primary):
        raise AblateError(
            f"{study}: its rows are exploratory, because `primary` names other"
            f" comparisons; see {advice.command('effects', study)} --of"
            f" {'factors' if primary_factors(declared.primary) else CONTROLS}"
        )
    found = {effect.row: effect for effect in stored.effects()}
    if row not in found:
        rows = ", ".join(map(str, found)) or "none"
        raise AblateError(
            f"{study}: row {row} is not compared with row 0; rows that are: {rows}"
        )
    effect = found[row]
    return Gated(
        verdict=str(effect.verdict),
        sentence=sentence(effect, results.metric, declared.margin),
        table=effects_table(results, [effect], declared.margin),
    )
