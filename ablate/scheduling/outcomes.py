"""What came of the cells of a search: their trials, seeds and outcomes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

from ablate.errors import StoreError
from ablate.records import RESOLVED, Cell, Cost, Criterion, Known, Space, Status, Trial
from ablate.scheduling.strategies import CellOutcome
from ablate.statistics.numbers import mean_of

Results = Callable[[Iterable[str]], Mapping[str, Known]]


class CellOutcomes:
    """The trials that cells need, and the outcomes of the cells.

    With adaptive seeds a cell gets its seeds one by one, while it is no worse than the
    best cell. The best cell is the best one at the time of the proposal. A later best
    would make the number of seeds depend on the order in which trials end.

    Args:
        results: returns status and epochs by hash, for those trials that are known.
    """

    def __init__(self, space: Space, results: Results) -> None:
        self._space = space
        self._results = results
        self._resolved: dict[str, Known] = {}
        self._outcomes: dict[int, CellOutcome] = {}
        self._best: dict[int, Mapping[int, float]] = {}

    def is_resolved(self, trial: Trial) -> bool:
        """Whether the result of a trial has been read."""
        return trial.hash in self._resolved

    def has_result(self, trial: Trial) -> bool:
        """Whether a trial has a result. Reads it if it has not been read."""
        return trial.hash in self._known([trial])

    def best(self, cells: Sequence[Cell], number: int) -> frozenset[int]:
        """Returns row 0 and the best other cells of a search, if there are any.

        Cells with more completed seeds come first, because a scheduler or adaptive
        seeds stopped the others; of these, the cells with the best means. With several
        objectives, only cells of the Pareto front count.

        Args:
            number: how many cells beside row 0.
        """
        means = {cell.index: self._completed_mean(cell) for cell in cells}
        rows = [row for row, (count, _) in means.items() if count and row != 0]
        if len(self._space.criterion.objectives) > 1:
            rows = self._front(cells)
        if not rows or not cells[0].feasible:
            return frozenset()
        sign = 1 if self._space.criterion.direction == "max" else -1

        def rank(row: int) -> tuple[int, float, int]:
            count, mean = means[row]
            return -count, -sign * mean, row

        return frozenset({0, *sorted(rows, key=rank)[:number]})

    def _completed_mean(self, cell: Cell) -> tuple[int, float]:
        """Returns the number of a cell's completed seeds, and their mean.

        Seeds that the search did not ask for do not count: another study may have
        trained them, sooner or later.
        """
        known = self._known(self.needs(cell)[0]).values()
        values = [
            self._value(trial) for trial in known if trial.status == Status.COMPLETED
        ]
        if not values:
            return 0, 0.0
        return len(values), mean_of(values)

    def _front(self, cells: Sequence[Cell]) -> list[int]:
        """Returns the cells, other than row 0, that no other cell dominates."""
        directions = self._space.criterion.objectives.values()
        values: dict[int, tuple[float, ...]] = {}
        for cell in cells:
            outcome = self._outcomes.get(cell.index)
            if cell.feasible and outcome is not None and outcome.state == "completed":
                values[cell.index] = tuple(
                    value if direction == "max" else -value
                    for value, direction in zip(outcome.values, directions, strict=True)
                )
        return [row for row in values if row and not _is_dominated(values[row], values)]

    def propose(self, number: int, cells: Sequence[Cell]) -> None:
        """Notes the best cell at the time of a proposal.

        Args:
            told: the cells whose outcome the sampler knows.
        """
        self._best[number] = {}
        if self._space.seeds.adaptive:
            self._best[number] = self._best_of(cells)

    def outcome(self, cell: Cell) -> CellOutcome | None:
        """Returns the outcome of a cell with trials; None if it is not known yet."""
        if cell.index not in self._outcomes:
            trials, resolved = self.needs(cell)
            if not resolved:
                return None
            known = self._known(trials)
            each = [known[trial.hash] for trial in trials]
            self._outcomes[cell.index] = outcome_of(
                each, self._space.criterion, cell.cost
            )
        return self._outcomes[cell.index]

    def needs(self, cell: Cell) -> tuple[tuple[Trial, ...], bool]:
        """Returns the trials that a cell needs so far, and whether all have a result.

        With adaptive seeds a cell gets its seeds one by one. It gets no further seed
        once a trial fails, or once it is worse than the best cell over the seeds that
        both have.
        """
        known = self._known(cell.trials)
        if not self._space.seeds.adaptive:
            return cell.trials, all(trial.hash in known for trial in cell.trials)
        if cell.index not in self._best:
            return cell.trials[:1], False
        # Seeds are judged in the order of the plan, not in the order of arrival, so
        # that the same results always grant the same seeds.
        curve: dict[int, float] = {}
        for count, trial in enumerate(cell.trials, start=1):
            if trial.hash not in known:
                return cell.trials[:count], False
            if known[trial.hash].status != Status.COMPLETED:
                return cell.trials[:count], True
            curve[trial.seed] = self._value(known[trial.hash])
            if self._is_worse(curve, self._best[cell.index]):
                return cell.trials[:count], True
        return cell.trials, True

    def _is_worse(self, curve: Mapping[int, float], best: Mapping[int, float]) -> bool:
        """Whether a cell is worse than the best cell over the seeds that both have."""
        gain = sum(curve[seed] - best[seed] for seed in curve if seed in best)
        return gain < 0 if self._space.criterion.direction == "max" else gain > 0

    def _best_of(self, cells: Sequence[Cell]) -> Mapping[int, float]:
        """Returns the values of the best cell by seed; empty if there is none.

        Only cells count that completed all their seeds.
        """
        by_mean: dict[float, Mapping[int, float]] = {}
        for cell in cells:
            outcome = self._outcomes.get(cell.index)
            if cell.feasible and outcome is not None and outcome.state == "completed":
                known = self._known(cell.trials)
                values = {
                    t.seed: self._value(known[t.hash]) for t in self.needs(cell)[0]
                }
                if len(values) == len(cell.trials):
                    by_mean.setdefault(mean_of(values.values()), values)
        if by_mean:
            return by_mean[
                (max if self._space.criterion.direction == "max" else min)(by_mean)
            ]
        return {}

    def _known(self, trials: Sequence[Trial]) -> Mapping[str, Known]:
        """Returns what is known of those trials that have a result."""
        # A result never changes, so each one is read from the store once.
        unknown = [trial.hash for trial in trials if trial.hash not in self._resolved]
        if unknown:
            news = self._results(unknown).items()
            self._resolved.update(
                (key, known) for key, known in news if known.status in RESOLVED
            )
        return {
            trial.hash: self._resolved[trial.hash]
            for trial in trials
            if trial.hash in self._resolved
        }

    def _value(self, known: Known) -> float:
        return known.last(self._space.criterion.compared)


def _is_dominated(
    point: tuple[float, ...], values: Mapping[int, tuple[float, ...]]
) -> bool:
    """Whether another cell is as good by all objectives, and better by one.

    Args:
        point: the values of a cell; larger ones are better.
    """
    return any(
        other != point and all(map(operator.ge, other, point))
        for other in values.values()
    )


def outcome_of(
    known: Sequence[Known], criterion: Criterion, cost: Cost | None
) -> CellOutcome:
    """Returns the outcome of a cell with these trials.

    The outcome is "completed" if all trials completed, "pruned" if the others were
    stopped early, and "failed" otherwise.

    Args:
        criterion: the metric, and the costs that are objectives beside it.

    Raises:
        StoreError: a completed trial has no epochs.
    """
    metric = criterion.compared
    _, *costs = criterion.objectives
    states = {each.status for each in known}
    if states == {Status.COMPLETED}:
        if not all(each.epochs for each in known):
            raise StoreError(
                "the store has completed trials without epochs, so it was changed"
                " by hand; use a backup copy of it"
            )
        value = mean_of(each.last(metric) for each in known)
        return CellOutcome(
            "completed", (value, *(float(getattr(cost, name)) for name in costs))
        )
    if states <= {Status.COMPLETED, Status.PRUNED}:
        return CellOutcome("pruned", curve=_mean_curve(known, metric.measured))
    return CellOutcome("failed")


def _mean_curve(known: Sequence[Known], metric: str) -> dict[int, float]:
    """Returns the mean of the metric over the trials, by epoch."""
    by_epoch: dict[int, list[float]] = {}
    for epoch in itertools.chain.from_iterable(each.epochs for each in known):
        by_epoch.setdefault(epoch.number, []).append(epoch.metrics[metric])
    return {number: mean_of(values) for number, values in by_epoch.items()}
