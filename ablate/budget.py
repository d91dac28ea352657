"""How much a study may train, over all of its runs.

What it guarantees: a run hands out no trial that is beyond the budget, and stops when
the hours are used. What earlier runs of the study have used is read from
the store, so a kill gives nothing back.

How: a meter starts with what the store knows, and counts every event after that.

What would break it: counting an epoch twice that is reported again after a fault; the
meter therefore counts epochs by their trial and number.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from ablate.errors import AblateError
from ablate.records import Event, Progressed
from ablate.text.advice import option

SECONDS_PER_HOUR = 3600.0


# What a budget can limit.
LIMITS = ("trials", "hours")


@dataclass(frozen=True)
class Used:
    """What a study has used so far.

    Attributes:
        trials: hashes of the trials that its runs have begun.
        seconds: training and testing of these trials, added up.
    """

    trials: Collection[str] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Budget:
    """The most that all runs of a study may use together.

    Attributes:
        trials: trials that are begun. Known results cost nothing.
        hours: hours of training and testing, added up over trials: two trials side by
            side use two hours in one.

    Raises:
        AblateError: a limit is not positive, or not finite.
    """

    trials: int | None = None
    hours: float | None = None

    def __post_init__(self) -> None:
        for name in LIMITS:
            limit = getattr(self, name)
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                raise AblateError(
                    f"{option(f'max_{name}')} {limit} allows nothing; give a number"
                    " above 0"
                )

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return any(getattr(self, name) is not None for name in LIMITS)


UNLIMITED = Budget()


@dataclass
class BudgetMeter:
    """Counts what a run uses, and says when the budget is used up.

    Args:
        budget: the limits.
        before: what earlier runs have used.
    """

    budget: Budget = UNLIMITED
    before: Used = field(default_factory=Used)
    _begun: set[str] = field(init=False)
    _seconds: float = field(init=False)
    # Seconds by trial and number of the epoch.
    _epochs: dict[tuple[str, int], float] = field(default_factory=dict)
    _refused: bool = False

    def __post_init__(self) -> None:
        self._begun = set(self.before.trials)
        self._seconds = self.before.seconds

    def admits(self, trial: str) -> bool:
        """Whether a trial may begin or go on.

        Args:
            trial: its hash.
        """
        if self.must_stop:
            return False
        limit = self.budget.trials
        if trial not in self._begun and limit is not None and len(self._begun) >= limit:
            self._refused = True
            return False
        return True

    def begin(self, trial: str) -> None:
        """Counts a trial, unless a run of the study has begun it before."""
        self._begun.add(trial)

    def count(self, event: Event) -> None:
        """Adds the epochs of an event."""
        if not isinstance(event, Progressed) or not self.budget.is_limited:
            return
        for epoch in event.epochs:
            key = event.trial, epoch.number
            self._seconds += epoch.seconds - self._epochs.get(key, 0.0)
            self._epochs[key] = epoch.seconds

    @property
    def hours(self) -> float:
        """The hours that all runs have used."""
        return self._seconds / SECONDS_PER_HOUR

    @property
    def must_stop(self) -> bool:
        """Whether the hours are used up."""
        return self.budget.hours is not None and self.hours >= self.budget.hours

    @property
    def exhausted(self) -> str:
        """The limit that was reached, as `--max-trials 20`; empty if none was."""
        if self.must_stop:
            return f"{option('max_hours')} {self.budget.hours:g}"
        if self._refused:
            return f"{option('max_trials')} {self.budget.trials}"
        return ""
