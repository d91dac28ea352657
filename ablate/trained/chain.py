"""A chain of accepted changes: each proposal is compared with the present baseline.

The evidence and the threshold are those of `ablate.statistics.evidence`. A proposal is
trained seed by seed until it is decided; the baseline keeps its trials, so that a new
proposal costs little more than its own seeds. Everything is in the store: a chain goes on
after a kill, and what was decided stays decided.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from ablate import pipeline
from ablate.budget import Budget
from ablate.errors import AblateError, shortened
from ablate.own import registry
from ablate.own.commits import COMMIT, WORKTREE, make_hidden
from ablate.pipeline import Hooks, Options, Outcome
from ablate.plan.designs import combinations
from ablate.records import (
    CHAINS,
    LONGEST_CHAIN,
    MOST_SEEDS,
    RESOLVED,
    Before,
    CellResult,
    Decision,
    Declared,
    Direction,
    Level,
    Proposal,
    Settings,
    Space,
    Status,
    StudyResults,
)
from ablate.report.effects import effects
from ablate.report.wording import sentence
from ablate.results.study import Study
from ablate.scheduling.preview import Preview
from ablate.space.comparison import command_trainer, direction_of
from ablate.space.declared import DeclaredSpace, read_declared
from ablate.space.listed import fixed_levels, shared
from ablate.statistics import LEVEL
from ablate.statistics.evidence import decide, needed
from ablate.store.chains import add_proposal, put_results, update_proposal
from ablate.store.database import exists
from ablate.store.notes import ARCHIVED, STUDY, Note, Notes, notes_file
from ablate.store.reader import Reader
from ablate.trained.proposed import SHOWN, Commits, Kind, Levels, Proposed

Results = Mapping[int, float | None]
# Reasons that say nothing of the results: such a proposal may be proposed again, and
# gets a number of its own then.
FAILED = "its training failed"
WITHDRAWN = "it was withdrawn"
# Equal results of so many seeds are no evidence: each would count as a new one.
LEAST_SPREAD = 3
NO_SPREAD = (
    f"{LEAST_SPREAD} seeds gave the same result, and so they did for the baseline; the"
    " script seems to ignore its seed"
)
UNDECIDED = (FAILED, WITHDRAWN)
# The most seeds that a chain can declare.
MOST_POSSIBLE = 1_000
# The first seed of confirmations, which no proposal has.
FIRST_FRESH_SEED = 1_000


@dataclass(frozen=True)
class Answer:
    """What is known of a proposal, and what to do next.

    Attributes:
        baseline: the name of the present baseline.
        difference: the mean difference from its own baseline, over common seeds.
        kept: how many proposals of the chain were kept.
        trials, seconds: of the whole chain so far.
        next: what to do next.
    """

    proposal: Proposal
    baseline: str
    difference: float | None
    kept: int
    trials: int
    seconds: float
    next: str

    def to_dict(self) -> dict[str, object]:
        """Returns the answer as one JSON object."""
        mine = self.proposal
        return {
            "version": 1,
            "chain": mine.chain,
            "proposal": mine.name,
            "number": mine.number,
            "decision": str(mine.decision),
            "reason": mine.reason,
            "difference": self.difference,
            "evidence": mine.evidence,
            "needed": mine.needed,
            "seeds": len(mine.results),
            "trials": mine.trials,
            "baseline": self.baseline,
            "kept": self.kept,
            "chain_trials": self.trials,
            "chain_hours": round(self.seconds / 3600, 4),
            "next": self.next,
        }


@dataclass(frozen=True)
class Chain:
    """A chain in a store.

    Args:
        name: letters, digits, `-`, `_` and `.`.
        options: of the runs that train.
        train: runs a study, and returns its outcome.
    """

    name: str
    options: Options
    train: Callable[[Space, Options, Hooks], Outcome] | None = None

    def __post_init__(self) -> None:
        is_plain = all(each.isalnum() or each in "-_." for each in self.name)
        is_name = is_plain and bool(self.name.strip("."))
        if not is_name or len(self.name) > LONGEST_CHAIN:
            raise AblateError(
                f"chain {shortened(repr(self.name))}: a name has letters, digits, -, _ and"
                f" ., and {LONGEST_CHAIN} characters at most"
            )

    # What is stored.

    def proposals(self) -> list[Proposal]:
        """Returns all proposals in their order; the first one is the first baseline."""
        if not exists(self.options.url):
            return []
        with Reader(self.options.url) as reader:
            return reader.chains.proposals(self.name)

    def declared(self) -> Declared:
        """Returns what holds for the whole chain.

        Raises:
            UnknownName: there is no such chain.
        """
        with Reader(self.options.url) as reader:
            return reader.chains.declared(self.name)

    def baseline(self) -> Proposal:
        """Returns the present baseline: the last proposal that was kept.

        Raises:
            UnknownName: there is no such chain.
        """
        self.declared()
        return _last_kept(self.proposals())

    # What changes it.

    def begin(
        self,
        commit: str,
        *,
        trainer: str = "",
        metric: str = "",
        epochs: int | None = None,
        settings: Mapping[str, Level] | None = None,
        most: int = MOST_SEEDS,
    ) -> Answer:
        """Makes the chain, with a commit as its first baseline. Trains nothing.

        Args:
            trainer: a command of the loaded files; by default the only one.
            metric: by which proposals are compared; by default the trainer's first.
            epochs, settings: see `ablate compare`.
            most: the number of seeds after which a proposal is discarded.

        Raises:
            AblateError: the chain exists, or the commit cannot be trained.
        """
        record = command_trainer(trainer)
        metric = metric or record.metrics[0].name
        declared = Declared(
            metric=metric,
            direction=direction_of(record, metric),
            level=LEVEL,
            most=_checked_most(most),
            trainer=record.name,
            declaration=registry.meaning_of_declaration(record),
            settings=dict(settings or {}),
            epochs=epochs,
        )
        commits = Commits(self.name, declared)
        first = commits.first(commit)
        # A wrong setting is found before anything is stored.
        commits.study(f"{CHAINS}{self.name}/0", [first.source, WORKTREE], most)
        return self._first(first, declared, {})

    def begin_space(self, space: DeclaredSpace, *, most: int = MOST_SEEDS) -> Answer:
        """Makes the chain, with row 0 of a space as its first baseline. Trains nothing.

        A proposal then changes levels of the present baseline. If the chain began with
        this space, nothing changes.

        Args:
            space: a file, or an equal mapping. Which rows it has, and how many
                seeds, is not read.
            most: see `begin`.

        Raises:
            AblateError: the chain began with something else, or row 0 cannot be trained.
        """
        read, file = read_declared(space)
        declared = Declared(
            metric=read.criterion.metric,
            direction=read.criterion.direction,
            level=LEVEL,
            most=_checked_most(most),
            space=shared(read),
            settings={**fixed_levels(read), **_row_0(read)},
        )
        every = self.proposals()
        if every and self.declared() == declared:
            return self._answer(every[0])
        if every:
            raise AblateError(
                f"the chain {self.name} exists, and {file} is not the space that it began"
                " with; undo the change, or make another chain"
            )
        first = Levels(self.name, declared, self.options.url).first(file)
        return self._first(first, declared, {})

    def begin_reported(
        self,
        name: str,
        results: Results,
        *,
        direction: Direction,
        metric: str = "result",
        most: int = MOST_SEEDS,
    ) -> Answer:
        """Makes the chain, with reported results as those of its first baseline.

        Args:
            results: by seed; None: the run diverged.
            direction: max or min, whichever is better.
            metric: what the results are.
            most: see `begin`.

        Raises:
            AblateError: the chain exists.
        """
        if direction not in get_args(Direction):
            raise AblateError(f"direction is max or min, found {direction!r}")
        declared = Declared(
            metric=metric, direction=direction, level=LEVEL, most=_checked_most(most)
        )
        first = Proposed(name=_checked_name(name), identity=name, source="")
        return self._first(first, declared, _checked(results))

    def _first(
        self, proposed: Proposed, declared: Declared, results: Results
    ) -> Answer:
        if self.proposals():
            raise AblateError(f"the chain {self.name} exists; propose to it")
        first = Proposal(
            chain=self.name,
            number=0,
            name=proposed.name,
            identity=proposed.identity,
            source=proposed.source,
            decision=Decision.BASELINE,
            results=results,
        )
        make_hidden(self.options.runs)
        add_proposal(self.options.url, first, declared)
        return self._answer(first)

    def propose(self, change: str) -> Answer:
        """Trains a proposal, seed by seed until it is decided.

        What was decided before, under whatever name, is not trained again.

        Args:
            change: a commit; of a chain on a space, levels such as `norm=rms,depth=2`.

        Raises:
            AblateError: another proposal is open, or the proposal or the baseline cannot
                be trained.
        """
        declared = self.declared()
        kind = self._kind(declared)
        if kind is None:
            raise AblateError(
                f"the results of the chain {self.name} are reported; report those of"
                f" {change}"
            )
        base = self.baseline()
        proposed = kind.read(change, base)
        is_again = proposed.source == base.source and (
            not declared.space or proposed.name == base.name
        )
        if proposed.identity == base.identity and not is_again:
            # It costs no share of the level, so it is not stored.
            reason = f"it trains the same as the baseline {base.name}"
            same = replace(base, decision=Decision.DISCARD, reason=reason)
            return self._answer(same, proposed.name)
        mine = self._proposal(proposed)
        seeds = max(len(mine.results), 1)
        while mine.decision is Decision.MORE_SEEDS:
            if self._budget(f"{CHAINS}{self.name}/{mine.number}") is None:
                break
            mine, is_complete = self._trained(mine, declared, kind, seeds)
            if not is_complete:
                # The budget is used up, or the run was interrupted.
                break
            seeds += 1
        return self._answer(mine, proposed.name)

    def _kind(self, declared: Declared) -> Kind | None:
        """Returns what the chain trains; None: its results are reported."""
        if declared.trainer:
            return Commits(self.name, declared)
        if declared.space:
            return Levels(self.name, declared, self.options.url)
        return None

    def progress(self, name: str) -> Answer | None:
        """Returns what is stored of a proposal; None if it was not proposed yet."""
        for proposal in reversed(self.proposals()):
            if proposal.name == name:
                return self._answer(proposal)
        return None

    def report(self, name: str, results: Results) -> Answer:
        """Adds reported results of a proposal, or of the present baseline, by seed.

        Raises:
            AblateError: another proposal is open, a result differs from what was reported
                before, or the baseline has no result of a seed.
        """
        declared = self.declared()
        if self._kind(declared) is not None:
            raise AblateError(
                f"the chain {self.name} trains its proposals, so their results are not"
                " reported"
            )
        name, results = _checked_name(name), _checked(results)
        base = self.baseline()
        if name == base.name:
            every = _merged(name, base.results, results)
            put_results(self.options.url, self.name, base.number, results)
            return self._answer(replace(base, results=every))
        missing = [seed for seed in results if seed not in base.results]
        if missing:
            raise AblateError(
                f"the baseline {base.name} has no result of seed {missing[0]}; report it"
                " first, so that both can be compared"
            )
        mine = self._proposal(Proposed(name=name, identity=name, source=""))
        if mine.decision is not Decision.MORE_SEEDS:
            return self._answer(mine)
        for earlier in self.proposals():
            # One that was withdrawn has shown its results, too.
            if earlier.name == name:
                _merged(name, earlier.results, results)
        every = _merged(name, mine.results, results)
        return self._answer(self._decided(replace(mine, results=every), declared))

    def withdraw(self) -> Answer:
        """Discards the open proposal.

        Raises:
            AblateError: no proposal is open.
            UnknownName: there is no such chain.
        """
        self.declared()
        for proposal in self.proposals():
            if proposal.decision is Decision.MORE_SEEDS:
                return self._answer(self._discarded(proposal, WITHDRAWN))
        raise AblateError(f"the chain {self.name} has no open proposal")

    def confirm(self, seeds: int) -> tuple[str, str]:
        """Compares the present baseline with the first one on fresh seeds.

        Returns:
            a sentence, and the verdict.

        Raises:
            AblateError: nothing was kept, or results are reported.
        """
        declared = self.declared()
        every = self.proposals()
        first, last = every[0], _last_kept(every)
        if first.identity == last.identity:
            raise AblateError(
                f"the present baseline of the chain {self.name} is the first one; there is"
                " nothing to confirm"
            )
        kind = self._kind(declared)
        if kind is None:
            raise AblateError(
                f"the results of the chain {self.name} are reported; train fresh seeds of"
                f" {first.name} and {last.name}, and compare them with: ablate judge"
            )
        name = f"{CHAINS}{self.name}/confirm-{last.number}"
        fresh = [FIRST_FRESH_SEED + last.number * 100 + seed for seed in range(seeds)]
        with Reader(self.options.url) as reader:
            known = {study.name: study for study in reader.studies.all()}
        earlier = known[name].space if name in known else None
        if earlier is not None and len(earlier.seeds.numbers) != seeds:
            raise AblateError(
                f"{last.name} is confirmed with {len(earlier.seeds.numbers)} seeds; another"
                " number after a look at the results would be another chance"
            )
        study = kind.study(name, [first.source, last.source], fresh)
        self._run(study, fresh)
        results, stored = Study(name, self.options.url).read()
        # Its seeds are fresh, so nothing that was seen before could choose them.
        fresh_results = replace(results, before=Before())
        (effect,) = effects(fresh_results, stored.criterion.margin)
        words = sentence(
            effect,
            results.metric,
            stored.criterion.margin,
        )
        words = words.replace(f"{COMMIT} = {last.source[:SHOWN]}", last.name)
        return words, str(effect.verdict)

    # Steps of a proposal.

    def _proposal(self, proposed: Proposed) -> Proposal:
        """Returns the stored proposal that trains the same, or a new one.

        Raises:
            AblateError: another proposal is open.
        """
        every = self.proposals()
        base = _last_kept(every)
        for proposal in every:
            if proposal.identity != proposed.identity:
                continue
            if proposal.reason.startswith(UNDECIDED):
                continue
            was_tested = proposal.against == base.number
            if proposal.number == base.number or was_tested:
                return proposal
        for proposal in every:
            if proposal.decision is Decision.MORE_SEEDS:
                raise AblateError(
                    f"the chain {self.name} has the open proposal {proposal.name}; go on"
                    " with it, or withdraw it"
                )
        number = len(every)
        kept = sum(each.decision is Decision.KEEP for each in every)
        mine = Proposal(
            chain=self.name,
            number=number,
            name=proposed.name,
            identity=proposed.identity,
            source=proposed.source,
            against=base.number,
            needed=needed(number, kept, self.declared().level),
        )
        add_proposal(self.options.url, mine)
        return mine

    def _trained(
        self, mine: Proposal, declared: Declared, kind: Kind, seeds: int
    ) -> tuple[Proposal, bool]:
        """Returns a proposal with so many seeds, and whether all of them have ended."""
        base = self.baseline()
        name = f"{CHAINS}{self.name}/{mine.number}"
        study = kind.study(name, [base.source, mine.source], declared.most)
        planned: list[Preview] = []
        self._run(study, range(seeds), Hooks(planned=planned.append))
        with Reader(self.options.url) as reader:
            results = reader.studies.results(name)
        base_cell, cell = results.cells
        new = _ended_trials(planned[0], results, seeds)
        mine = replace(
            mine,
            trials=mine.trials + len(new),
            seconds=mine.seconds + self._seconds(new),
        )
        if Status.FAILED in base_cell.statuses.values():
            update_proposal(self.options.url, mine)
            raise AblateError(
                f"a training of the baseline {base.name} failed; see: ablate logs {name}"
            )
        failed = [s for s, status in cell.statuses.items() if status is Status.FAILED]
        if failed:
            reason = f"{FAILED} at seed {failed[0]}; see: ablate logs {name}"
            return self._discarded(mine, reason), True
        results_of_base = _ended(base_cell, seeds)
        results_of_mine = _ended(cell, seeds)
        put_results(self.options.url, self.name, base.number, results_of_base)
        both = {s: r for s, r in results_of_mine.items() if s in results_of_base}
        mine = self._decided(replace(mine, results=both), declared)
        return mine, len(both) == seeds

    def _seconds(self, trials: Sequence[str]) -> float:
        """Returns how long trials were trained."""
        with Reader(self.options.url) as reader:
            known = reader.trials.known(trials)
        return sum(epoch.seconds for each in known.values() for epoch in each.epochs)

    def _decided(self, mine: Proposal, declared: Declared) -> Proposal:
        """Stores a proposal with its evidence, and perhaps its decision."""
        every = self.proposals()
        earlier = [
            list(_differences(each, every[each.against], declared).values())
            for each in every
            if 0 < each.number < mine.number
        ]
        differences = _differences(mine, every[mine.against], declared)
        evidence = decide(
            list(differences.values()), earlier, mine.needed, declared.most
        )
        mine = replace(
            mine,
            decision=evidence.decision,
            reason=evidence.reason,
            evidence=evidence.value,
        )
        if _has_no_spread(mine.results, every[mine.against].results):
            return self._discarded(mine, NO_SPREAD)
        update_proposal(self.options.url, mine)
        return mine

    def _discarded(self, mine: Proposal, reason: str) -> Proposal:
        mine = replace(mine, decision=Decision.DISCARD, reason=reason)
        update_proposal(self.options.url, mine)
        return mine

    def _run(
        self, study: Space, seeds: Sequence[int], hooks: Hooks | None = None
    ) -> Outcome:
        budget = self._budget(study.name)
        if budget is None:
            raise AblateError(
                f"the limit of the chain {self.name} is used up; raise it to go on"
            )
        options = replace(self.options, seeds=tuple(seeds), budget=budget)
        notes = Notes(notes_file(options.url, options.runs))
        # The chain lists its studies.
        notes.put(study.name, STUDY, Note(tags=(ARCHIVED,)))
        if self.train is not None:
            return self.train(study, options, hooks or Hooks())
        return pipeline.run(study, study.name, options, hooks)

    def _budget(self, study: str) -> Budget | None:
        """Returns what a study may use, so that the chain keeps its limits.

        None: nothing is left.
        """
        budget = self.options.budget
        others = [
            each
            for each in self.proposals()
            if study != f"{CHAINS}{self.name}/{each.number}"
        ]
        trials, hours = budget.trials, budget.hours
        if trials is not None:
            trials -= sum(each.trials for each in others)
        if hours is not None:
            hours -= sum(each.seconds for each in others) / 3600
        if any(left is not None and left <= 0 for left in (trials, hours)):
            return None
        return replace(budget, trials=trials, hours=hours)

    def _answer(self, mine: Proposal, name: str = "") -> Answer:
        """Returns what is known of a proposal, under the name that was asked for."""
        mine = replace(mine, name=name or mine.name)
        every = self.proposals()
        declared = self.declared()
        differences = _differences(mine, every[mine.against], declared)
        finite = [each for each in differences.values() if math.isfinite(each)]
        mean = sum(finite) / len(finite) if finite and mine.number else None
        if mean is not None and declared.direction == "min":
            mean = 0.0 - mean
        base = _last_kept(every)
        return Answer(
            proposal=mine,
            baseline=base.name,
            difference=mean,
            kept=sum(each.decision is Decision.KEEP for each in every),
            trials=sum(each.trials for each in every),
            seconds=sum(each.seconds for each in every),
            next=_next(mine, base, declared),
        )


def _row_0(declared: Space) -> Settings:
    """Returns the levels of row 0 of a space."""
    if declared.strategy is not None:
        return declared.factors.baseline
    return combinations(declared)[0]


def _ended_trials(planned: Preview, results: StudyResults, seeds: int) -> list[str]:
    """Returns the trials that a run began and that have ended."""
    begun = {trial.hash for trial in planned.to_train}
    return [
        trial.hash
        for cell, ended in zip(planned.plan.cells, results.cells, strict=True)
        for trial in cell.trials
        if trial.seed < seeds
        and trial.hash in begun
        and ended.statuses.get(trial.seed) in RESOLVED
    ]


def _checked_name(name: str) -> str:
    """Returns the name of reported results. Raises AblateError if it is none."""
    if not name.strip() or not name.isprintable():
        raise AblateError(
            f"{shortened(repr(name))}: a name is one line with a character or more"
        )
    return name


def _checked_most(most: int) -> int:
    """Returns a number of seeds. Raises AblateError if it is out of range."""
    if type(most) is not int or not 2 <= most <= MOST_POSSIBLE:
        raise AblateError(
            f"most is a whole number from 2 to {MOST_POSSIBLE}, found {most!r}"
        )
    return most


def _checked(results: Mapping[int, float | None]) -> dict[int, float | None]:
    """Returns reported results in the order of their seeds; NaN becomes None.

    Raises:
        AblateError: a seed is no whole number from 0, or a result no finite number.
    """
    checked: dict[int, float | None] = {}
    for seed, result in results.items():
        try:
            number, value = operator.index(seed), result
            if value is not None:
                value = float(value)
        except (TypeError, ValueError):
            number, value = -1, None
        if number < 0 or (value is not None and math.isinf(value)):
            raise AblateError(
                f"results are finite numbers by seed, and seeds whole numbers from 0;"
                f" found {seed!r}: {result!r}"
            )
        checked[number] = None if value is None or math.isnan(value) else value
    return dict(sorted(checked.items()))


def _has_no_spread(results: Results, base: Results) -> bool:
    """Whether neither of two rows has given different results with several seeds."""
    shared = [seed for seed in results if seed in base]
    return len(shared) >= LEAST_SPREAD and all(
        len({each[seed] for seed in shared}) == 1 for each in (results, base)
    )


def _last_kept(every: Sequence[Proposal]) -> Proposal:
    """Returns the present baseline."""
    kept = (Decision.BASELINE, Decision.KEEP)
    return [each for each in every if each.decision in kept][-1]


def _merged(name: str, before: Results, results: Results) -> dict[int, float | None]:
    """Returns results with further ones.

    Raises:
        AblateError: a result differs from what was reported before.
    """
    for seed, result in results.items():
        if seed in before and before[seed] != result:
            raise AblateError(
                f"{name}: the result of seed {seed} was reported as {before[seed]}, and"
                f" now as {result}; a result does not change, so give another run"
                " another seed"
            )
    return {**before, **results}


def _ended(cell: CellResult, seeds: int) -> dict[int, float | None]:
    """Returns the results of the seeds that have ended, up to the first that has not."""
    results: dict[int, float | None] = {}
    for seed in range(seeds):
        if seed in cell.values:
            results[seed] = cell.values[seed]
        elif cell.statuses.get(seed) is Status.DIVERGED:
            results[seed] = None
        else:
            break
    return results


def _differences(
    mine: Proposal, base: Proposal, declared: Declared
) -> dict[int, float]:
    """Returns by how much a proposal is better at each common seed.

    It is infinite where one of the two diverged, and 0 where both did.
    """
    sign = 1 if declared.direction == "max" else -1
    differences = {}
    for seed, result in mine.results.items():
        if seed not in base.results:
            continue
        before = base.results[seed]
        if result is None or before is None:
            gains = (before is None) - (result is None)
            differences[seed] = gains * math.inf if gains else 0.0
        else:
            differences[seed] = sign * (result - before)
    return differences


def _next(mine: Proposal, base: Proposal, declared: Declared) -> str:
    """Returns what to do after a decision."""
    if mine.decision is Decision.DISCARD and declared.space:
        return f"propose another change of {base.name}"
    if mine.decision is Decision.DISCARD:
        return f"go back to {base.name}, and propose another change"
    if mine.decision is not Decision.MORE_SEEDS:
        return f"propose a change of {base.name}"
    if declared.trainer or declared.space:
        return (
            f"propose {mine.name} again to train further seeds; if a limit is used up,"
            " raise it"
        )
    left = sorted(base.results.keys() - mine.results.keys())
    if left:
        return f"report seed {left[0]} of {mine.name}"
    seed = max(base.results, default=-1) + 1
    return f"report seed {seed} of {base.name} and of {mine.name}"
