"""A study as its page shows it, and how the views draw charts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st
import words
from links import state

from ablate.records import CellResult, Space, StudyResults
from ablate.report.charts import Chart, Coordinates
from ablate.report.plotly_charts import draw


@dataclass(frozen=True)
class Shown:
    """A study, and the rows of it that the filter leaves."""

    name: str
    results: StudyResults
    declared: Space
    rows: frozenset[int]

    def cell(self, row: int) -> CellResult:
        """The cell of a row."""
        return next(cell for cell in self.results.cells if cell.index == row)


def choose(label: str, offered: Sequence[str], usual: str, key: str) -> str:
    """One of a few words, side by side; kept in the address."""
    requested = state(key)
    chosen: str | None = st.segmented_control(
        label, offered, default=requested if requested in offered else usual, key=key
    )
    return chosen or usual


def show_chart(drawn: Chart | Coordinates, **options: Any) -> Any:
    """Draws a chart without its title, which the page already says.

    Returns what a user selects in it, if the options ask for it.
    """
    note = drawn.note
    untitled = replace(drawn, title="", note="")
    figure = draw(untitled)
    if isinstance(untitled, Chart):
        figure.update_layout(margin_t=10)
    picked = st.plotly_chart(figure, **options)
    if note:
        words.note(note)
    return picked


def only(drawn: Chart | Coordinates, rows: Collection[int]) -> Chart | Coordinates:
    """A chart with the points of some rows."""
    if isinstance(drawn, Coordinates):
        at = [number for number, key in enumerate(drawn.keys) if key in rows]
        axes = [replace(axis, values=_taken(axis.values, at)) for axis in drawn.axes]
        return replace(drawn, axes=axes, keys=_taken(drawn.keys, at))
    kept = []
    for series in drawn.series:
        at = [number for number, key in enumerate(series.keys) if key in rows]
        parts: dict[str, Any] = {}
        for part in ("x", "y", "low", "high", "keys", "texts", "labels"):
            values = getattr(series, part)
            if values:
                parts[part] = _taken(values, at)
        kept.append(replace(series, **parts))
    return replace(drawn, series=kept)


def _taken(values: Sequence[Any], places: list[int]) -> list[Any]:
    return [values[number] for number in places]
