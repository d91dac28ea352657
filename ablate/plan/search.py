"""A search: cells proposed one after the other by a strategy, from the results so far."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from ablate.errors import StoreError
from ablate.plan.plan import Cells, Costs, unread_reason
from ablate.plan.strategies import Factor, Sampler, Verdict
from ablate.records import (
    Cell,
    Cost,
    Epoch,
    Known,
    Level,
    Plan,
    Settings,
    Space,
    Status,
    Trial,
)

# States of which a search learns something.
RESOLVED = (Status.COMPLETED, Status.DIVERGED, Status.PRUNED, Status.FAILED)
# Proposals in a row that bring nothing new, after which one is drawn evenly from what
# is left.
PATIENCE = 10
# Combinations that are listed, to know when none is left; of more, some are drawn.
MOST_LISTED = 20_000
MOST_DRAWN = 2_000

Results = Callable[[Iterable[str]], Mapping[str, Known]]


class Search:
    """A search of a space.

    It is a function of the space and of results: made again from the same results, it
    makes the same proposals. Proposal number k is made when the results of all
    proposals up to k - `parallel` are known, from these alone.

    Args:
        costs: the cost of an architecture; raises Infeasible where it cannot be built.
        results: state and epochs of trials, by hash, of those that are known.
        chosen: what was proposed before, in its order; what the space still allows is
            taken over.
    """

    def __init__(
        self,
        space: Space,
        costs: Costs,
        results: Results,
        chosen: Sequence[Settings] = (),
    ) -> None:
        assert space.strategy is not None
        self._space = space
        self._strategy = space.strategy
        self._results = results
        self._made = Cells(space, costs)
        factors = [
            Factor(name, tuple(space.factors[name]), partial(_is_read, space, name))
            for name in reading_order(space)
        ]
        self._factors = factors
        self._sampler = Sampler(
            self._strategy, factors, space.baseline, tuple(space.objectives.values())
        )
        self._asked = self._told = 0
        self._refused: set[int] = set()
        self._verdicts: dict[int, Verdict] = {}
        self._best: dict[int, Mapping[int, float]] = {}
        self._given: set[str] = set()
        self._seeds: dict[int, int] = {}
        self._resolved: dict[str, Known] = {}
        self._proposed: set[tuple[Level, ...]] = set()
        self._useless, self._exhausted = 0, False
        for levels in self._still_allowed(chosen):
            if self._made.cells and self.more == 0:
                break
            self._add(levels)

    @property
    def plan(self) -> Plan:
        """What has been proposed so far."""
        return Plan(
            self._space, tuple(self._with_seeds(cell) for cell in self._made.cells)
        )

    def _with_seeds(self, cell: Cell) -> Cell:
        """The cell with the trials that it is to have by what is known now."""
        if self._space.adaptive:
            return replace(cell, trials=self._needs(cell)[0])
        return cell

    @property
    def more(self) -> int | None:
        """How many cells are still to be proposed; None where nobody knows."""
        if self._exhausted:
            return 0
        wanted = self._strategy.cells
        if wanted is None:
            return None
        return max(0, wanted - sum(cell.feasible for cell in self._made.cells))

    def advance(self) -> list[Cell]:
        """Proposes as far as results allow; gives the new cells, and those that get
        another seed.
        """
        first = self._told
        while (self._asked < len(self._made.cells) or self.more != 0) and self._tell(
            self._asked - self._strategy.parallel
        ):
            if not self._propose(self._asked):
                self._exhausted = True
        found = [
            self._with_seeds(cell) for cell in self._made.cells[first : self._asked]
        ]
        changed = [
            cell for cell in found if self._seeds.get(cell.index) != len(cell.trials)
        ]
        self._seeds.update((cell.index, len(cell.trials)) for cell in changed)
        return changed

    def wanted(self) -> list[Trial]:
        """Trials to be trained now, each given once, in their order.

        Call `advance` first.
        """
        found = []
        for cell in self._made.cells[self._told : self._asked]:
            trials, _ = self._needs(cell)
            found += [
                trial
                for trial in trials
                if trial.hash not in self._given and trial.hash not in self._resolved
            ]
            self._given.update(trial.hash for trial in trials)
        return found

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be proposed or trained."""
        return (
            self.more == 0
            and self._asked == len(self._made.cells)
            and self._tell(self._asked - 1)
        )

    def _tell(self, last: int) -> bool:
        """Tells the sampler what came of the proposals up to number `last`; False where
        that is not known yet.
        """
        while self._told <= last:
            cell = self._made.cells[self._told]
            if cell.index not in self._refused:
                verdict = self._verdict(cell)
                if verdict is None:
                    return False
                self._sampler.tell(cell.index, verdict)
            self._told += 1
        return True

    def _propose(self, number: int) -> bool:
        """Asks the sampler for the proposal of that number; what was chosen before
        stands.

        False where nothing is left.
        """
        is_known = number < len(self._made.cells)
        chosen = self._made.cells[number].levels if is_known else None
        if chosen is None and self._all and len(self._proposed) >= len(self._all):
            return False
        if chosen is None and self._useless >= PATIENCE:
            # The sampler keeps proposing what was proposed before.
            chosen = self._anything_new(number)
            if chosen is None:
                return False
        levels = self._sampler.ask(number, chosen)
        cell = self._made.cells[number] if is_known else self._add(levels)
        self._asked += 1
        self._useless = 0 if cell.feasible else self._useless + 1
        self._sampler.constrain(number, self._made.violations(cell))
        if not cell.feasible and cell.same_as is None:
            self._refused.add(number)
            self._sampler.refuse(number)
        self._best[number] = self._best_so_far() if self._space.adaptive else {}
        return True

    def _add(self, levels: Settings) -> Cell:
        self._proposed.add(tuple(levels.values()))
        return self._made.add(levels)

    def _verdict(self, cell: Cell) -> Verdict | None:
        """What came of a cell, once it is known."""
        source = cell if cell.same_as is None else self._made.cells[cell.same_as]
        if source.index not in self._verdicts:
            trials, resolved = self._needs(source)
            if not resolved:
                return None
            known = self._look(trials)
            each = [known[trial.hash] for trial in trials]
            self._verdicts[source.index] = judge(
                each, self._space.objectives, source.cost
            )
        return self._verdicts[source.index]

    def _needs(self, cell: Cell) -> tuple[tuple[Trial, ...], bool]:
        """The trials that a cell is to have by what is known now, and whether all of
        these have a result.
        """
        known = self._look(cell.trials)
        if not self._space.adaptive:
            return cell.trials, all(trial.hash in known for trial in cell.trials)
        if cell.index not in self._best:
            return cell.trials[:1], False
        mine: dict[int, float] = {}
        for count, trial in enumerate(cell.trials, start=1):
            if trial.hash not in known:
                return cell.trials[:count], False
            if known[trial.hash].status != Status.COMPLETED:
                return cell.trials[:count], True
            mine[trial.seed] = self._value(known[trial.hash].epochs[-1])
            if self._is_worse(mine, self._best[cell.index]):
                return cell.trials[:count], True
        return cell.trials, True

    def _is_worse(self, mine: Mapping[int, float], best: Mapping[int, float]) -> bool:
        """Whether a cell is worse than the best one, over the seeds that both have."""
        gain = sum(mine[seed] - best[seed] for seed in mine if seed in best)
        return gain < 0 if self._space.direction == "max" else gain > 0

    def _best_so_far(self) -> Mapping[int, float]:
        """By seed, the values of the best cell among those told that have all their
        seeds.
        """
        found: dict[float, Mapping[int, float]] = {}
        for cell in self._made.cells[: self._told]:
            verdict = self._verdicts.get(cell.index)
            if cell.feasible and verdict is not None and verdict.state == "completed":
                known = self._look(cell.trials)
                values = {
                    t.seed: self._value(known[t.hash].epochs[-1])
                    for t in self._needs(cell)[0]
                }
                if len(values) == len(cell.trials):
                    found.setdefault(statistics.fmean(values.values()), values)
        if found:
            return found[(max if self._space.direction == "max" else min)(found)]
        return {}

    def _look(self, trials: Sequence[Trial]) -> Mapping[str, Known]:
        """What is known of those trials that have a result."""
        unknown = [trial.hash for trial in trials if trial.hash not in self._resolved]
        if unknown:
            found = self._results(unknown).items()
            self._resolved.update(
                (key, known) for key, known in found if known.status in RESOLVED
            )
        return {
            trial.hash: self._resolved[trial.hash]
            for trial in trials
            if trial.hash in self._resolved
        }

    def _value(self, epoch: Epoch) -> float:
        return _metric(epoch, self._space.metric)

    def _still_allowed(self, chosen: Sequence[Settings]) -> list[Settings]:
        """The baseline, and what was proposed before as far as the space still allows
        it.
        """
        baseline, kept = self._space.baseline, list[Settings]()
        for number, levels in enumerate(chosen):
            mine = {name: levels.get(name, baseline[name]) for name in baseline}
            if all(mine[name] in self._space.factors[name] for name in mine) and (
                number or mine != baseline
            ):
                kept.append(self._plainly(list(mine.values())))
        return [baseline, *kept]

    def _anything_new(self, number: int) -> Settings | None:
        """A combination that was not proposed yet, drawn evenly; None where there is
        none.
        """
        draw = random.Random(f"{self._strategy.seed}/{number}")
        factors = self._space.factors
        if self._all:
            left = [levels for levels in self._all if levels not in self._proposed]
            return dict(zip(factors, draw.choice(left), strict=True))
        for _ in range(MOST_DRAWN):
            levels = self._plainly([draw.choice(found) for found in factors.values()])
            if tuple(levels.values()) not in self._proposed:
                return levels
        return None

    @cached_property
    def _all(self) -> list[tuple[Level, ...]]:
        """All combinations there are; none where they are too many to be listed."""
        found = self._space.factors.values()
        if math.prod(map(len, found)) > MOST_LISTED:
            return []
        every = (self._plainly(levels) for levels in itertools.product(*found))
        return list(dict.fromkeys(tuple(levels.values()) for levels in every))

    def _plainly(self, drawn: Sequence[Level]) -> Settings:
        """Levels with those that are not read at the baseline."""
        said = dict(zip(self._space.factors, drawn, strict=True))
        levels = dict(self._space.baseline)
        for factor in self._factors:
            if factor.is_read(levels):
                levels[factor.name] = said[factor.name]
        return levels


def judge(
    known: Sequence[Known], objectives: Iterable[str], cost: Cost | None
) -> Verdict:
    """What came of a cell with these trials: completed if all are, pruned if the others
    were stopped early, else failed.

    Args:
        objectives: the metric, and costs.

    Raises:
        StoreError: a completed trial has no epochs.
    """
    metric, *costs = objectives
    states = {each.status for each in known}
    if states == {Status.COMPLETED}:
        if not all(each.epochs for each in known):
            raise StoreError(
                "the store has completed trials but no epochs of them; it was changed"
                " by hand: use a copy of it"
            )
        value = statistics.fmean(_metric(each.epochs[-1], metric) for each in known)
        return Verdict(
            "completed", (value, *(float(getattr(cost, name)) for name in costs))
        )
    if states <= {Status.COMPLETED, Status.PRUNED}:
        return Verdict("pruned", curve=_mean_curve(known, metric))
    return Verdict("failed")


def _mean_curve(known: Sequence[Known], metric: str) -> dict[int, float]:
    """The mean over trials by epoch."""
    by_epoch: dict[int, list[float]] = {}
    for epoch in itertools.chain.from_iterable(each.epochs for each in known):
        by_epoch.setdefault(epoch.number, []).append(_metric(epoch, metric))
    return {number: statistics.fmean(values) for number, values in by_epoch.items()}


def _metric(epoch: Epoch, name: str) -> float:
    return float(getattr(epoch, name))


def _is_read(space: Space, name: str, levels: Settings) -> bool:
    return not unread_reason(space, name, levels)


def reading_order(space: Space) -> list[str]:
    """The factors of a space, those first that decide whether others are read:
    `shortcuts.count` before `shortcuts.b`.
    """
    names = list(space.factors)
    probes = _around(space, names)
    before: dict[str, set[str]] = {name: set() for name in names}
    for name in names:
        if any(unread_reason(space, name, levels) for levels in probes):
            before[name] = _deciding(space, name, probes)
    order: list[str] = []
    while len(order) < len(names):
        left = [name for name in names if name not in order]
        ready = [name for name in left if before[name] <= set(order)]
        # In a circle, the order of the file decides.
        order.append((ready or left)[0])
    return order


def _deciding(space: Space, name: str, probes: Sequence[Settings]) -> set[str]:
    """The factors whose level decides somewhere whether `name` is read."""
    deciding = set()
    for other in space.factors:
        if other != name and any(
            _decides(space, other, name, levels) for levels in probes
        ):
            deciding.add(other)
    return deciding


def _decides(space: Space, other: str, name: str, levels: Settings) -> bool:
    """Whether the level of `other` decides here if `name` is read."""
    answers = {
        _is_read(space, name, {**levels, other: level})
        for level in space.factors[other]
    }
    return len(answers) > 1


def _around(space: Space, names: Sequence[str]) -> list[Settings]:
    """The baseline, and it with one or two factors at other levels."""
    found: list[Settings] = [space.baseline]
    for one, other in itertools.combinations_with_replacement(names, 2):
        for here, there in itertools.product(space.factors[one], space.factors[other]):
            found.append({**space.baseline, one: here, other: there})
    return found[:MOST_DRAWN]
