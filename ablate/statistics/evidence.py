"""The evidence for one proposal of a chain, and what it takes to keep it.

Under the null hypothesis, exchanging proposal and baseline at any seed changes nothing,
so the sign of each difference is a fair coin, whatever its size. A bet on the sign, made
before the difference is known, therefore multiplies the stake by a factor of mean 1, and
the product over seeds is an e-process: it may be looked at after each seed (Ville's
inequality). The bet is that of a normal difference with a mean of `BET` standard
deviations: its odds are exp(2 x BET x difference / noise). They are capped, so that one
training that collapses does not end a good proposal (for bets on signs, see Efron, 1969,
and Ramdas et al., Game-Theoretic Statistics, 2023).

A proposal is kept when its evidence reaches 1 / (level x share x (kept before + 1)):
e-LOND, which bounds the false discovery rate under any dependence (Xu and Ramdas, Online
Multiple Testing with E-values, 2024). The shares of all proposals add up to 1 at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from ablate.statistics import LEVEL

# Seeds after which a proposal is discarded, unless the chain says otherwise.
MOST_SEEDS = 20
# The difference that is bet on, in standard deviations of a difference.
BET = 2.0
# The largest logarithm of the odds of a bet.
MOST_ODDS = 3.0
# By what a seed multiplies the evidence at most.
MOST_FACTOR = 2 / (1 + math.exp(-MOST_ODDS))
# The standard deviation of normal noise, in medians of its absolute deviations.
NORMAL = 1.4826
# The share of the stake that is bet on a sign while no noise is known.
FIRST_STAKE = 0.5
# Less evidence than this ends a proposal.
GIVE_UP = 0.3
# A proposal ends after so many seeds if none of them differs at all.
SAME_SEEDS = 2
# Later proposals get smaller shares: 1 / ((t + 10) log(t + 10)^2), which add up to
# 0.42516.
OFFSET = 10
TOTAL = 0.4252


class Decision(StrEnum):
    """What becomes of a proposal; the first baseline of a chain is none."""

    BASELINE = "baseline"
    KEEP = "keep"
    DISCARD = "discard"
    MORE_SEEDS = "more seeds"


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
        level: bounds the mean share of kept proposals that are not better.
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
    known = [deviation for others in earlier for deviation in _deviations(others)]
    value = 1.0
    for number, difference in enumerate(differences[:most], start=1):
        value *= _factor(difference, _noise(differences[: number - 1], known))
        if value >= threshold:
            return Evidence(value, threshold, number, Decision.KEEP)
        if number == SAME_SEEDS and not any(differences[:number]):
            reason = f"{number} seeds gave exactly the same results"
            return Evidence(value, threshold, number, Decision.DISCARD, reason)
        if value < GIVE_UP:
            reason = "its seeds speak against it"
            return Evidence(value, threshold, number, Decision.DISCARD, reason)
        if value * MOST_FACTOR ** (most - number) < threshold:
            reason = f"{most} seeds could no longer show that it is better"
            return Evidence(value, threshold, number, Decision.DISCARD, reason)
    return Evidence(value, threshold, min(len(differences), most), Decision.MORE_SEEDS)


def _factor(difference: float, noise: float | None) -> float:
    """Returns by what a bet on a difference multiplies the stake, with a mean of 1."""
    if noise is None and math.isfinite(difference):
        return 1 + FIRST_STAKE * ((difference > 0) - (difference < 0))
    odds = 2 * BET * difference / (noise or 1.0)
    return 2 / (1 + math.exp(-max(-MOST_ODDS, min(MOST_ODDS, odds))))


def _noise(before: Sequence[float], known: Sequence[float]) -> float | None:
    """Returns the standard deviation of a difference, from what is known before it.

    It is estimated by the median, so that a training that collapses does not hide what
    the others show.

    Args:
        before: the differences of the proposal so far.
        known: the deviations of earlier proposals.

    Returns:
        None if nothing is known.
    """
    deviations = [*known, *_deviations(before)]
    if any(deviations):
        return median(deviations) * NORMAL or max(deviations)
    sizes = [abs(each) for each in before if math.isfinite(each) and each]
    return median(sizes) if sizes else None


def _deviations(differences: Sequence[float]) -> list[float]:
    """Returns the distances from the median, each with the noise of the median."""
    finite = [each for each in differences if math.isfinite(each)]
    if len(finite) < 2:
        return []
    middle = median(finite)
    factor = math.sqrt(len(finite) / (len(finite) - 1))
    return [factor * abs(each - middle) for each in finite]
