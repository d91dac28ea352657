"""What is to be trained next: trials of a plan or of a search, each leased before it is
handed out as a job.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, Protocol

from ablate.records import Cell, Job, Trial

if TYPE_CHECKING:
    from ablate.plan.search import Search

# How often one trial may come back before it is left for another run.
MOST_RETURNS = 5
Claim = Callable[[str], Literal["granted", "taken", "known"]]


class Source(Protocol):
    """Where trials come from."""

    def wanted(self) -> list[Trial]:
        """Trials to be trained that were not given before."""

    @property
    def finished(self) -> bool:
        """Whether there will never be more."""


class Planned:
    """The trials of a plan, all at once."""

    def __init__(self, trials: tuple[Trial, ...]) -> None:
        self._trials = list(trials)

    def wanted(self) -> list[Trial]:
        found, self._trials = self._trials, []
        return found

    @property
    def finished(self) -> bool:
        return not self._trials


class Searched:
    """The trials of a search, as results allow.

    Args:
        proposed: is given each new cell, and each one that gets another seed, before
            its trials are.
    """

    def __init__(self, search: Search, proposed: Callable[[list[Cell]], None]) -> None:
        self._search, self._proposed = search, proposed

    def wanted(self) -> list[Trial]:
        changed = self._search.advance()
        if changed:
            self._proposed(changed)
        return self._search.wanted()

    @property
    def finished(self) -> bool:
        return self._search.finished

    @property
    def cells(self) -> int:
        """Number of the cells proposed so far."""
        return len(self._search.plan.cells)


class Queue:
    """Hands out one job after another, as an order takes them: None where others have
    what is left, or where a search waits.

    It ends when each trial has a result, whoever trained it. A trial whose other driver
    is lost is handed out in the end.
    """

    def __init__(
        self, source: Source, claim: Claim, make: Callable[[Trial], Job]
    ) -> None:
        self._source = source
        self._claim = claim
        self._make = make
        self._waiting: deque[Trial] = deque()
        self._given: dict[str, Trial] = {}
        self._returns: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Job | None]:
        while True:
            self._waiting.extend(self._source.wanted())
            granted = self._next()
            if granted is not None:
                yield self._make(granted)
            elif not self._waiting and self._source.finished:
                return
            else:
                yield None

    def _next(self) -> Trial | None:
        for _ in range(len(self._waiting)):
            trial = self._waiting.popleft()
            answer = self._claim(trial.hash)
            if answer == "granted":
                self._given[trial.hash] = trial
                return trial
            if answer == "taken":
                self._waiting.append(trial)
        return None

    def returned(self, key: str) -> None:
        """A trial that was handed out came back without a result: its lease was lost,
        or another process still trains it.
        """
        trial = self._given.pop(key, None)
        self._returns[key] += 1
        if trial is not None and self._returns[key] <= MOST_RETURNS:
            self._waiting.append(trial)
