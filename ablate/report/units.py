"""Formats counts of parameters and operations, and file sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ablate.records import Cost


@dataclass(frozen=True)
class Unit:
    """A power of a thousand and its letter.

    One unit is used for a whole column, so that its rows can be compared.
    """

    size: float
    letter: str

    def text(self, value: float, *, signed: bool = False) -> str:
        """Returns the value in this unit, with three decimals."""
        return f"{value / self.size:{'+' if signed else ''}.3f}"


def unit_for(values: Iterable[float]) -> Unit:
    """Returns the unit for a column, chosen by its largest value.

    It is the largest unit in which that value is at least 0.1.
    """
    largest = max(values, default=0)
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if largest >= size / 10:
            return Unit(size, letter)
    return Unit(1e3, "K")


def cost_units(costs: Iterable[Cost | None], names: Iterable[str]) -> dict[str, Unit]:
    """Returns a unit for each cost, over the rows of a table.

    A cost that was counted in no row is left out.
    """
    counted = [cost for cost in costs if cost is not None]
    units = {}
    for name in names:
        values = [getattr(cost, name) for cost in counted]
        if any(values) or not values:
            units[name] = unit_for(values)
    return units


def cost_text(cost: Cost | None, name: str, unit: Unit) -> str:
    """Returns a cost as a table shows it; empty if it was not counted."""
    value = getattr(cost, name) if cost is not None else 0
    return unit.text(value) if value else ""


def size_text(size: float) -> str:
    """Returns a number of bytes in the unit in which it is below 1000."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000:
            if unit == "bytes":
                return f"{size:.0f} {unit}"
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
