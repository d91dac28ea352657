"""The trials of a plan that grows with results: seeds until decided, chosen settings.

Which trials a cell has is a function of the plan and of results, never of timing.
Recomputed after a kill, it is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ablate.records import RESOLVED, Cell, Known, Plan, Trial

Results = Callable[[Iterable[str]], Mapping[str, Known]]
# Returns the trials that are due, as cells of a plan, and whether no others follow.
Grow = Callable[[Mapping[str, Known]], tuple[Plan, bool]]


def is_resolved(trial: Trial, known: Mapping[str, Known]) -> bool:
    """Whether a trial has an outcome, and trains no more in this run."""
    return trial.hash in known and known[trial.hash].status in RESOLVED


class Growing:
    """The trials of a plan, as results call for them.

    Args:
        plan: the plan with all seeds that a cell may get.
        begun: the same plan with the trials that are stored.
        grow: returns the trials that are due, from what is known.
        results: returns state and value by hash, for those trials that are known.
        more: receives the cells that get trials, before these are handed out.
    """

    def __init__(
        self,
        plan: Plan,
        begun: Plan,
        grow: Grow,
        results: Results,
        more: Callable[[list[Cell]], None],
    ) -> None:
        self._hashes = dict.fromkeys(
            trial.hash for trial in (*plan.trials, *begun.trials)
        )
        self._grow = grow
        self._results = results
        self._more = more
        self._given: set[str] = set()
        self._known: dict[str, Known] | None = None
        self._counts = {cell.index: len(cell.all_trials) for cell in begun.cells}
        self._last = False

    def wanted(self) -> list[Trial]:
        if self._last:
            return []
        before = self._known or {}
        news = self._results(key for key in self._hashes if key not in before)
        new = {key: trial for key, trial in news.items() if trial.status in RESOLVED}
        # The plan can only grow with a new result; to see whether it does is expensive.
        if not new and self._known is not None:
            return []
        known = {**before, **new}
        cut, self._last = self._grow(known)
        unasked = [t.hash for t in cut.trials if t.hash not in self._hashes]
        if unasked:
            # Other studies may have results of the trials that are added.
            self._hashes.update(dict.fromkeys(unasked))
            known |= {
                key: trial
                for key, trial in self._results(unasked).items()
                if trial.status in RESOLVED
            }
            cut, self._last = self._grow(known)
        self._known = known
        changed = [
            cell
            for cell in cut.cells
            if len(cell.all_trials) != self._counts[cell.index]
        ]
        if changed:
            self._more(changed)
            self._counts |= {cell.index: len(cell.all_trials) for cell in changed}
        open_ = [
            trial
            for trial in cut.trials
            if trial.hash not in self._given and not is_resolved(trial, known)
        ]
        self._given |= {trial.hash for trial in open_}
        return open_

    @property
    def has_ended(self) -> bool:
        return self._last
