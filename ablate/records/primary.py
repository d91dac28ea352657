"""The rows that a space names as its primary comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ablate.records import Level, Primary, Settings

# Names the comparisons of variants with their controls.
CONTROLS = "controls"


class Planned(Protocol):
    """A cell of a plan, or a cell with results."""

    @property
    def index(self) -> int: ...
    @property
    def levels(self) -> Settings: ...
    @property
    def same_as(self) -> int | None: ...
    @property
    def role(self) -> str: ...


def primary_factors(primary: Sequence[Primary]) -> tuple[str, ...]:
    """Returns the names of the factors, if factors are the primary comparisons."""
    return tuple(name for name in primary if isinstance(name, str) and name != CONTROLS)


def primary_is_elsewhere(primary: Sequence[Primary]) -> bool:
    """Whether the primary comparisons are others than those of rows with row 0."""
    return any(isinstance(comparison, str) for comparison in primary)


def primary_rows(
    primary: Sequence[Primary], cells: Sequence[Planned]
) -> tuple[int | None, ...]:
    """Returns the numbers of the primary rows, in their order.

    A comparison that no row has is None. A folded row stands for the row that it
    repeats.

    Args:
        cells: all cells of the study; the first one is row 0.
    """
    return tuple(
        _row_of(comparison, cells)
        for comparison in primary
        if not isinstance(comparison, str)
    )


def _row_of(comparison: int | Settings, cells: Sequence[Planned]) -> int | None:
    rows = [cell for cell in cells[1:] if cell.role in ("variant", "baseline")]
    if isinstance(comparison, int):
        matching = [cell for cell in rows if cell.index == comparison]
    else:
        reference = cells[0].levels
        changed = _changed(comparison, reference)
        matching = [
            cell for cell in rows if _changed(cell.levels, reference) == changed
        ]
    if not matching:
        return None
    # A row that repeats row 0 is no comparison.
    cell = matching[0]
    row = cell.index if cell.same_as is None else cell.same_as
    return row or None


def _changed(levels: Settings, reference: Mapping[str, Level]) -> dict[str, Level]:
    """Returns the levels that differ from those of row 0."""
    return {
        name: level for name, level in levels.items() if level != reference.get(name)
    }
