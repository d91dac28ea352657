"""A table of values, and how it is written: Markdown, LaTeX, HTML, CSV or JSON.

Equal tables give equal bytes.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ablate.text import escape

if TYPE_CHECKING:
    from markupsafe import Markup

Record = TypeVar("Record")

FORMATS = ("table", "md", "latex", "html", "csv", "json")


@dataclass(frozen=True)
class Table:
    """Rows of text under columns, with the same values as data.

    Attributes:
        columns: headings; those in `right` are aligned to the right.
        rows: the text of each cell.
        data: one mapping per row, in full precision, for CSV and JSON.
        title, notes: lines above and below.
        bold: row and column of texts to emphasise.
        bold_note: what bold means. Output without bold leaves it out.
        groups: rows before which a line is drawn.
        prose: columns of sentences, whose lines are broken even where there is room.
        details: columns that a terminal shows on demand only.
        detail_notes: further lines below that a terminal shows on demand only.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    data: Sequence[Mapping[str, Any]]
    right: frozenset[str] = frozenset()
    title: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
    bold: frozenset[tuple[int, str]] = frozenset()
    groups: frozenset[int] = frozenset()
    prose: frozenset[str] = frozenset()
    bold_note: str = ""
    details: frozenset[str] = frozenset()
    detail_notes: Sequence[str] = field(default_factory=tuple)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """All notes, and what bold means if anything is bold."""
        notes = (*self.notes, *self.detail_notes)
        if not self.bold or not self.bold_note:
            return notes
        return (*notes, self.bold_note)

    def without_details(self) -> Table:
        """The same table without what is shown on demand only."""
        kept = [
            place for place, name in enumerate(self.columns) if name not in self.details
        ]
        return replace(
            self,
            columns=[self.columns[place] for place in kept],
            rows=[[row[place] for place in kept] for row in self.rows],
            bold_note="",
            detail_notes=(),
        )

    def with_notes(self, notes: Sequence[str]) -> Table:
        """The same table with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    def _repr_html_(self) -> str:
        return str(html(self))


@dataclass(frozen=True)
class Column(Generic[Record]):
    """A column of a table, declared once for the screen, for data and for the schema.

    A column without a heading is only in the data, and one without a key only on screen.

    Attributes:
        key: its name in CSV and JSON.
        value: its value for a record, in full precision.
        heading: what stands above it.
        text: its text for a record; by default that of the value.
        right: whether it is aligned to the right.
        prose: whether it has sentences, whose lines are broken even where there is room.
        detail: whether a terminal shows it on demand only.
        kind: the type of the value, for the schema.
        about: what the value means, for the schema and the reference.
        optional: whether the data leave the key out where there is no value.
        fields: several keys at once with their values, such as levels by factor.
    """

    key: str = ""
    value: Callable[[Record], Any] | None = None
    heading: str = ""
    text: Callable[[Record], str] | None = None
    right: bool = False
    prose: bool = False
    detail: bool = False
    kind: Any = Any
    about: str = ""
    optional: bool = False
    fields: Callable[[Record], Mapping[str, Any]] | None = None

    def text_of(self, record: Record) -> str:
        """Returns what the screen shows of a record."""
        if self.text is not None:
            return self.text(record)
        assert self.value is not None
        return _text(self.value(record))

    def data_of(self, record: Record) -> Mapping[str, Any]:
        """Returns what the data hold of a record, by key."""
        if self.fields is not None:
            return self.fields(record)
        if not self.key:
            return {}
        assert self.value is not None
        value = self.value(record)
        return {} if value is None and self.optional else {self.key: value}


def tabulate(
    columns: Sequence[Column[Record]],
    records: Iterable[Record],
    *,
    shown: Iterable[Record] | None = None,
    title: str = "",
    notes: Sequence[str] = (),
    bold: frozenset[tuple[int, str]] = frozenset(),
    bold_note: str = "",
    groups: frozenset[int] = frozenset(),
    detail_notes: Sequence[str] = (),
) -> Table:
    """Returns the table of some records.

    Args:
        shown: the records on screen; by default all. The data have all records.
        title, notes, bold, bold_note, groups, detail_notes: as in `Table`.
    """
    records = list(records)
    on_screen = [column for column in columns if column.heading]
    rows = []
    for record in records if shown is None else shown:
        rows.append([column.text_of(record) for column in on_screen])
    data = []
    for record in records:
        fields: dict[str, Any] = {}
        for column in columns:
            fields.update(column.data_of(record))
        data.append(fields)
    return Table(
        columns=[column.heading for column in on_screen],
        rows=rows,
        data=data,
        right=frozenset(column.heading for column in on_screen if column.right),
        prose=frozenset(column.heading for column in on_screen if column.prose),
        title=title,
        notes=notes,
        bold=bold,
        bold_note=bold_note,
        groups=groups,
        details=frozenset(column.heading for column in on_screen if column.detail),
        detail_notes=detail_notes,
    )


def plain(data: Sequence[Mapping[str, Any]], title: str = "") -> Table:
    """Returns a table of values as they are."""
    columns = _keys(data)
    return Table(
        columns=columns,
        rows=[_texts(row, columns) for row in data],
        data=data,
        right=frozenset(name for name in columns if _is_numeric(name, data)),
        title=title,
    )


def _keys(data: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the keys of all rows, each once."""
    return list(dict.fromkeys(itertools.chain.from_iterable(data)))


def _is_numeric(column: str, data: Sequence[Mapping[str, Any]]) -> bool:
    # An empty cell does not turn a column of numbers into text.
    return all(isinstance(row.get(column), int | float | None) for row in data)


def _texts(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    return [_text(row.get(column)) for column in columns]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def render(table: Table, form: str) -> str:
    """Returns the table as text in one of the formats, ending with a line feed.

    The format `table` is for a terminal and is rendered by the command line.
    """
    writers: dict[str, Callable[[Table], str]] = {
        "md": markdown,
        "latex": latex,
        "html": html,
        "csv": comma_separated,
        "json": as_json,
    }
    # `html` returns Markup, which would escape every text that it is joined with.
    return str(writers[form](table))


def markdown(table: Table) -> str:
    """Returns GitHub Markdown, padded so that the source reads as a table too."""
    head = [_markdown_cell(column) for column in table.columns]
    body = _marked(table, _markdown_cell, "**{}**")
    right = [column in table.right for column in table.columns]
    widths = [_width(column) for column in zip(head, *body, strict=True)]
    rule = []
    for width, is_right in zip(widths, right, strict=True):
        # A colon at the right end aligns a column to the right.
        rule.append("-" * (width + 1) + (":" if is_right else "-"))
    lines = []
    title = escape.markdown(table.title).strip()
    if title:
        lines += [f"**{title}**", ""]
    lines.append(_markdown_row(head, widths, right))
    lines.append(f"|{'|'.join(rule)}|")
    lines += [_markdown_row(row, widths, right) for row in body]
    if table.all_notes:
        lines.append("")
        lines += filter(None, map(escape.markdown_line, table.all_notes))
    return "\n".join(lines) + "\n"


def _markdown_cell(text: str) -> str:
    return escape.markdown(text, cell=True)


def _width(texts: Sequence[str]) -> int:
    """Returns the width of a column in characters; Markdown needs at least three."""
    return max(3, *map(len, texts))


def _markdown_row(
    texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]
) -> str:
    padded = []
    for text, width, is_right in zip(texts, widths, right, strict=True):
        padded.append(text.rjust(width) if is_right else text.ljust(width))
    return f"| {' | '.join(padded)} |"


def _marked(table: Table, escaped: Callable[[str], str], mark: str) -> list[list[str]]:
    """Returns the escaped texts of the rows; `mark` wraps texts that are bold."""
    marked = []
    for number, row in enumerate(table.rows):
        texts = []
        for text, column in zip(row, table.columns, strict=True):
            is_bold = (number, column) in table.bold and text.strip()
            texts.append(mark.format(escaped(text)) if is_bold else escaped(text))
        marked.append(texts)
    return marked


def latex(table: Table) -> str:
    """Returns a booktabs tabular; title and notes are comments above it."""
    spec = "".join("r" if column in table.right else "l" for column in table.columns)
    lines = [
        escape.latex_comment(line) for line in [table.title, *table.all_notes] if line
    ]
    lines += [rf"\begin{{tabular}}{{{spec}}}", r"\toprule"]
    lines += [" & ".join(map(escape.latex, table.columns)) + r" \\", r"\midrule"]
    for number, texts in enumerate(_marked(table, escape.latex, r"\textbf{{{}}}")):
        if number in table.groups:
            lines.append(r"\midrule")
        lines.append(" & ".join(texts) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def html(table: Table, *, notes: bool = True) -> Markup:
    """Returns a table element; the rows of each group are a tbody of their own.

    Args:
        notes: whether the notes are the foot of the table.
    """
    from markupsafe import Markup

    def row(tag: str, texts: Sequence[str]) -> Markup:
        kinds = [
            Markup(' class="number"') if column in table.right else Markup()
            for column in table.columns
        ]
        cells = (
            Markup("<{0}{1}>{2}</{0}>").format(tag, kind, text)
            for kind, text in zip(kinds, texts, strict=True)
        )
        return Markup("<tr>") + Markup().join(cells) + Markup("</tr>")

    lines = [Markup("<table>")]
    if table.title:
        lines.append(Markup("<caption>{}</caption>").format(escape.html(table.title)))
    lines.append(
        Markup("<thead>{}</thead>").format(
            row("th", list(map(escape.html, table.columns)))
        )
    )
    lines.append(Markup("<tbody>"))
    # A `tbody` per group lets a style sheet rule off groups.
    for number, texts in enumerate(_marked(table, escape.html, Markup("<b>{}</b>"))):
        if number in table.groups:
            lines.append(Markup("</tbody><tbody>"))
        lines.append(row("td", texts))
    if table.all_notes and notes:
        text = Markup("<br>").join(map(escape.html, table.all_notes))
        foot = Markup('</tbody><tfoot><tr><td colspan="{}">{}</td></tr></tfoot>')
        lines.append(foot.format(len(table.columns), text))
    else:
        lines.append(Markup("</tbody>"))
    return Markup("\n").join([*lines, Markup("</table>")]) + "\n"


def comma_separated(table: Table) -> str:
    """Returns the data as CSV, with one column per value.

    A text that a spreadsheet would take for a formula is marked: see
    `ablate.escape.csv`.
    """
    stream = io.StringIO()
    # Data hold every number unrounded, also those that a cell of the table joins.
    headings = _keys(table.data) or list(table.columns)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(escape.csv, headings))
    for row in table.data:
        writer.writerow(_csv_value(row.get(key, "")) for key in headings)
    return stream.getvalue()


def _csv_value(value: Any) -> Any:
    """Returns numbers unchanged, and the rest as text that no spreadsheet runs."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, str | int | float):
        return escape.csv(value)
    return escape.csv(str(value))


def as_json(table: Table) -> str:
    """Returns a JSON array with one object per row."""
    text = json.dumps(list(table.data), indent=1, ensure_ascii=False, default=str)
    return escape.json(text) + "\n"


def unique(names: Sequence[str]) -> list[str]:
    """Returns names of columns, numbered where one occurs again: `a`, `a (2)`."""
    found = list[str]()
    for name in names:
        heading, number = name, 1
        while heading in found or (number > 1 and heading in names):
            number += 1
            heading = f"{name} ({number})"
        found.append(heading)
    return found
