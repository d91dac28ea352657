"""From an estimate and its error to what may be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

# Probability of a false `helps` or `hurts`, and of a false `no difference`, in a whole
# family of verdicts.
LEVEL = 0.05


class Verdict(StrEnum):
    """What may be said of an effect."""

    HELPS = "helps"
    HURTS = "hurts"
    SAME = "no difference"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Estimate:
    """A difference of means: value, 95 % confidence interval, standard error, degrees
    of freedom, two-sided p value.
    """

    value: float
    low: float
    high: float
    error: float
    freedom: float
    p: float

    @classmethod
    def of(cls, value: float, error: float, freedom: float) -> Estimate:
        """By Student's t."""
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
        """p value of a true difference of at least the margin (the larger of two
        one-sided tests; Schuirmann 1987).
        """
        return float(
            special.stdtr(self.freedom, (abs(self.value) - margin) / self.error)
        )


@dataclass(frozen=True)
class Judged:
    """An estimate among others: its p values adjusted by Holm, and the verdict.

    `level` is the one that it was held against.
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
    """The verdicts of a family.

    `helps` and `hurts` mean that the adjusted p value is below 5 %, whatever the size;
    `no difference` that it is not, and that a difference of `margin` or more is ruled
    out at 5 %; else nothing can be said yet.

    Args:
        margin: the least difference that counts as one.
        direction: `max` or `min`: where the metric is better.
        looks: how often verdicts are taken until one is found: the 5 % are shared
            evenly (Bonferroni).
        family: number of all comparisons, those among them that have no estimate yet;
            by default there are none.
    """
    if not estimates:
        return []
    share = LEVEL / looks
    raw = [estimate.p for estimate in estimates]
    count = len(raw) if family is None else family
    differs = holm(raw, count)
    same = holm([estimate.p_same(margin) for estimate in estimates], count)
    ranks = np.searchsorted(np.sort(raw), raw)
    found = []
    for estimate, p, p_same, rank in zip(estimates, differs, same, ranks, strict=True):
        if p < share:
            if (estimate.value > 0) == (direction == "max"):
                verdict = Verdict.HELPS
            else:
                verdict = Verdict.HURTS
        else:
            verdict = Verdict.SAME if p_same < share else Verdict.INCONCLUSIVE
        found.append(
            Judged(
                p=p, p_same=p_same, verdict=verdict, level=share / (count - int(rank))
            )
        )
    return found


def holm(raw: Sequence[float], family: int) -> list[float]:
    """p values adjusted for all of a family (Holm 1979).

    As statsmodels' `multipletests`, which collects garbage at each call: 70 ms.
    """
    order = np.argsort(raw, kind="stable")
    left = family - np.arange(len(raw))
    adjusted = np.empty(len(raw))
    adjusted[order] = np.minimum(
        np.maximum.accumulate(np.asarray(raw)[order] * left), 1.0
    )
    return [float(p) for p in adjusted]
