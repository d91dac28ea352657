"""The declarations of a study, as far as verdicts depend on them.

A verdict at 5 % holds for a comparison that was declared before its results. A study
may be declared again: with more seeds, with other rows, by another metric. So its
history is divided into phases, and the 5 % are shared among them. The first phase gets
90 % of them; the others share the rest, each with less than the one before. With final
seeds (`seeds: {final: 3}`) the first phase gets all of them, and the others nothing.
The shares of all phases add up to at most 1, whatever their number, so that no sequence
of declarations gives more than 5 % false verdicts.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime

from ablate.records.sections import Looks, Primary

# The share of the first phase in the 5 %. Chosen by power (docs/statistics.md).
FIRST_PHASE = 0.9


@dataclass(frozen=True)
class Phase:
    """A time in which a study was declared in one way.

    It ends when the study is declared differently after its rows could be compared.
    """

    # The numbers of seeds at which verdicts are taken, if seeds are being added.
    looks: Looks | None = None
    # The least margin that was declared so far.
    margin: float = math.inf
    # The comparisons that are tested one after the other, each at the full level.
    primary: tuple[Primary, ...] = ()
    # The rows that could be compared when this or an earlier phase ended. They count
    # in later phases even if those leave them out.
    rows: int = 0
    # Whether all of its trials had ended when it ended.
    finished: bool = True
    # The declared seeds.
    seeds: tuple[int, ...] = ()
    # Whether the first phase was declared as the only one.
    final: bool = False


@dataclass(frozen=True)
class History:
    """The phases of a study. By default there is one, which began before any result."""

    phases: tuple[Phase, ...] = (Phase(),)
    # When each phase began, in UTC.
    begins: tuple[datetime, ...] = (datetime.min,)
    # What changed after results were known, so that they give no verdict any more: the
    # metric, the baseline, or seeds that were left out. Empty: nothing.
    changed: str = ""
    # The phase from which on the results of row 0 may be the reason for it or its seeds:
    # it was a variant of another study before, or it lacks seeds that were known.
    chosen_from: int | None = None
    # Whether rows beside row 0 had results when the study was declared first. They may
    # be the reason for its rows, so final seeds do not get the whole 5 %.
    had_results: bool = False

    @property
    def last(self) -> int:
        """The number of the present phase, from 0."""
        return len(self.phases) - 1

    @property
    def primary(self) -> tuple[Primary, ...]:
        """The primary comparisons of the present phase."""
        return self.phases[-1].primary

    @property
    def final(self) -> bool:
        """Whether only the first phase has verdicts, at the whole 5 %."""
        return self.phases[0].final and not self.had_results

    @property
    def share(self) -> float:
        """The share of the present phase in the 5 %."""
        return share_of_phase(self.last, final=self.final)

    def phase_of(self, ended_at: datetime | None) -> int:
        """Returns the phase in which a trial ended; -1 if it ended before all of them.

        Args:
            ended_at: in UTC; None counts as now.
        """
        if ended_at is None:
            return self.last
        return bisect_right(self.begins, ended_at) - 1

    def margin(self, declared: float) -> float:
        """Returns the margin of the verdicts: wider ones came after results."""
        return min(declared, self.phases[-1].margin)


def share_of_phase(number: int, *, final: bool = False) -> float:
    """Returns the share of a phase in the 5 %.

    It is 0.9 for the first one. The others have 0.1 / (k (k + 1)), k = 1, 2, ...: 0.05,
    0.017, 0.008, and so on, which add up to 0.1.

    Args:
        number: the number of the phase, from 0.
        final: whether the first phase was declared as the only one. It has the whole
            5 %, and the others have nothing.
    """
    if final:
        return 1.0 if number == 0 else 0.0
    if number == 0:
        return FIRST_PHASE
    return (1 - FIRST_PHASE) / (number * (number + 1))
