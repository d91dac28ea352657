"""`ablate gate`: the verdict on a row as an exit code, for scripts and CI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RUNS,
    FormatOption,
    RunsOption,
    StoreOption,
    StudyArgument,
    url_of,
)
from ablate.cli.output import GATE_CODES, Format, say, show
from ablate.errors import AblateError
from ablate.records import MOST_WHOLE
from ablate.text import advice

if TYPE_CHECKING:
    from ablate.report.effect import Effect


def gate(
    name: StudyArgument,
    row: Annotated[
        int,
        typer.Option(
            "--row",
            min=1,
            max=MOST_WHOLE,
            help="The row, as `ablate table` numbers it.",
        ),
    ],
    project: Annotated[
        bool,
        typer.Option(
            "--project",
            help=(
                "A verdict of `helps` or `hurts` counts only if it stands in the error"
                " budget of the store. If not, the row counts as inconclusive."
            ),
        ),
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Print the verdict on one row, and exit with a code that a script can read.

    The code is 0 for helps, 3 for hurts, 4 for no difference and 5 for inconclusive. A
    row whose trials are unfinished is inconclusive. Codes 1 and 2 mean that the command
    failed.
    """
    from ablate.report.effects_table import effects_table
    from ablate.report.verdicts import Withheld
    from ablate.report.wording import sentence
    from ablate.results.study import Study

    url = url_of(store, runs)
    results, declared = Study(name, url).read()
    effect = _effect(name, row, url)
    if project and not _stands(name, effect, url):
        effect = effect.without_verdict(Withheld.BUDGET)
    if form is Format.table:
        say(
            sentence(
                effect,
                results.metric,
                declared.criterion.margin,
            )
        )
    else:
        show(effects_table(results, [effect], declared.criterion.margin), form.value)
    raise typer.Exit(GATE_CODES[str(effect.verdict)])


def _stands(study: str, effect: Effect, url: str) -> bool:
    """Whether a verdict stands in the error budget of the store.

    Verdicts that claim no effect need none.
    """
    from ablate.report.verdicts import Verdict
    from ablate.results.project import budget_of

    if effect.verdict not in (Verdict.HELPS, Verdict.HURTS):
        return True
    lines = {line.test.name: line for line in budget_of(url).lines}
    name, row = study, effect.row
    if effect.shown_by:
        name, row = effect.shown_by, effect.shown_row
    return name in lines and f"row {row}" in lines[name].standing


def _effect(study: str, row: int, url: str) -> Effect:
    """Returns the effect of a row.

    Raises:
        AblateError: the study has no such row to compare, or its rows are exploratory.
    """
    from ablate.records.primary import CONTROLS, primary_factors, primary_is_elsewhere
    from ablate.results.study import Study

    stored = Study(study, url)
    declared = stored.read()[1]
    if primary_is_elsewhere(declared.criterion.primary):
        raise AblateError(
            f"{study}: comparisons of rows are exploratory, because `primary` names"
            f" other comparisons; see {advice.command('effects', study)} --of"
            f" {'factors' if primary_factors(declared.criterion.primary) else CONTROLS}"
        )
    effects = {effect.row: effect for effect in stored.effects()}
    if row not in effects:
        rows = ", ".join(map(str, effects)) or "none"
        raise AblateError(
            f"{study}: row {row} is not compared with row 0; rows that can be gated:"
            f" {rows}"
        )
    return effects[row]
