"""A grid of values, and how it is written: for a terminal, Markdown, LaTeX, HTML, CSV, JSON. Equal grids give equal bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMATS = ("table", "md", "latex", "html", "csv", "json")


@dataclass(frozen=True)
class Grid:
    """Rows of text under columns, with the same values as data.

    Attributes:
        columns: headings; those in `right` are aligned to the right.
        rows: the text of each cell.
        data: one mapping a row, in full precision, for CSV and JSON.
        title, notes: lines above and below.
        bold: row and column of texts that stand out.
        groups: rows before which a line is drawn.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    data: Sequence[Mapping[str, Any]]
    right: frozenset[str] = frozenset()
    title: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
    bold: frozenset[tuple[int, str]] = frozenset()
    groups: frozenset[int] = frozenset()


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
    return {"md": markdown, "latex": latex, "html": html, "csv": comma_separated, "json": as_json}[form](grid)


def markdown(grid: Grid) -> str:
    """GitHub's Markdown, columns padded so that the source reads as a table too."""
    cells = [[_escape(text, "|") for text in row] for row in [grid.columns, *_marked(grid, "**", "**")]]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(grid.columns))]
    right = [column in grid.right for column in grid.columns]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)) + "|"
    head = [f"**{grid.title}**", ""] if grid.title else []
    foot = ["", *(f"{note}  " for note in grid.notes)] if grid.notes else []
    return "\n".join([*head, line(cells[0]), rule, *map(line, cells[1:]), *(note.rstrip() for note in foot)]) + "\n"


def _marked(grid: Grid, before: str, after: str) -> list[list[str]]:
    """The rows with what stands out between two marks."""
    found = [list(row) for row in grid.rows]
    for number, column in grid.bold:
        place = list(grid.columns).index(column)
        found[number][place] = f"{before}{found[number][place]}{after}"
    return found


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
    for number, row in enumerate(grid.rows):
        texts = [
            rf"\textbf{{{safe(text)}}}" if (number, column) in grid.bold else safe(text)
            for text, column in zip(row, grid.columns, strict=True)
        ]
        lines += [r"\midrule"] if number in grid.groups else []
        lines.append(" & ".join(texts) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def html(grid: Grid) -> str:
    """A table element; rows between two lines are a tbody of their own."""
    from html import escape

    def cell(tag: str, text: str, column: str) -> str:
        number = ' class="number"' if column in grid.right else ""
        return f"<{tag}{number}>{text}</{tag}>"

    lines = ["<table>"]
    if grid.title:
        lines.append(f"<caption>{escape(grid.title)}</caption>")
    lines.append("<thead><tr>" + "".join(cell("th", escape(c), c) for c in grid.columns) + "</tr></thead>")
    lines.append("<tbody>")
    for number, row in enumerate(grid.rows):
        if number in grid.groups:
            lines.append("</tbody><tbody>")
        texts = [
            f"<b>{escape(text)}</b>" if (number, column) in grid.bold else escape(text)
            for text, column in zip(row, grid.columns, strict=True)
        ]
        lines.append("<tr>" + "".join(cell("td", text, c) for text, c in zip(texts, grid.columns, strict=True)) + "</tr>")
    if grid.notes:
        notes = "<br>".join(map(escape, grid.notes))
        lines.append(f'</tbody><tfoot><tr><td colspan="{len(grid.columns)}">{notes}</td></tr></tfoot>')
    else:
        lines.append("</tbody>")
    return "\n".join([*lines, "</table>"]) + "\n"


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
