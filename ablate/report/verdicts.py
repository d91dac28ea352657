"""Turns an estimate and its error into a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from ablate.records import LEVEL
from ablate.statistics import student
from ablate.statistics.verdicts import holm


class Verdict(StrEnum):
    """What can be said of an effect."""

    HELPS = "helps"
    HURTS = "hurts"
    SAME = "no difference"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Estimate:
    """A difference of means.

    It has the value, confidence interval, standard error, degrees of freedom and
    two-sided p value. The interval of an estimate in a family is as wide as the family
    and the level of its study demand.
    """

    value: float
    low: float
    high: float
    error: float
    freedom: float
    p: float

    @classmethod
    def of(cls, value: float, error: float, freedom: float) -> Estimate:
        """Returns the estimate by Student's t."""
        half = float(student.quantile(freedom, 1 - LEVEL / 2)) * error
        return cls(
            value,
            value - half,
            value + half,
            error,
            freedom,
            float(2 * student.probability(freedom, -abs(value) / error)),
        )

    def at(self, level: float) -> Estimate:
        """Returns the estimate with the interval of Student's t at 1 minus this level."""
        half = float(student.quantile(self.freedom, 1 - level / 2)) * self.error
        return replace(self, low=self.value - half, high=self.value + half)

    def p_same(self, margin: float) -> float:
        """Returns the p value against a true difference of at least the margin.

        It is the larger of two one-sided tests (Schuirmann 1987).
        """
        return float(
            student.probability(self.freedom, (abs(self.value) - margin) / self.error)
        )


class Withheld(StrEnum):
    """Why there is no verdict, although there is an estimate."""

    UNFINISHED = "trials unfinished"
    KNOWN = "exploratory"
    PARTIAL = "seeds left out"
    NOT_TESTED = "not tested"
    NOT_BETTER = "not better"
    DIVERGED = "seeds diverged"
    PRUNED = "seeds pruned"
    ABANDONED = "trials abandoned"
    FAILED = "trials failed"
    NOT_CONFIRMED = "not confirmed"
    BUDGET = "beyond the error budget"
    ACROSS = "judged across sizes"


@dataclass(frozen=True)
class Judged:
    """An estimate as part of a family: adjusted p values, and the verdict.

    The p values are adjusted for all rows of the family, for all looks, and for the
    level of the look, so each is compared with 5 %.

    Attributes:
        level: the level that an unadjusted p value is compared with; 0 for a row that
            is in no family.
        withheld: why the verdict is `inconclusive` whatever the p values are.
    """

    p: float
    p_same: float
    verdict: Verdict
    level: float
    withheld: Withheld | None = None


def rescaled(p: float, level: float) -> float:
    """Returns a p value that is to be compared with 5 % instead of with this level."""
    if level == 0:
        return 1.0
    return min(1.0, p * LEVEL / level)


def verdict_of(
    value: float, direction: str, p: float, p_same: float, level: float
) -> Verdict:
    """Returns the verdict on a difference, from its adjusted p values.

    `helps` and `hurts` mean that p is below the level, whatever the size of the effect.
    `no difference` means that it is not, and that a difference of the margin or more is
    ruled out at the same level. Otherwise the verdict is `inconclusive`.

    Args:
        direction: `max` or `min`: which values of the metric are better.
    """
    if p < level:
        if (value > 0) == (direction == "max"):
            return Verdict.HELPS
        return Verdict.HURTS
    if p_same < level:
        return Verdict.SAME
    return Verdict.INCONCLUSIVE


def verdicts_by_holm(
    estimates: Sequence[Estimate],
    margin: float,
    direction: str,
    level: float = LEVEL,
    family: int | None = None,
) -> list[Judged]:
    """Returns the verdicts of a family of t tests, adjusted by Holm.

    Args:
        margin: the least difference that matters.
        direction: `max` or `min`: which values of the metric are better.
        level: the probability of any false verdict of one kind. The p values are
            returned for a comparison with 5 %. With level 0 there is no verdict.
        family: the number of all comparisons, including those without an estimate so
            far; by default all have one.
    """
    if not estimates:
        return []
    raw = [estimate.p for estimate in estimates]
    count = len(raw) if family is None else family
    differs = holm(raw, count)
    same = holm([estimate.p_same(margin) for estimate in estimates], count)
    # Holm compares the smallest p value with level / count, the next one with level /
    # (count - 1), and so on.
    ranks = np.searchsorted(np.sort(raw), raw)
    return [
        Judged(
            p=rescaled(p, level),
            p_same=rescaled(p_same, level),
            verdict=verdict_of(estimate.value, direction, p, p_same, level),
            level=level / (count - int(rank)),
        )
        for estimate, p, p_same, rank in zip(
            estimates, differs, same, ranks, strict=True
        )
    ]
