"""The evidence for one proposal of a chain, and what it takes to keep it.

Under the null hypothesis, exchanging proposal and baseline at any seed changes nothing,
so the sign of each difference is a fair coin, whatever its size. A bet on the sign, made
before the difference is known, therefore multiplies the stake by a factor of mean 1, and
the product over seeds is an e-process: it may be looked at after each seed (Ville's
inequality). The factor is that of the symmetrised normal distribution with a mean of
`BET` standard deviations (Efron, 1969; Ramdas et al., Game-Theoretic Statistics, 2023).

A proposal is kept when its evidence reaches 1 / (level x share x (kept before + 1)):
e-LOND, which bounds the false discovery rate under any dependence (Xu and Ramdas, Online
Multiple Testing with E-values, 2024). The shares of all proposals add up to 1 at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ablate.records import MOST_SEEDS, Decision

# The mean share of kept proposals that are not better.
LEVEL = 0.05
# The difference that is bet on, in standard deviations of a difference.
BET = 2.0
# The share of the stake that is bet on a sign while no scale is known.
FIRST_STAKE = 0.5
# Less evidence than this ends a proposal.
GIVE_UP = 0.3
# A proposal ends after so many seeds if none of them differs at all.
SAME_SEEDS = 2
# Later proposals get smaller shares: 1 / ((t + 10) log(t + 10)^2), which add up to
# 0.42516.
OFFSET = 10
TOTAL = 0.4252


@dataclass(frozen=True)
class Evidence:
    """The evidence for a proposal, after its last seed or at its decision.

    Attributes:
        value: the stake after all bets; 1 before the first.
        needed: it is kept when the value reaches this.
        seeds: the number of seeds that were looked at.
    """

    value: float
    needed: float
    seeds: int
    decision: Decision
    reason: str = ""


def share_of(number: int) -> float:
    """Returns the share of the level that the proposal of this number gets, from 1."""
    place = number + OFFSET
    return 1 / (place * math.log(place) ** 2) / TOTAL


def needed(number: int, kept: int, level: float = LEVEL) -> float:
    """Returns the evidence at which a proposal is kept.

    Args:
        number: that of the proposal, from 1. Every proposal counts.
        kept: how many proposals before it were kept.
    """
    return 1 / (level * share_of(number) * (kept + 1))


def decide(
    differences: Sequence[float],
    earlier: Sequence[Sequence[float]],
    threshold: float,
    most: int = MOST_SEEDS,
) -> Evidence:
    """Returns the evidence of a proposal, seed by seed until a decision.

    Args:
        differences: proposal minus baseline at each seed, positive where the proposal is
            better; infinite where only one of them has a result.
        earlier: the differences of each proposal before, which say how noisy they are.
        threshold: see `needed`.
        most: the number of seeds after which a proposal is not continued.
    """
    squares, freedom = 0.0, 0
    for others in earlier:
        more, degrees = _spread(others)
        squares, freedom = squares + more, freedom + degrees
    value = 1.0
    for number, difference in enumerate(differences[:most], start=1):
        scale = _scale(differences[: number - 1], squares, freedom)
        value *= _factor(difference, scale)
        if value >= threshold:
            return Evidence(value, threshold, number, Decision.KEEP)
        if number == SAME_SEEDS and not any(differences[:number]):
            reason = f"{number} seeds gave exactly the same results"
            return Evidence(value, threshold, number, Decision.DISCARD, reason)
        if value < GIVE_UP:
            reason = "its seeds speak against it"
            return Evidence(value, threshold, number, Decision.DISCARD, reason)
        # Each further seed doubles the evidence at most.
        if value * 2.0 ** (most - number) < threshold:
            reason = f"{most} seeds could no longer show that it is better"
            return Evidence(value, threshold, number, Decision.DISCARD, reason)
    return Evidence(value, threshold, min(len(differences), most), Decision.MORE_SEEDS)


def _factor(difference: float, scale: float | None) -> float:
    """Returns by what a bet on a difference multiplies the stake: 0 to 2, mean 1."""
    if math.isnan(difference):
        return 1.0
    if scale is None or math.isinf(difference):
        stake = 1.0 if math.isinf(difference) else FIRST_STAKE
        return 1 + stake * _sign(difference)
    odds = 2 * BET * difference / scale
    # Without overflow on either side.
    return 2 / (1 + math.exp(-odds)) if odds > -700 else 0.0


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def _scale(before: Sequence[float], squares: float, freedom: int) -> float | None:
    """Returns the noise of a difference, from what is known before it.

    None: nothing is known.
    """
    more, degrees = _spread(before)
    if squares + more > 0:
        return math.sqrt((squares + more) / (freedom + degrees))
    finite = [value for value in before if math.isfinite(value) and value]
    if finite:
        return math.sqrt(sum(value * value for value in finite) / len(finite))
    return None


def _spread(differences: Sequence[float]) -> tuple[float, int]:
    """Returns the sum of squares around the mean, and its degrees of freedom."""
    finite = [value for value in differences if math.isfinite(value)]
    if len(finite) < 2:
        return 0.0, 0
    mean = sum(finite) / len(finite)
    return sum((value - mean) ** 2 for value in finite), len(finite) - 1
