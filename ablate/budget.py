"""How much a study may train, over all of its runs.

What it guarantees: a run hands out no trial that is beyond the budget, and stops when
the hours or the energy are used. What earlier runs of the study have used is read from
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
LIMITS = ("trials", "hours", "joules", "price")


@dataclass(frozen=True)
class Used:
    """What a study has used so far.

    Attributes:
        trials: hashes of the trials that its runs have begun.
        seconds: training and testing of these trials, added up.
        joules: their energy, as far as it was measured.
    """

    trials: Collection[str] = ()
    seconds: float = 0.0
    joules: float = 0.0


@dataclass(frozen=True)
class Budget:
    """The most that all runs of a study may use together.

    Attributes:
        trials: trials that are begun. Known results cost nothing.
        hours: hours of training and testing, added up over trials: two trials side by
            side use two hours in one.
        joules: energy, where the device measures it.
        price: the price of all hours, in any currency. It needs `device_hour`.
        device_hour: the price of one GPU for an hour, or of one CPU core if trials use
            no GPU.

    Raises:
        AblateError: a limit is not positive, or not finite, or `price` and
            `device_hour` are not given together.
    """

    trials: int | None = None
    hours: float | None = None
    joules: float | None = None
    price: float | None = None
    device_hour: float | None = None

    def __post_init__(self) -> None:
        for name in LIMITS:
            limit = getattr(self, name)
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                raise AblateError(
                    f"{option(f'max_{name}')} {limit} allows nothing; give a number"
                    " above 0"
                )
        hourly = self.device_hour
        if hourly is not None and not (math.isfinite(hourly) and hourly > 0):
            raise AblateError(
                f"{option('device_hour')} {hourly} is no price; give a number above 0"
            )
        if (self.price is None) != (hourly is None):
            raise AblateError(
                f"{option('max_price')} and {option('device_hour')} belong together;"
                f" type both, as in {option('max_price')} 100 {option('device_hour')}"
                " 2.5"
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
        devices: how many GPUs a trial occupies, or CPU cores if it uses no GPU.
    """

    budget: Budget = UNLIMITED
    before: Used = field(default_factory=Used)
    devices: float = 1.0
    _begun: set[str] = field(init=False)
    _seconds: float = field(init=False)
    _joules: float = field(init=False)
    # Seconds and joules by trial and number of the epoch.
    _epochs: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    _refused: bool = False

    def __post_init__(self) -> None:
        self._begun = set(self.before.trials)
        self._seconds = self.before.seconds
        self._joules = self.before.joules

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
            before = self._epochs.get(key, (0.0, 0.0))
            after = epoch.seconds, epoch.joules or 0.0
            self._epochs[key] = after
            self._seconds += after[0] - before[0]
            self._joules += after[1] - before[1]

    @property
    def hours(self) -> float:
        """The hours that all runs have used."""
        return self._seconds / SECONDS_PER_HOUR

    @property
    def must_stop(self) -> bool:
        """Whether the hours, the energy or the price are used up."""
        return self._hours_are_used or self._joules_are_used or self._price_is_used

    @property
    def price(self) -> float:
        """The price of the hours that all runs have used."""
        return self.hours * self.devices * (self.budget.device_hour or 0.0)

    @property
    def _price_is_used(self) -> bool:
        return self.budget.price is not None and self.price >= self.budget.price

    @property
    def _hours_are_used(self) -> bool:
        return self.budget.hours is not None and self.hours >= self.budget.hours

    @property
    def _joules_are_used(self) -> bool:
        return self.budget.joules is not None and self._joules >= self.budget.joules

    @property
    def exhausted(self) -> str:
        """The limit that was reached, as `--max-trials 20`; empty if none was."""
        if self._hours_are_used:
            return f"{option('max_hours')} {self.budget.hours:g}"
        if self._joules_are_used:
            return f"{option('max_joules')} {self.budget.joules:g}"
        if self._price_is_used:
            return f"{option('max_price')} {self.budget.price:g}"
        if self._refused:
            return f"{option('max_trials')} {self.budget.trials}"
        return ""
