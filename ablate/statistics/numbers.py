"""Means and spreads of numbers of any size.

A metric may be as large as the largest float: some tools store infinity so. Its square
has no float.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable

# Beyond this, squares are at the edge of what a float can hold.
LARGE = 1e140


def scale_of(values: Iterable[float]) -> float:
    """Returns what to divide values by, so that squares of them can be computed."""
    largest = max((abs(value) for value in values), default=0.0)
    if LARGE < largest < math.inf:
        return largest
    return 1.0


def mean_of(values: Iterable[float]) -> float:
    """Returns the mean of values of any size."""
    values = list(values)
    scale = scale_of(values)
    return scale * statistics.fmean(value / scale for value in values)


def sd_of(values: Collection[float]) -> float:
    """Returns the standard deviation of two or more values of any size, with n - 1."""
    if not all(map(math.isfinite, values)):
        return math.inf
    scale = scale_of(values)
    if scale == 1.0:
        return statistics.stdev(values)
    return scale * statistics.stdev(value / scale for value in values)
