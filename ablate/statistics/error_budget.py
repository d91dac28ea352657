"""The error budget of a store: verdicts that stand beside those of all other studies.

The 5 % of a study are its own. Of a hundred studies without effects, up to five are
expected to have a false verdict, and someone who runs a hundred studies sees these. The
error budget limits the share of studies with a false verdict *helps* or *hurts* to 5 %
of those that have such a verdict. Below, "verdict" means such a verdict.

It is LORD++ (Javanmard and Montanari 2018; Ramdas, Yang, Wainwright and Jordan 2017).
Studies are tested in the order of their last results. Each has a level, which depends
on earlier studies alone: verdicts that stand raise the next levels, and studies without
such verdicts lower them. A row stands if its p value, which is adjusted for all rows and
looks of its study, is at most the level of the study. The levels add up to
at most 5 % of the number of studies with a verdict that stands, so the expected number
of studies with a false one is at most 5 % of the expected number of studies with one
(or of one).

What would break it: studies that share trials of a row are not independent. Of two
studies with a common row 0, one false verdict makes another one more likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ablate.statistics import LEVEL

# The share of the budget that is spent before the first verdict that stands.
FIRST_WEALTH = LEVEL / 2
# Riemann's zeta of 3/2: the weights below add up to 1. Any such sequence that falls
# keeps the promise. This one has more for the first thousand studies than that of
# Javanmard and Montanari, which is made for millions of tests.
ZETA = 2.6123753486854883


@cache
def weight(lag: int) -> float:
    """Returns the share of a wealth that is spent so many studies later, from 1."""
    return float(lag**-1.5) / ZETA


@dataclass(frozen=True)
class StudyTest:
    """A study as a member of the sequence.

    Attributes:
        p_values: the adjusted p value of each row with a test, by row or term.
    """

    name: str
    p_values: dict[str, float]

    @property
    def p(self) -> float:
        """The smallest p value; 1 if the study has no test."""
        return min(self.p_values.values(), default=1.0)


@dataclass(frozen=True)
class BudgetLine:
    """A study with the level at which its verdicts stand."""

    test: StudyTest
    level: float

    @property
    def standing(self) -> tuple[str, ...]:
        """The rows whose verdicts stand."""
        return tuple(name for name, p in self.test.p_values.items() if p <= self.level)

    @property
    def own(self) -> tuple[str, ...]:
        """The rows that help or hurt by the study alone."""
        return tuple(name for name, p in self.test.p_values.items() if p < LEVEL)


@dataclass(frozen=True)
class ErrorBudget:
    """All studies in their order, and the level of the next one."""

    lines: tuple[BudgetLine, ...]
    next_level: float


def error_budget(tests: Sequence[StudyTest]) -> ErrorBudget:
    """Returns the levels of studies.

    Args:
        tests: in the order of their last results.
    """
    # The places of studies with verdicts that stand, from 1.
    discoveries: list[int] = []
    lines = []
    for number, test in enumerate(tests, 1):
        line = BudgetLine(test=test, level=_level(number, discoveries))
        if line.standing:
            discoveries.append(number)
        lines.append(line)
    return ErrorBudget(
        lines=tuple(lines), next_level=_level(len(tests) + 1, discoveries)
    )


def _level(test: int, discoveries: Sequence[int]) -> float:
    """Returns the level of a study.

    Args:
        test: its number in the sequence, from 1.
        discoveries: the numbers of earlier studies with verdicts that stand.
    """
    level = FIRST_WEALTH * weight(test)
    for number, earlier in enumerate(discoveries):
        earned = LEVEL if number else LEVEL - FIRST_WEALTH
        level += earned * weight(test - earlier)
    return level
