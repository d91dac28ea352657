"""`ablate gate`: the verdict on a row as an exit code, for scripts and CI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.chain import FRESH_SEEDS, Asked, Better, answer_chain
from ablate.cli.options import (
    FormatOption,
    SetOption,
    TrainerOption,
    WithOption,
    refuse_run_options,
    with_run_options,
)
from ablate.cli.output import GATE_CODES, Format, say, show
from ablate.errors import AblateError
from ablate.records import MOST_SEEDS, MOST_WHOLE
from ablate.text import advice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ablate.pipeline import Options
    from ablate.report.effect import Effect


@with_run_options
def gate(
    options: Options,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY|PROPOSAL]",
            help="Study; with --chain, a commit, levels such as norm=rms, or the name of"
            " reported results.",
        ),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(
            "--row",
            min=1,
            max=MOST_WHOLE,
            help="The row, as `ablate table` numbers it.",
        ),
    ] = None,
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
    chain: Annotated[
        str,
        typer.Option(
            "--chain",
            metavar="CHAIN",
            help="Propose a change to this chain. The first baseline is a commit, or the"
            " file of a space.",
        ),
    ] = "",
    reported: Annotated[
        list[str] | None,
        typer.Option(
            "--reported",
            metavar="SEED=RESULT",
            help="Of a chain: the result of a run that was trained elsewhere; nan if it"
            " diverged; repeatable.",
        ),
    ] = None,
    withdraw: Annotated[
        bool,
        typer.Option("--withdraw", help="Of a chain: discard the open proposal."),
    ] = False,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Of a chain: compare the present baseline with the first one on fresh"
            " seeds.",
        ),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=2,
            max=99,
            help=f"Of --confirm: the number of fresh seeds. [default: {FRESH_SEEDS}]",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            min=1,
            max=MOST_WHOLE,
            help="Of a new chain: epochs of each trial.",
        ),
    ] = None,
    chosen: SetOption = None,
    metric: Annotated[
        str, typer.Option("--metric", help="Of a new chain: metric to compare by.")
    ] = "",
    direction: Annotated[
        Better | None,
        typer.Option(
            "--direction", help="Of a new chain with reported results: what is better."
        ),
    ] = None,
    trainer: TrainerOption = "",
    most: Annotated[
        int | None,
        typer.Option(
            "--most-seeds",
            min=2,
            max=1_000,
            help="Of a new chain: seeds after which a proposal is discarded."
            f" [default: {MOST_SEEDS}]",
        ),
    ] = None,
    own: WithOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Print the verdict on one row, and exit with a code that a script can read.

    The code is 0 for helps, 3 for hurts, 4 for no difference and 5 for inconclusive. A
    row whose trials are unfinished is inconclusive. Codes 1 and 2 mean that the command
    failed.

    With --chain, train a commit, or the present baseline with other levels, until it is
    decided: 0 for keep, 4 for discard, 5 for more seeds. What is kept becomes the baseline
    of the next proposal.
    """
    declaring = {
        "--epochs": epochs is not None,
        "--set": bool(chosen),
        "--metric": bool(metric),
        "--direction": direction is not None,
        "--trainer": bool(trainer),
        "--most-seeds": most is not None,
    }
    if not chain:
        given = {
            "--reported": bool(reported),
            "--withdraw": withdraw,
            "--confirm": confirm,
            "--seeds": seeds is not None,
            **declaring,
        }
        _refuse(given, "goes with --chain")
        _gate_row(name, row, options, form, project=project)
        return
    _refuse({"--row": row is not None, "--project": project}, "goes with a study")
    if not confirm:
        _refuse({"--seeds": seeds is not None}, "goes with --confirm")
    asked = Asked(
        name=name,
        reported=tuple(reported or ()),
        withdraw=withdraw,
        confirm=confirm,
        fresh_seeds=seeds or FRESH_SEEDS,
        declaring=tuple(option for option, is_given in declaring.items() if is_given),
        epochs=epochs,
        settings=tuple(chosen or ()),
        metric=metric,
        direction=direction.value if direction is not None else "",
        trainer=trainer,
        most=most or MOST_SEEDS,
    )
    raise typer.Exit(answer_chain(chain, asked, options, form))


def _refuse(given: Mapping[str, bool], reason: str) -> None:
    """Raises AblateError for an option that would have no effect."""
    for option, is_given in given.items():
        if is_given:
            raise AblateError(f"{option} {reason}; leave it out")


def _gate_row(
    study: str | None, row: int | None, options: Options, form: Format, *, project: bool
) -> None:
    from ablate.report.effects_table import effects_table
    from ablate.report.verdicts import Withheld
    from ablate.report.wording import sentence
    from ablate.results.study import Study

    if study is None or row is None:
        raise AblateError(
            "gate needs a study and a row, as in: ablate gate mine --row 2; or a chain, as"
            " in: ablate gate --chain mine HEAD"
        )
    refuse_run_options(options, "gate: the verdict on a row")
    url = options.url
    results, declared = Study(study, url).read()
    effect = _effect(study, row, url)
    if project and not _stands(study, effect, url):
        effect = effect.without_verdict(Withheld.BUDGET)
    if form is Format.table:
        say(sentence(effect, results.metric, declared.criterion.margin))
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
