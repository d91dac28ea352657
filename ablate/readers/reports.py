"""The reports of a script, and the numbers in them."""

from __future__ import annotations

from dataclasses import dataclass


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
    try:
        return float(text.strip().rstrip("%").replace(",", ""))
    except ValueError:
        return None
