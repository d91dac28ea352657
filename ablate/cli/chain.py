"""`ablate gate --chain`: proposals to a chain."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ablate.cli.options import refuse_run_options
from ablate.cli.output import GATE_CODES, Format, say, show, show_json, tell
from ablate.errors import AblateError, shortened
from ablate.records import Decision

if TYPE_CHECKING:
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
# Seeds of a confirmation.
FRESH_SEEDS = 8


class Better(StrEnum):
    """Whether larger or smaller results are better."""

    max = "max"
    min = "min"


@dataclass(frozen=True)
class Asked:
    """What a command says about a chain.

    Attributes:
        name: the proposal, or the first baseline.
        declaring: the options that declare a new chain, as far as they were given.
    """

    name: str | None
    reported: tuple[str, ...]
    withdraw: bool
    confirm: bool
    fresh_seeds: int
    declaring: tuple[str, ...]
    epochs: int | None
    settings: tuple[str, ...]
    metric: str
    direction: str
    trainer: str
    most: int


def answer_chain(name: str, asked: Asked, options: Options, form: Format) -> int:
    """Does what a command says, prints the answer, and returns the exit code.

    Raises:
        AblateError: the command contradicts itself, or the chain.
    """
    from ablate.trained.chain import Chain

    lists = asked.name is None and not asked.withdraw and not asked.confirm
    _refuse_unread(options, asked, form, lists=lists)
    chain = Chain(name, options, _train)
    is_new = not chain.proposals()
    ways = (asked.name is not None, asked.withdraw, asked.confirm)
    if sum(ways) > 1:
        raise AblateError("gate: name a proposal, or --withdraw, or --confirm")
    if asked.reported and asked.name is None:
        raise AblateError("--reported needs the name of a proposal; add it")
    if is_new:
        return _begin(chain, asked, form)
    if asked.declaring:
        raise AblateError(
            f"the chain {name} exists, and {asked.declaring[0]} is declared with its first"
            " baseline; leave it out"
        )
    if asked.confirm:
        return _confirm(chain, asked.fresh_seeds, form)
    if asked.withdraw:
        return _show(chain.withdraw(), form)
    if asked.name is None:
        show(proposals_table(chain.proposals(), chain.declared()), form.value)
        return 0
    return _show(_proposed(chain, asked.name, asked.reported), form)


def _proposed(chain: Chain, name: str, reported: tuple[str, ...]) -> Answer:
    """Proposes to a chain that exists."""
    if reported:
        return chain.report(name, results_of(reported))
    declared = chain.declared()
    if declared.space and name.endswith(SPACES):
        # What makes the chain may be typed again, as with a commit.
        return chain.begin_space(name, most=declared.most)
    return chain.propose(name)


def _refuse_unread(
    options: Options, asked: Asked, form: Format, *, lists: bool
) -> None:
    """Raises AblateError for what would have no effect, before anything is done."""
    if form not in (Format.table, Format.json) and not lists:
        raise AblateError(
            f"gate --chain answers in text or JSON, not {form.value}; use --format json"
        )
    if options.rows or options.seeds:
        raise AblateError("gate: a chain chooses rows and seeds itself; leave them out")
    if lists or asked.withdraw or asked.reported:
        refuse_run_options(options, "gate: this")


def _begin(chain: Chain, asked: Asked, form: Format) -> int:
    """Makes a chain with its first baseline."""
    if asked.name is None:
        raise AblateError(
            f"there is no chain {chain.name}; make it with its baseline, as in: ablate"
            f" gate --chain {chain.name} main --with mine.py"
        )
    if asked.reported:
        return _begin_reported(chain, asked.name, asked, form)
    if asked.direction:
        raise AblateError(
            "--direction is for results that you report with --reported; otherwise, it is"
            " that of the metric"
        )
    if asked.name.endswith(SPACES):
        return _begin_space(chain, asked.name, asked, form)
    from ablate.space.comparison import is_commit
    from ablate.space.typed import levels_of

    if "=" in asked.name and not is_commit(asked.name):
        raise AblateError(
            f"there is no chain {chain.name}; make it with its baseline, the file of a"
            f" space, as in: ablate gate --chain {chain.name} mine.yaml"
        )
    answer = chain.begin(
        asked.name,
        trainer=asked.trainer,
        metric=asked.metric,
        epochs=asked.epochs,
        settings=levels_of(asked.settings, "--set"),
        most=asked.most,
    )
    return _show(answer, form)


def _begin_space(chain: Chain, file: str, asked: Asked, form: Format) -> int:
    """Makes a chain with row 0 of a space as its first baseline."""
    for option in ("--trainer", "--epochs", "--set", "--metric"):
        if option in asked.declaring:
            raise AblateError(f"{option} is for a chain of commits; write it in {file}")
    return _show(chain.begin_space(file, most=asked.most), form)


def _begin_reported(chain: Chain, name: str, asked: Asked, form: Format) -> int:
    """Makes a chain with reported results as those of its first baseline."""
    for option in ("--trainer", "--epochs", "--set"):
        if option in asked.declaring:
            raise AblateError(f"{option} has no effect on reported results")
    if not asked.direction:
        raise AblateError(
            "a new chain with reported results needs --direction max or --direction min"
        )
    answer = chain.begin_reported(
        name,
        results_of(asked.reported),
        direction="max" if asked.direction == "max" else "min",
        metric=asked.metric or RESULT,
        most=asked.most,
    )
    return _show(answer, form)


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


def _show(answer: Answer, form: Format) -> int:
    if form is Format.json:
        show_json(answer.to_dict())
    else:
        say(_sentence(answer))
        tell(f"Next: {answer.next}.")
    return CODES[answer.proposal.decision]


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


def _confirm(chain: Chain, seeds: int, form: Format) -> int:
    words, verdict = chain.confirm(seeds)
    if form is Format.json:
        show_json({"chain": chain.name, "verdict": verdict, "text": words})
    else:
        say(words)
    return GATE_CODES[verdict]


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


def results_of(reported: tuple[str, ...]) -> dict[int, float | None]:
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
