"""Means, spreads and texts of numbers of any size.

A metric may be as large as the largest float: some tools store infinity so. Its square
has no float, and as a decimal number it has 309 digits.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ablate.records import LEVEL

# Beyond this, squares are at the edge of what a float can hold.
LARGE = 1e140
# The largest number in a figure.
DRAWN = 1e100
# Numbers from this size on are written with an exponent.
LONG = 1e10


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


def drawable(values: Sequence[Any]) -> list[Any]:
    """Returns values with nan in the place of numbers that no axis can show."""
    return [
        math.nan if isinstance(value, float) and abs(value) > DRAWN else value
        for value in values
    ]


def fixed(value: float, digits: int, *, signed: bool = False) -> str:
    """Returns a number with so many decimals; a long one as 1.79769e+308."""
    sign = "+" if signed else ""
    if abs(value) >= LONG:
        return f"{value:{sign}.6g}"
    return f"{value:{sign}.{digits}f}"


def p_text(value: float | None) -> str:
    """Returns a p value for a table; empty if there is none."""
    if value is None:
        return ""
    if value < 0.001:
        return "< 0.001"
    text = f"{value:.3f}"
    # A value that is just below the limit must not look as if it was the limit.
    return f"{value:.4f}" if value < LEVEL and float(text) == LEVEL else text
