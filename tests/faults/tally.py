"""What a run of faults did and found, and whether it hit each place often enough."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.faults.fault import is_sigkill
from tests.faults.phases import PLACES, Place
from tests.faults.stores import Kind

# From so many faults on, each place must be hit `LEAST` times.
FULL = 300
LEAST = 20


@dataclass
class Tally:
    """What was done and what was found.

    The counters by row of the table hold a study's findings for each row that the study
    was hit by.

    Attributes:
        aimed: SIGKILLs by the place that they were aimed at.
        landed: SIGKILLs by the place in which they landed, and by row.
        stores: studies, faults, SIGKILLs and findings by kind of store.
    """

    tried: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    doubled: Counter[str] = field(default_factory=Counter)
    differing: Counter[str] = field(default_factory=Counter)
    epochs: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    aimed: Counter[str] = field(default_factory=Counter)
    landed: Counter[tuple[str, str]] = field(default_factory=Counter)
    stores: Counter[tuple[Kind, str]] = field(default_factory=Counter)
    studies: int = 0
    runs: int = 0
    diverged: int = 0
    outlived: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def sigkills(self) -> int:
        return sum(count for row, count in self.tried.items() if is_sigkill(row))

    def landed_in(self, place: str) -> int:
        """SIGKILLs that landed in a place."""
        return sum(count for (where, _), count in self.landed.items() if where == place)


def shortfalls(tally: Tally, count: int) -> list[str]:
    """Places that a run of so many faults hit too rarely, in words."""
    if count < FULL:
        return []
    rare = [place for place in Place if tally.landed_in(place) < LEAST]
    return [
        f"{tally.landed_in(place)} SIGKILLs landed {place}; {LEAST} must"
        for place in rare
    ]


def summary(tally: Tally) -> str:
    """What a run came to, in a few lines."""
    each = tally.seconds / max(1, tally.tried.total())
    places = "".join(f"\n  {place}: {tally.landed_in(place)}" for place in PLACES)
    return (
        f"{tally.tried.total()} faults, {tally.sigkills} of them SIGKILLs, in"
        f" {tally.runs} runs of {tally.studies} studies: {len(tally.problems)}"
        f" problems, {each:.1f} s a fault\nSIGKILLs landed{places}"
    )
