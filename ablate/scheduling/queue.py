"""The trials to train next, from a plan or a search.

The queue leases each trial before it hands the trial out as a job.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, Self

from ablate.budget import BudgetMeter
from ablate.records import Cell, Job, Trial

if TYPE_CHECKING:
    from ablate.scheduling.search import Search

# How often one trial may come back without a result before this run leaves it to
# another one.
MOST_RETURNS = 5
Claim = Callable[[str], Literal["granted", "taken", "known"]]


class Source(Protocol):
    """Where trials come from."""

    def wanted(self) -> list[Trial]:
        """Returns the trials to train that earlier calls have not returned."""

    @property
    def has_ended(self) -> bool:
        """Whether this source will never return another trial."""


class Planned:
    """The trials of a plan, all at once."""

    def __init__(self, trials: tuple[Trial, ...]) -> None:
        self._trials = list(trials)

    def wanted(self) -> list[Trial]:
        queued, self._trials = self._trials, []
        return queued

    @property
    def has_ended(self) -> bool:
        return not self._trials


class Searched:
    """The trials of a search, released as results come in.

    Args:
        proposed: receives each new cell, and each cell that gets another seed, before
            its trials are handed out.
    """

    def __init__(self, search: Search, proposed: Callable[[list[Cell]], None]) -> None:
        self._search, self._proposed = search, proposed

    def wanted(self) -> list[Trial]:
        changed = self._search.advance()
        if changed:
            self._proposed(changed)
        return self._search.wanted()

    @property
    def has_ended(self) -> bool:
        return self._search.has_ended

    @property
    def cells(self) -> int:
        """The number of cells proposed so far."""
        return len(self._search.plan.cells)


class Queue:
    """Hands out one job at a time.

    It gives None if no trial is free now: other drivers hold the remaining ones, or a
    search waits for results. If another driver is lost, its lease expires and the queue
    hands its trials out. The iteration ends when the source is finished and no trial is
    waiting. Trials that were handed out may still be training then. If one of them comes
    back, the queue can be asked again.

    Args:
        meter: says which trials are within the budget of the study. The iteration also
            ends when it admits no other trial.
    """

    def __init__(
        self,
        source: Source,
        claim: Claim,
        make: Callable[[Trial], Job],
        meter: BudgetMeter | None = None,
    ) -> None:
        self._source = source
        self._meter = meter or BudgetMeter()
        self._claim = claim
        self._make = make
        self._waiting: deque[Trial] = deque()
        self._given: dict[str, Trial] = {}
        self._returns: Counter[str] = Counter()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Job | None:
        # Not a generator: after the end of one, a trial that comes back from its worker
        # could not be handed out again.
        self._waiting.extend(self._source.wanted())
        granted = self._granted()
        if granted is not None:
            return self._make(granted)
        if not self._waiting and (self._source.has_ended or self._meter.exhausted):
            raise StopIteration
        return None

    def _granted(self) -> Trial | None:
        """Returns the next waiting trial that this driver could lease, or None."""
        # At most one pass over the waiting trials: one that another driver holds goes
        # to the back, so that it cannot block the others.
        for _ in range(len(self._waiting)):
            trial = self._waiting.popleft()
            if not self._meter.admits(trial.hash):
                continue
            answer = self._claim(trial.hash)
            if answer == "granted":
                self._given[trial.hash] = trial
                self._meter.begin(trial.hash)
                return trial
            if answer == "taken":
                self._waiting.append(trial)
        return None

    def returned(self, key: str) -> None:
        """Puts a trial back that was handed out and came back without a result.

        Its lease was lost, or another process still trains it.
        """
        trial = self._given.pop(key, None)
        self._returns[key] += 1
        if trial is not None and self._returns[key] <= MOST_RETURNS:
            self._waiting.append(trial)
