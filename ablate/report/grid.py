"""A grid of values, and how it is written: for a terminal, Markdown, LaTeX, CSV, JSON. Equal grids give equal bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMATS = ("table", "md", "csv", "json")


@dataclass(frozen=True)
class Grid:
    """Rows of text under columns, with the same values as data.

    Attributes:
        columns: headings; those in `right` are aligned to the right.
        rows: the text of each cell.
        data: one mapping a row, in full precision, for CSV and JSON.
        title, notes: lines above and below.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    data: Sequence[Mapping[str, Any]]
    right: frozenset[str] = frozenset()
    title: str = ""
    notes: Sequence[str] = field(default_factory=tuple)


def plain(data: Sequence[Mapping[str, Any]], title: str = "") -> Grid:
    """A grid of values as they are."""
    columns = list(dict.fromkeys(key for row in data for key in row))
    numeric = frozenset(c for c in columns if all(isinstance(row.get(c), int | float | None) for row in data))
    return Grid(columns, [[_text(row.get(c)) for c in columns] for row in data], data, numeric, title)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def render(grid: Grid, form: str) -> str:
    """The grid as text in one of the formats, ending with a line feed. `table` is for a terminal's eyes and is made there."""
    return {"md": markdown, "csv": comma_separated, "json": as_json, "latex": latex}[form](grid)


def markdown(grid: Grid) -> str:
    """GitHub's Markdown, columns padded so that the source reads as a table too."""
    cells = [[_escape(text, "|") for text in row] for row in [grid.columns, *grid.rows]]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(grid.columns))]
    right = [column in grid.right for column in grid.columns]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)) + "|"
    head = [f"**{grid.title}**", ""] if grid.title else []
    foot = ["", *(f"{note}  " for note in grid.notes)] if grid.notes else []
    return "\n".join([*head, line(cells[0]), rule, *map(line, cells[1:]), *(note.rstrip() for note in foot)]) + "\n"


def _escape(text: str, character: str) -> str:
    return text.replace("\n", " ").replace(character, "\\" + character)


_LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "−": "$-$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_LATEX |= {c: "\\" + c for c in "&%$#_{}"}


def latex(grid: Grid) -> str:
    """A booktabs tabular."""

    def safe(text: str) -> str:
        return "".join(_LATEX.get(c, c) for c in text)

    spec = "".join("r" if column in grid.right else "l" for column in grid.columns)
    lines = [f"% {line}" for line in [grid.title, *grid.notes] if line]
    lines += [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", " & ".join(map(safe, grid.columns)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(safe, row)) + r" \\" for row in grid.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def comma_separated(grid: Grid) -> str:
    """CSV of the data, one heading a value."""
    stream = io.StringIO()
    headings = list(dict.fromkeys(key for row in grid.data for key in row)) or list(grid.columns)
    writer = csv.DictWriter(stream, headings, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()} for row in grid.data)
    return stream.getvalue()


def as_json(grid: Grid) -> str:
    """A JSON array of one object a row."""
    return json.dumps(list(grid.data), indent=1, ensure_ascii=False, default=str) + "\n"
