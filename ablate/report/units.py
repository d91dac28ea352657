"""Counts of parameters and operations, and sizes of files, as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ablate.records import Cost


@dataclass(frozen=True)
class Unit:
    """A power of a thousand and its letter: one for a whole column, so that its rows
    compare.
    """

    size: float
    letter: str

    def text(self, value: float, *, signed: bool = False) -> str:
        """The value in this unit, with three places."""
        return f"{value / self.size:{'+' if signed else ''}.3f}"


def unit_for(values: Iterable[float]) -> Unit:
    """The unit in which the largest value has one to three places before the point,
    counted from 0.1 of it.
    """
    largest = max(values, default=0)
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if largest >= size / 10:
            return Unit(size, letter)
    return Unit(1e3, "K")


def cost_units(costs: Iterable[Cost | None], names: Iterable[str]) -> dict[str, Unit]:
    """A unit for each cost over the rows of a table."""
    found = [cost for cost in costs if cost is not None]
    units = {}
    for name in names:
        units[name] = unit_for(getattr(cost, name) for cost in found)
    return units


def size_text(size: float) -> str:
    """Bytes in the unit in which the number has one to three places before the point."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000:
            if unit == "bytes":
                return f"{size:.0f} {unit}"
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
