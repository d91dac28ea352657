"""Turns an estimate and its error into a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

# The probability of any false `helps` or `hurts`, and of any false `no difference`, in
# a family of verdicts.
LEVEL = 0.05


class Verdict(StrEnum):
    """What can be said of an effect."""

    HELPS = "helps"
    HURTS = "hurts"
    SAME = "no difference"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Estimate:
    """A difference of means.

    It has the value, 95 % confidence interval, standard error, degrees of freedom and
    two-sided p value.
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
        half = float(special.stdtrit(freedom, 1 - LEVEL / 2)) * error
        return cls(
            value,
            value - half,
            value + half,
            error,
            freedom,
            float(2 * special.stdtr(freedom, -abs(value) / error)),
        )

    def p_same(self, margin: float) -> float:
        """Returns the p value against a true difference of at least the margin.

        It is the larger of two one-sided tests (Schuirmann 1987).
        """
        return float(
            special.stdtr(self.freedom, (abs(self.value) - margin) / self.error)
        )


@dataclass(frozen=True)
class Judged:
    """An estimate as part of a family: p values adjusted by Holm, and the verdict.

    `level` is the level that its unadjusted p value was compared with.
    """

    p: float
    p_same: float
    verdict: Verdict
    level: float


def judge(
    estimates: Sequence[Estimate],
    margin: float,
    direction: str,
    looks: int = 1,
    family: int | None = None,
) -> list[Judged]:
    """Returns the verdicts of a family.

    `helps` and `hurts` mean that the adjusted p value is below 5 % (with several looks:
    5 % divided by their number), whatever the size of the effect. `no difference` means
    that the adjusted p value is not below this level, and that a difference of `margin`
    or more is ruled out at the same level. Otherwise the verdict is `inconclusive`.

    Args:
        margin: the least difference that matters.
        direction: `max` or `min`: which values of the metric are better.
        looks: the number of times that verdicts are taken until one is found. The 5 %
            are shared evenly among them (Bonferroni).
        family: the number of all comparisons, including those without an estimate so
            far; by default all have one.
    """
    if not estimates:
        return []
    share = LEVEL / looks
    raw = [estimate.p for estimate in estimates]
    count = len(raw) if family is None else family
    differs = holm(raw, count)
    same = holm([estimate.p_same(margin) for estimate in estimates], count)
    # Holm compares the smallest p value with share / count, the next one with share /
    # (count - 1), and so on.
    ranks = np.searchsorted(np.sort(raw), raw)
    judged = []
    for estimate, p, p_same, rank in zip(estimates, differs, same, ranks, strict=True):
        if p < share:
            if (estimate.value > 0) == (direction == "max"):
                verdict = Verdict.HELPS
            else:
                verdict = Verdict.HURTS
        else:
            verdict = Verdict.SAME if p_same < share else Verdict.INCONCLUSIVE
        judged.append(
            Judged(
                p=p, p_same=p_same, verdict=verdict, level=share / (count - int(rank))
            )
        )
    return judged


def holm(raw: Sequence[float], family: int) -> list[float]:
    """Returns p values adjusted for a family (Holm 1979).

    The result equals that of statsmodels' `multipletests`, which runs the garbage
    collector at each call and so takes 70 ms.
    """
    order = np.argsort(raw, kind="stable")
    left = family - np.arange(len(raw))
    adjusted = np.empty(len(raw))
    adjusted[order] = np.minimum(
        np.maximum.accumulate(np.asarray(raw)[order] * left), 1.0
    )
    return [float(p) for p in adjusted]
