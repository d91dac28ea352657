"""Estimates how many further seeds give an even chance of a conclusive verdict."""

from __future__ import annotations

from typing import Any

import numpy as np

from ablate.report import student
from ablate.report.noise import ALONE_GAIN, Family
from ablate.report.numbers import scale_of

# The largest number of further seeds that is worth suggesting.
MOST = 200
DRAWS = 1000

Array = np.ndarray[Any, Any]


def seeds_needed(family: Family, row: int, margin: float, level: float) -> int:
    """Returns the least number of further seeds that is enough.

    Enough is an even chance of a conclusive verdict. Returns one more than `MOST` if
    that many are not enough.
    """
    enough = np.flatnonzero(chances(family, row, margin, level) >= 0.5)
    if len(enough):
        return int(enough[0]) + 1
    return MOST + 1


def chances(family: Family, row: int, margin: float, level: float) -> Array:
    """Returns the probability of a verdict after 1 to `MOST` further seeds.

    It simulates possible outcomes. Each draws a mean and a variance from their
    posterior given the seeds so far, under the usual flat prior (Student's t and scaled
    inverse chi-squared; Gelman et al., Bayesian Data Analysis, 3.2), and then further
    differences. Each outcome is tested as the study will be: whether the mean differs
    from 0 or stays within the margin. Equal arguments give equal numbers.
    """
    n = family.counts[row]
    scale = scale_of([family.found.mean[row], family.found.error[row]])
    margin = margin / scale
    mean = float(family.found.mean[row]) / scale
    known_variance = n * (float(family.found.error[row]) / scale) ** 2
    freedom = family.freedom(row)
    generator = np.random.default_rng(0)
    variance = known_variance * freedom / generator.chisquare(freedom, DRAWS)
    centre = generator.normal(mean, np.sqrt(variance / n))
    future = generator.normal(
        centre[:, None], np.sqrt(variance)[:, None], (DRAWS, MOST)
    )
    size = n + np.arange(1, MOST + 1)
    # Centred on the known mean, so that a small spread is not lost to rounding.
    means = np.cumsum(future - mean, axis=1) / size
    # The degrees of freedom grow with the seeds.
    more = freedom * (size - n) / (n - 1)
    squares = known_variance * freedom + variance[:, None] * generator.chisquare(
        more, (DRAWS, MOST)
    )
    errors = np.sqrt(squares / (freedom + more) / size)
    distance = np.abs(means + mean)
    differs, same = _critical(family, row, level, size)
    seeds: Array = (
        (distance / errors > differs) | ((margin - distance) / errors > same)
    ).mean(axis=0)
    return seeds


def _critical(
    family: Family, row: int, level: float, size: Array
) -> tuple[Array, Array]:
    """Returns the scores that will give a verdict, two-sided and one-sided.

    With more seeds, the level of a single comparison rises from that of the simulation
    at the present number of seeds towards that of Bonferroni, about as 1 / (n - 1).
    """
    n = family.counts[row]
    now = family.level_of_one(level)
    last = max(now, level / family.planned)
    each = last - (last - now) * (n - 1) / (size - 1)
    freedom = size - 1
    if family.found.alone[row] and len(family.counts) > 1:
        each = each * ALONE_GAIN
    else:
        freedom = freedom * len(family.counts)
    return student.quantile(freedom, 1 - each / 2), student.quantile(freedom, 1 - each)
