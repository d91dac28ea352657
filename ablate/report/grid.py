"""A grid of values, and how it is written: for a terminal, Markdown, LaTeX, HTML, CSV, JSON. Equal grids give equal bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ablate import escape

if TYPE_CHECKING:
    from markupsafe import Markup

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
    # As plain text, which escapes nothing of what it is joined with.
    return str({"md": markdown, "latex": latex, "html": html, "csv": comma_separated, "json": as_json}[form](grid))


def markdown(grid: Grid) -> str:
    """GitHub's Markdown, columns padded so that the source reads as a table too."""

    def cell(text: str) -> str:
        return escape.markdown(text, cell=True)

    cells = [list(map(cell, grid.columns)), *_marked(grid, cell, "**{}**")]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(grid.columns))]
    right = [column in grid.right for column in grid.columns]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)) + "|"
    title = escape.markdown(grid.title).strip()
    head = [f"**{title}**", ""] if title else []
    notes = filter(None, map(escape.markdown_line, grid.notes))
    foot = ["", *(f"{note}  " for note in notes)] if grid.notes else []
    return "\n".join([*head, line(cells[0]), rule, *map(line, cells[1:]), *(note.rstrip() for note in foot)]) + "\n"


def _marked(grid: Grid, escaped: Callable[[str], str], mark: str) -> list[list[str]]:
    """The escaped texts of the rows; what stands out is marked, where there is something."""
    return [
        [
            mark.format(escaped(text)) if (number, column) in grid.bold and text.strip() else escaped(text)
            for text, column in zip(row, grid.columns, strict=True)
        ]
        for number, row in enumerate(grid.rows)
    ]


def latex(grid: Grid) -> str:
    """A booktabs tabular; title and notes are comments above it."""
    spec = "".join("r" if column in grid.right else "l" for column in grid.columns)
    lines = [escape.latex_comment(line) for line in [grid.title, *grid.notes] if line]
    lines += [rf"\begin{{tabular}}{{{spec}}}", r"\toprule"]
    lines += [" & ".join(map(escape.latex, grid.columns)) + r" \\", r"\midrule"]
    for number, texts in enumerate(_marked(grid, escape.latex, r"\textbf{{{}}}")):
        lines += [r"\midrule"] if number in grid.groups else []
        lines.append(" & ".join(texts) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def html(grid: Grid) -> Markup:
    """A table element; rows between two lines are a tbody of their own."""
    from markupsafe import Markup

    def row(tag: str, texts: Sequence[str]) -> Markup:
        kinds = [Markup(' class="number"') if column in grid.right else Markup() for column in grid.columns]
        cells = (Markup("<{0}{1}>{2}</{0}>").format(tag, kind, text) for kind, text in zip(kinds, texts, strict=True))
        return Markup("<tr>") + Markup().join(cells) + Markup("</tr>")

    lines = [Markup("<table>")]
    if grid.title:
        lines.append(Markup("<caption>{}</caption>").format(escape.html(grid.title)))
    lines.append(Markup("<thead>{}</thead>").format(row("th", list(map(escape.html, grid.columns)))))
    lines.append(Markup("<tbody>"))
    for number, texts in enumerate(_marked(grid, escape.html, Markup("<b>{}</b>"))):
        if number in grid.groups:
            lines.append(Markup("</tbody><tbody>"))
        lines.append(row("td", texts))
    if grid.notes:
        notes = Markup("<br>").join(map(escape.html, grid.notes))
        foot = Markup('</tbody><tfoot><tr><td colspan="{}">{}</td></tr></tfoot>')
        lines.append(foot.format(len(grid.columns), notes))
    else:
        lines.append(Markup("</tbody>"))
    return Markup("\n").join([*lines, Markup("</table>")]) + "\n"


def comma_separated(grid: Grid) -> str:
    """CSV of the data, one heading a value. Texts that would begin a formula are marked: `ablate.escape.csv`."""
    stream = io.StringIO()
    headings = list(dict.fromkeys(key for row in grid.data for key in row)) or list(grid.columns)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(escape.csv, headings))
    for row in grid.data:
        values = [row.get(key, "") for key in headings]
        writer.writerow(str(v).lower() if isinstance(v, bool) else escape.csv(_written(v)) for v in values)
    return stream.getvalue()


def _written(value: Any) -> Any:
    """Text of what is neither text nor a number, as a list, so that it is escaped as text."""
    return value if value is None or isinstance(value, str | int | float) else str(value)


def as_json(grid: Grid) -> str:
    """A JSON array of one object a row."""
    return escape.json(json.dumps(list(grid.data), indent=1, ensure_ascii=False, default=str)) + "\n"
