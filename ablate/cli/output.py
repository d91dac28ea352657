"""Printing tables and times."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING

from ablate import escape
from ablate.masking import masked

if TYPE_CHECKING:
    from ablate.report.tables import Table


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


def show(grid: Table, form: str) -> None:
    """Prints a table for a terminal, or in one of the other formats."""
    from ablate.report.tables import render

    if form != "table":
        sys.stdout.write(render(grid, form))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def shown(text: str, style: str = "") -> Text:
        return Text(escape.terminal(text), style=style)

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
    table = Table(
        title=shown(grid.title) if grid.title else None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in grid.columns:
        table.add_column(
            shown(column), justify="right" if column in grid.right else "left"
        )
    for number, row in enumerate(grid.rows):
        if number in grid.groups:
            table.add_section()
        bold = [
            "bold" if (number, column) in grid.bold else "" for column in grid.columns
        ]
        table.add_row(
            *(shown(text, style) for text, style in zip(row, bold, strict=True))
        )
    console.print(table)
    for note in grid.notes:
        console.print(shown(note, "dim"), soft_wrap=True)


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
    """Progress on one line of a terminal; elsewhere, a line from time to time."""

    SECONDS = 10.0

    def __init__(self, what: str) -> None:
        self._what, self._told = what, time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        text = f"{self._what} {done} of {of}"
        if sys.stderr.isatty():
            print(
                f"\r{text}", end="\n" if done == of else "", file=sys.stderr, flush=True
            )
        elif time.monotonic() - self._told > self.SECONDS:
            self._told = time.monotonic()
            tell(text)
