"""Estimates how many further seeds give an even chance of a verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

# The largest number of further seeds that is worth suggesting.
MOST = 200
DRAWS = 1000


def seeds_needed(n: int, mean: float, sd: float, margin: float, level: float) -> int:
    """Returns the least number of further seeds that gives an even chance of a verdict.

    Returns one more than `MOST` if that many are not enough.
    """
    enough = np.flatnonzero(chances(n, mean, sd, margin, level) >= 0.5)
    if len(enough):
        return int(enough[0]) + 1
    return MOST + 1


def chances(
    n: int, mean: float, sd: float, margin: float, level: float
) -> np.ndarray[Any, Any]:
    """Returns the probability of a verdict after 1 to `MOST` further seeds.

    It simulates possible outcomes. Each draws a mean and a variance from their
    posterior given n differences, under the usual flat prior (Student's t and scaled
    inverse chi-squared; Gelman et al., Bayesian Data Analysis, 3.2), and then further
    differences. Each outcome is tested at `level`, as the study will be: whether the
    mean differs from 0 or stays within the margin. Equal arguments give equal numbers.
    """
    generator = np.random.default_rng(0)
    variance = sd**2 * (n - 1) / generator.chisquare(n - 1, DRAWS)
    centre = generator.normal(mean, np.sqrt(variance / n))
    future = generator.normal(
        centre[:, None], np.sqrt(variance)[:, None], (DRAWS, MOST)
    )
    size = n + np.arange(1, MOST + 1)
    # Centred on the known mean, so that a small spread is not lost to rounding.
    shifted = future - mean
    means = np.cumsum(shifted, axis=1) / size
    squares = (n - 1) * sd**2 + np.cumsum(shifted**2, axis=1) - size * means**2
    errors = np.sqrt(np.maximum(squares, 1e-300) / (size - 1) / size)
    distance = np.abs(means + mean)
    differs = distance / errors > special.stdtrit(size - 1, 1 - level / 2)
    same = (margin - distance) / errors > special.stdtrit(size - 1, 1 - level)
    found: np.ndarray[Any, Any] = (differs | same).mean(axis=0)
    return found
