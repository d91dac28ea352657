"""Printing tables and times."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
import time
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ablate.text import escape
from ablate.text.masking import masked

# An estimate in seconds for which it matters whether the machine is busy.
LONG = 60

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table as RichTable
    from rich.text import Text

    from ablate.report.table import Table

# Characters between two columns.
GAP = 3
# A longer word is broken.
LONGEST_WORD = 40
# The most characters in a line of prose: longer lines cannot be read.
LONGEST_LINE = 72
# The least width of a table, even in a narrower terminal.
LEAST_ROOM = 40
# The most characters of a title. Rich takes seconds for one of a megabyte.
LONGEST_TITLE = 5_000

# The exit code by verdict. 1 and 2 are for failures and for mistakes.
GATE_CODES = {"helps": 0, "hurts": 3, "no difference": 4, "inconclusive": 5}


# What stands for a sign in a terminal whose encoding does not have it.
PLAIN_SIGNS = {
    "Δ": "delta",
    "±": "+-",
    "×": "x",
    "→": "->",
    "←": "<-",
    "≥": ">=",
    "≤": "<=",
    "…": "...",
    "–": "-",
    "—": "-",
    "·": "-",
    "−": "-",
    "≈": "~",
}


def use_plain_signs() -> None:
    """Lets both outputs replace what the encoding of the terminal does not have."""
    codecs.register_error("ablate", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="ablate")


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    sign = error.object[error.start]
    escaped = sign.encode("ascii", "backslashreplace").decode()
    return PLAIN_SIGNS.get(sign, escaped), error.start + 1


class Format(StrEnum):
    """How data are printed."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"
    latex = "latex"
    html = "html"


def tell(text: str) -> None:
    """Prints a message of one or several lines on stderr.

    Control sequences are escaped, and passwords are masked.
    """
    print(escape.terminal(masked(text)), file=sys.stderr, flush=True)


def tell_line(text: str) -> None:
    """Prints one line on stderr. Line feeds in the text are escaped."""
    print(escape.line(masked(text)), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Prints text for a person on stdout.

    Control sequences are escaped.
    """
    print(escape.terminal(text))


def show_json(answer: Mapping[str, object]) -> None:
    """Prints one JSON object in one line, for programs."""
    sys.stdout.write(f"{json.dumps(answer)}\n")


def show(table: Table, form: str, *, details: bool = False) -> None:
    """Prints a table for a terminal, or in one of the other formats.

    Args:
        details: whether a terminal shows all columns and notes. Other formats always
            have them.
    """
    from ablate.report.table import render

    if form != "table":
        sys.stdout.write(render(table, form))
        return
    from rich.console import Console

    if not details:
        table = table.without_details()
    if not sys.stdout.isatty():
        # It has no bold text.
        table = replace(table, bold_note="")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
    # Rich prints nothing into less.
    console.width = max(console.width, LEAST_ROOM)
    title = table.title
    if len(title) > LONGEST_TITLE:
        title = f"{title[:LONGEST_TITLE]} ..."
    for places in _blocks(table, console.width):
        console.print(_block(table, places, title, console.width))
        title = ""
    for note in table.all_notes:
        console.print(_shown(note, "dim"), soft_wrap=True)


def _blocks(table: Table, room: int) -> list[list[int]]:
    """Divides columns into blocks that fit into a terminal below one another.

    A column is named by its place, as two may have the same heading. Each block begins
    with the columns that name a row.
    """
    keys = _keys(table, room)
    free = room - sum(_least_width(table, column) + GAP for column in keys)
    blocks: list[list[int]] = [[*keys]]
    left = free
    for column in range(len(keys), len(table.columns)):
        needed = _least_width(table, column) + GAP
        if needed > left and len(blocks[-1]) > len(keys):
            blocks.append([*keys])
            left = free
        blocks[-1].append(column)
        left -= needed
    return blocks


def _keys(table: Table, room: int) -> list[int]:
    """Returns the first columns, up to the one that tells all rows apart.

    They take at most half of the room. Otherwise the first one has to do.
    """
    taken = 0
    for column in range(len(table.columns)):
        taken += _least_width(table, column) + GAP
        if taken > room / 2:
            break
        names = {tuple(row[: column + 1]) for row in table.rows}
        if len(names) == len(table.rows):
            return list(range(column + 1))
    return [0] if table.columns else []


def _least_width(table: Table, column: int) -> int:
    """Returns how narrow a column can be: no word and no number is broken."""
    words = table.columns[column].split()
    for row in table.rows:
        words += [row[column]] if _is_right(table, column) else row[column].split()
    return min(_longest(words), LONGEST_WORD)


def _widths(table: Table, places: list[int], room: int) -> list[int]:
    """Returns the width of each column of a block.

    Columns that need less than their share of the free room leave it to the others.
    """
    widths = {column: _least_width(table, column) for column in places}
    needs = {}
    for column in places:
        whole = _longest([table.columns[column], *(row[column] for row in table.rows)])
        if table.columns[column] in table.prose:
            whole = max(widths[column], min(whole, LONGEST_LINE))
        needs[column] = max(0, whole - widths[column])
    left = max(0, room - sum(widths.values()) - GAP * len(places))
    # The smallest needs first: what they leave is shared by the larger ones.
    for number, column in enumerate(sorted(places, key=needs.__getitem__)):
        more = min(needs[column], left // (len(places) - number))
        widths[column] += more
        left -= more
    return [widths[column] for column in places]


def _is_right(table: Table, column: int) -> bool:
    return table.columns[column] in table.right


def _longest(texts: list[str]) -> int:
    """Returns the width of the widest line, in columns of a terminal."""
    from rich.cells import cell_len

    lines = [line for text in texts for line in escape.terminal(text).splitlines()]
    return max((cell_len(line) for line in lines), default=0)


def _block(table: Table, places: list[int], title: str, room: int) -> RichTable:
    """Some columns of a table, for a terminal."""
    from rich import box
    from rich.table import Table

    block = Table(
        title=_shown(title) if title else None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column, width in zip(places, _widths(table, places, room), strict=True):
        block.add_column(
            _shown(table.columns[column]),
            justify="right" if _is_right(table, column) else "left",
            width=width,
            overflow="fold",
        )
    for number, row in enumerate(table.rows):
        if number in table.groups:
            block.add_section()
        cells = []
        for column in places:
            is_bold = (number, table.columns[column]) in table.bold
            cells.append(_shown(row[column], "bold" if is_bold else ""))
        block.add_row(*cells)
    return block


def _shown(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(escape.terminal(text), style=style)


def duration(seconds: float | None) -> str:
    """Seconds in a readable unit."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 172800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


class Steps:
    """Progress on one line of a terminal; elsewhere, a line from time to time.

    The remaining time is that of the steps since the first report: what comes before
    may be imports, or steps of an earlier run.

    Args:
        what: what one step is, such as "epoch".
    """

    SECONDS = 5.0

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown_at = time.monotonic()
        self._first: tuple[int, float] | None = None

    def __call__(self, done: int, of: int) -> None:
        """Says that so many of all steps are done."""
        now = time.monotonic()
        text = f"{self._what} {done} of {of}{self._left(done, of, now)}"
        if sys.stderr.isatty():
            end = "\n" if done == of else ""
            # The rest of a longer line before it is erased.
            print(f"\r{text}\x1b[K", end=end, file=sys.stderr, flush=True)
        elif now - self._shown_at > self.SECONDS:
            self._shown_at = now
            tell(text)

    def _left(self, done: int, of: int, now: float) -> str:
        if self._first is None:
            self._first = done, now
        first, since = self._first
        if not first < done < of:
            return ""
        left = (now - since) / (done - first) * (of - done)
        return f", about {duration(left)} left"


def busy_note(seconds: float | None) -> str:
    """Says that an estimate of a minute or more is too low on a busy machine."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= cores or seconds is None or seconds < LONG:
        return ""
    return f" on an idle machine (this one is busy: its load is {load:.0f} on {cores} cores)"
