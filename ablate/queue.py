"""What is to be trained next: trials of a plan or of a search, each leased before it is handed out as a job."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, Protocol

from ablate.records import Cell, Job, Trial

if TYPE_CHECKING:
    from ablate.plan.search import Search

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
        proposed: is given each new cell, and each one that gets another seed, before its trials are.
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


def jobs(source: Source, claim: Claim, make: Callable[[Trial], Job]) -> Iterator[Job | None]:
    """One job after another, as an order takes them: None where others have what is left, or where a search waits for results.

    It ends when each trial has a result, whoever trained it. A trial whose other driver is lost is handed out in the end.
    """
    waiting: deque[Trial] = deque()
    while True:
        waiting.extend(source.wanted())
        granted = None
        for _ in range(len(waiting)):
            trial = waiting.popleft()
            answer = claim(trial.hash)
            if answer == "granted":
                granted = trial
                break
            if answer == "taken":
                waiting.append(trial)
        if granted is not None:
            yield make(granted)
        elif not waiting and source.finished:
            return
        else:
            yield None
