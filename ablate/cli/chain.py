"""`ablate chain`: accepts changes one after another, on evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ablate.cli.options import (
    DEFAULT_RUNS,
    FormatOption,
    RunsOption,
    SetOption,
    StoreOption,
    TrainerOption,
    WithOption,
    refuse_run_options,
    with_run_options,
)
from ablate.cli.output import GATE_CODES, Format, say, show, show_json, tell
from ablate.errors import AblateError, shortened
from ablate.records import MOST_SEEDS, MOST_WHOLE, Decision

if TYPE_CHECKING:
    from pathlib import Path

    from ablate.pipeline import Hooks, Options, Outcome
    from ablate.records import Declared, Proposal, Space
    from ablate.report.table import Table
    from ablate.trained.chain import Answer, Chain

CODES = {
    Decision.BASELINE: 0,
    Decision.KEEP: 0,
    Decision.DISCARD: 4,
    Decision.MORE_SEEDS: 5,
}
# How files of spaces end.
SPACES = (".yaml", ".yml")
# The name of a metric that is only reported.
RESULT = "result"


class Better(StrEnum):
    """Whether larger or smaller results are better."""

    max = "max"
    min = "min"


class Form(StrEnum):
    """How an answer is printed."""

    table = "table"
    json = "json"


ChainArgument = Annotated[
    str, typer.Argument(metavar="CHAIN", help="Name of the chain.")
]
ReportedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reported",
        metavar="SEED=RESULT",
        help="Result of a run that was trained elsewhere; nan if it diverged;"
        " repeatable.",
    ),
]
FormOption = Annotated[Form, typer.Option("--format", help="Output format.")]


def chain() -> None:
    """Accept changes one after another: at most 5 % of the kept ones are
    not better.

    A chain has a baseline. Each proposal is trained seed by seed until it is decided, and
    what is kept becomes the baseline of the next proposal.
    """


def begin(
    name: ChainArgument,
    baseline: Annotated[
        str,
        typer.Argument(
            metavar="BASELINE",
            help="A commit, the file of a space, or with --reported the name of results.",
        ),
    ],
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            min=1,
            max=MOST_WHOLE,
            help="Of commits: epochs of each trial.",
        ),
    ] = None,
    chosen: SetOption = None,
    metric: Annotated[
        str, typer.Option("--metric", help="Metric to compare by; not of a space.")
    ] = "",
    direction: Annotated[
        Better | None,
        typer.Option("--direction", help="Of reported results: what is better."),
    ] = None,
    trainer: TrainerOption = "",
    most: Annotated[
        int,
        typer.Option(
            "--most-seeds",
            min=2,
            max=1_000,
            help="Seeds after which a proposal is discarded.",
        ),
    ] = MOST_SEEDS,
    reported: ReportedOption = None,
    own: WithOption = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormOption = Form.table,
) -> None:
    """Begin a chain with its first baseline. Trains nothing."""
    from ablate.space.typed import levels_of

    ours = _chain_of(name, store, runs)
    # The options that a baseline of this kind does not read.
    given = {
        "--trainer": bool(trainer),
        "--epochs": epochs is not None,
        "--set": bool(chosen),
        "--metric": bool(metric),
    }
    if direction is not None and not reported:
        raise AblateError(
            "--direction is for results that you report with --reported; otherwise, it is"
            " that of the metric; leave it out"
        )
    if reported:
        _refuse(given, "has no effect on reported results", "--metric")
        if direction is None:
            raise AblateError(
                "a chain of reported results needs --direction max or --direction min"
            )
        answer = ours.begin_reported(
            baseline,
            results_of(reported),
            direction=direction.value,
            metric=metric or RESULT,
            most=most,
        )
    elif baseline.endswith(SPACES):
        _refuse(given, f"is for a chain of commits; write it in {baseline}")
        answer = ours.begin_space(baseline, most=most)
    else:
        answer = ours.begin(
            baseline,
            trainer=trainer,
            metric=metric,
            epochs=epochs,
            settings=levels_of(tuple(chosen or ()), "--set"),
            most=most,
        )
    _answer(answer, form)


def _refuse(given: dict[str, bool], reason: str, *read: str) -> None:
    """Raises AblateError for an option that would have no effect."""
    for option, is_given in given.items():
        if is_given and option not in read:
            raise AblateError(f"{option} {reason}; leave it out")


@with_run_options
def propose(
    name: ChainArgument,
    change: Annotated[
        str,
        typer.Argument(
            metavar="CHANGE",
            help="A commit, levels such as norm=rms,depth=2, or the name of results.",
        ),
    ],
    options: Options,
    reported: ReportedOption = None,
    own: WithOption = None,
    form: FormOption = Form.table,
) -> None:
    """Propose a change: keep, discard, or more seeds.

    A commit, or levels, are trained seed by seed until the proposal is decided. The exit
    code is 0 for keep, 4 for discard and 5 for more seeds.
    """
    ours = _training_chain(name, options)
    if reported:
        refuse_run_options(options, "chain: reporting results")
        _answer(ours.report(change, results_of(reported)), form)
    _answer(ours.propose(change), form)


@with_run_options
def confirm(
    name: ChainArgument,
    options: Options,
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=2, max=99, help="The number of fresh seeds."),
    ] = 8,
    own: WithOption = None,
    form: FormOption = Form.table,
) -> None:
    """Compare the present baseline with the first one on fresh seeds.

    The exit codes are those of `ablate gate`.
    """
    words, verdict = _training_chain(name, options).confirm(seeds)
    if form is Form.json:
        show_json({"chain": name, "verdict": verdict, "text": words})
    else:
        say(words)
    raise typer.Exit(GATE_CODES[verdict])


def withdraw(
    name: ChainArgument,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormOption = Form.table,
) -> None:
    """Discard the open proposal."""
    _answer(_chain_of(name, store, runs).withdraw(), form)


def list_(
    name: ChainArgument,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """List the proposals of a chain."""
    ours = _chain_of(name, store, runs)
    show(proposals_table(ours.proposals(), ours.declared()), form.value)


def _chain_of(name: str, store: str, runs: Path) -> Chain:
    from ablate.pipeline import Options
    from ablate.trained.chain import Chain

    return Chain(name, Options(runs=runs, store=store))


def _training_chain(name: str, options: Options) -> Chain:
    from ablate.trained.chain import Chain

    if options.rows or options.seeds:
        raise AblateError(
            "chain: a chain chooses rows and seeds itself; leave out --row and --seed"
        )
    return Chain(name, options, _train)


def _train(study: Space, options: Options, hooks: Hooks) -> Outcome:
    """Runs a study with a progress display."""
    from dataclasses import replace

    from ablate import pipeline
    from ablate.cli.progress import Progress

    with Progress(announces=False) as progress:
        shown = replace(
            hooks,
            begun=progress.begun,
            proposed=progress.proposed,
            event=progress.event,
            stop=progress.stop,
            planned=_both(hooks.planned, progress.planned),
        )
        return pipeline.run(study, study.name, options, shown)


def _both(first: Any, second: Any) -> Any:
    def planned(preview: Any) -> None:
        first(preview)
        second(preview)

    return planned


def _answer(answer: Answer, form: Form) -> NoReturn:
    """Prints an answer, and exits with the code of its decision."""
    if form is Form.json:
        show_json(answer.to_dict())
    else:
        say(_sentence(answer))
        tell(f"Next: {answer.next}.")
    raise typer.Exit(CODES[answer.proposal.decision])


def _sentence(answer: Answer) -> str:
    mine = answer.proposal
    if mine.decision is Decision.BASELINE:
        return f"{mine.name} is the first baseline of the chain {mine.chain}."
    gain = "" if answer.difference is None else f", {answer.difference:+.4g} on average"
    seeds = f"{len(mine.results)} seed{'' if len(mine.results) == 1 else 's'}"
    reason = f": {mine.reason}" if mine.reason else ""
    return (
        f"{mine.name}: {mine.decision}{reason} ({seeds}{gain}; evidence"
        f" {mine.evidence:.3g}, needed {mine.needed:.3g}). {answer.kept} kept, baseline"
        f" {answer.baseline}, {answer.trials} trials in {answer.seconds / 3600:.2g} h."
    )


def proposals_table(every: list[Proposal], declared: Declared) -> Table:
    """Returns the proposals of a chain as a table."""
    from ablate.report.table import Column, tabulate

    columns: list[Column[Proposal]] = [
        Column("number", lambda each: each.number, heading="#", right=True, kind=int),
        Column("proposal", lambda each: each.name, heading="proposal"),
        Column("source", lambda each: each.source),
        Column("decision", lambda each: str(each.decision), heading="decision"),
        Column("against", lambda each: each.against, heading="against", kind=int),
        Column("seeds", lambda each: len(each.results), heading="seeds", kind=int),
        Column(
            "evidence",
            lambda each: each.evidence,
            heading="evidence",
            text=lambda each: f"{each.evidence:.3g}" if each.number else "",
            right=True,
            kind=float,
        ),
        Column(
            "needed",
            lambda each: each.needed,
            heading="needed",
            text=lambda each: f"{each.needed:.3g}" if each.number else "",
            right=True,
            kind=float,
        ),
        Column("trials", lambda each: each.trials, heading="trials", kind=int),
        Column("seconds", lambda each: each.seconds, kind=float),
        Column("reason", lambda each: each.reason, heading="why"),
    ]
    better = "larger" if declared.direction == "max" else "smaller"
    note = (
        f"By {declared.metric}, {better} is better. A proposal is kept when its evidence"
        f" reaches what is needed; at most {declared.level:.0%} of the kept ones are not"
        " better than their baseline, on average."
    )
    return tabulate(columns, every, notes=[note])


def results_of(reported: list[str]) -> dict[int, float | None]:
    """Returns results by seed, from texts such as `3=0.91`. The chain checks them.

    Raises:
        AblateError: a text is no seed with a result, or a seed is there twice.
    """
    results: dict[int, float | None] = {}
    for text in reported:
        seed, _, written = text.partition("=")
        try:
            number, result = int(seed), float(written)
        except ValueError:
            raise AblateError(
                f"--reported {shortened(text)}: write SEED=RESULT, as in --reported 0=0.91"
            ) from None
        if number in results:
            raise AblateError(f"--reported: seed {number} is there twice")
        results[number] = result
    return results
