"""What a comparison may spend of the probability of a false verdict.

Seeds and rows may be added at any time. So the level grows with the number of seeds
(Lan and DeMets, Biometrika 70, 1983), and rows that come later have shares of it that
fall. The shares add up to more than 1: under most noises a family uses less than its
share, and a single row can be the noisy one (`noise.null_of`). `make trust` holds the
sum against studies without effects.
"""

from __future__ import annotations

# The most that all looks together may spend, and what part of it one seed leaves out.
MOST = 0.047
FEW = 0.85
# The share of the rows that come first, all together.
FIRST = 0.85
# The share of all rows that come later, and how fast those of the next ones fall.
LATER, FALL = 0.30, 1.3
# Riemann's zeta of `FALL`: the weights below add up to 1.
ZETA = 3.93195
# The share of a later row under the noises in which it is the noisy one.
LATER_CAP = 0.4
# The same of a row that is compared with the best row so far.
PROPOSAL_CAP = 0.78


def spent(seeds: float) -> float:
    """Returns the probability of a false verdict up to so many seeds."""
    return MOST * (1 - FEW / seeds)


def seeds_of(row: int, baseline: int) -> float:
    """Returns the number of seeds of a comparison: the harmonic mean of both."""
    return 2 / (1 / row + 1 / baseline)


def later(place: int) -> float:
    """Returns the share of a row that comes later, by its place, from 1.

    A row that is decided gives its place to the next new row.
    """
    return float(LATER / ZETA * place**-FALL)


def proposal(place: int) -> float:
    """Returns the share of a row that is compared with the best row so far.

    It can only help, so half of the share is used. A row that helps gives its place on.
    """
    return 1.0 if place == 1 else 1 / (place * (place - 1))
