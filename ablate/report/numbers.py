"""Texts of numbers of any size.

A metric may be as large as the largest float: some tools store infinity so. As a decimal
number it has 309 digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ablate.records import LEVEL

# The largest number in a figure.
DRAWN = 1e100
# Numbers from this size on are written with an exponent.
LONG = 1e10


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
