"""How many further seeds would decide an effect, as likely as not."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

# Beyond this number of seeds nobody is told to wait for a verdict.
MOST = 200
DRAWS = 1000


def further_seeds(n: int, mean: float, sd: float, margin: float, level: float) -> int:
    """The least number of further seeds with which a verdict comes out in half of all
    futures; one more than `MOST` beyond that.
    """
    enough = np.flatnonzero(chances(n, mean, sd, margin, level) >= 0.5)
    if len(enough):
        return int(enough[0]) + 1
    return MOST + 1


def chances(
    n: int, mean: float, sd: float, margin: float, level: float
) -> np.ndarray[Any, Any]:
    """The share of futures in which a verdict comes out, by the number of further seeds
    from 1 to `MOST`.

    A future is drawn from what n differences leave open: a mean and a variance from
    their posterior under the usual flat prior (Student's t and scaled inverse
    chi-squared; Gelman et al., Bayesian Data Analysis, 3.2), then further differences.
    In each it is tested, as it will be, whether the mean differs from 0 or stays within
    the margin, at `level`. Equal arguments give equal numbers.
    """
    generator = np.random.default_rng(0)
    variance = sd**2 * (n - 1) / generator.chisquare(n - 1, DRAWS)
    centre = generator.normal(mean, np.sqrt(variance / n))
    future = generator.normal(
        centre[:, None], np.sqrt(variance)[:, None], (DRAWS, MOST)
    )
    size = n + np.arange(1, MOST + 1)
    # Around the known mean, so that a small spread is not lost beside it.
    shifted = future - mean
    means = np.cumsum(shifted, axis=1) / size
    squares = (n - 1) * sd**2 + np.cumsum(shifted**2, axis=1) - size * means**2
    errors = np.sqrt(np.maximum(squares, 1e-300) / (size - 1) / size)
    distance = np.abs(means + mean)
    differs = distance / errors > special.stdtrit(size - 1, 1 - level / 2)
    same = (margin - distance) / errors > special.stdtrit(size - 1, 1 - level)
    found: np.ndarray[Any, Any] = (differs | same).mean(axis=0)
    return found
