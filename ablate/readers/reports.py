"""The reports of a script, and the numbers in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Commas between groups of three digits; another one may be a decimal comma.
THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?")


@dataclass(frozen=True)
class Report:
    """The metrics of one epoch.

    Attributes:
        epoch: counted from 1; None: the next one.
        metrics: numbers by name.
    """

    epoch: int | None
    metrics: dict[str, float]


def number_in(text: str) -> float | None:
    """The number that a text is; None if it is none."""
    text = text.strip().rstrip("%")
    if THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None
