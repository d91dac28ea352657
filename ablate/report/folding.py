"""Notes on folded cells.

Printed tables leave out the rows of folded cells; a note says which rows and why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Foldable(Protocol):
    """A planned cell or its result."""

    @property
    def index(self) -> int: ...

    @property
    def same_as(self) -> int | None: ...

    @property
    def note(self) -> str: ...


def folding_notes(cells: Iterable[Foldable]) -> list[str]:
    """Returns one line per reason for which cells were folded."""
    groups: dict[tuple[int, str], list[str]] = {}
    for cell in cells:
        if cell.same_as is not None:
            groups.setdefault((cell.same_as, cell.note), []).append(str(cell.index))
    lines = []
    for (other, why), rows in groups.items():
        if len(rows) > 1:
            which = f"rows {', '.join(rows)} are"
        else:
            which = f"row {rows[0]} is"
        lines.append(f"Folded: {which} row {other}, because {why}.")
    return lines
