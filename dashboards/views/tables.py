"""The table of a study, and the tables and charts of its effects."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import streamlit as st
import words
from stored import chart, frame, table_of

from ablate.errors import AblateError
from ablate.records import StudyResults
from ablate.report import charts
from ablate.report.table import comma_separated
from views.shown import Shown, choose, only, show_chart

# Of larger tables, no value is bold: a browser takes seconds to style them.
MOST_BOLD = 500
KINDS = (
    "rows",
    "factors",
    "interactions",
    "contributions",
    "importance",
    "controls",
)


def show_table(study: Shown) -> None:
    """Draws the table."""
    show_grid(study.name, "table", study.rows)


def show_effects(study: Shown) -> None:
    """Draws the effects of rows or of factors."""
    kinds = list(KINDS)
    if study.results.tune:
        kinds.append("tuning")
    if study.results.across:
        kinds.append("sizes")
    of = choose("Show", kinds, "rows", "of")
    if of == "interactions":
        _show_interaction(study.results)
    if of == "rows":
        show_chart(only(chart(study.name, "effects"), study.rows))
    elif of == "tuning":
        _show_tuning(study.name)
    elif of == "sizes":
        show_chart(chart(study.name, "sizes"), key="sizes")
        show_chart(chart(study.name, "scaling"), key="scaling")
    elif of != "controls":
        show_chart(chart(study.name, of))
    rows = study.rows if of in ("rows", "controls", "tuning") else None
    show_grid(study.name, of, rows)


def show_grid(name: str, of: str, rows: Collection[int] | None = None) -> None:
    """The table, or a table of effects, with its notes; highlighted values are bold if
    there are few rows.
    """
    made = table_of(name, of)
    whole = frame(name, of)
    if rows is None or "row" not in whole:
        shown = whole
    else:
        shown = whole[whole["row"].isin(rows)]
    if len(shown) <= MOST_BOLD:
        bold = {
            (number, column) for number, column in made.bold if number in shown.index
        }
        styled = shown.style.apply(
            lambda row: [
                "font-weight: bold" if (row.name, c) in bold else ""
                for c in shown.columns
            ],
            axis=1,
        )
        st.dataframe(styled, hide_index=True, width="stretch")
        notes = made.all_notes
    else:
        st.dataframe(shown, hide_index=True, width="stretch")
        notes = tuple(made.notes)
    for note in notes:
        words.note(note)
    file = f"{name.replace('/', '-')}-{of}.csv"
    st.download_button(
        "Download as CSV", comma_separated(made), file, "text/csv", key=f"csv-{of}"
    )


def _show_tuning(name: str) -> None:
    """Scores of the settings, and the expected best one where settings were drawn."""
    show_chart(chart(name, "sensitivity"), key="sensitivity")
    with suppress(AblateError):
        show_chart(chart(name, "tuning"), key="expected")


def _show_interaction(stored: StudyResults) -> None:
    """Means over the levels of one factor, one line per level of another; parallel
    lines mean no interaction.
    """
    drawn = {chart.title: chart for chart in charts.interaction_charts(stored)}
    if not drawn:
        return
    pair = st.selectbox("Factors", list(drawn), key="pair")
    show_chart(drawn[pair], key="interaction")
