"""SQL over the documented views.

The connection refuses to write, and a statement ends after some seconds.
"""

from __future__ import annotations

import time

import pandas as pd
import streamlit as st
import words
from links import keep, state
from stored import URL, studies

from ablate.errors import AblateError
from ablate.report.table import Table, comma_separated, unique
from ablate.store.queries import OTHERS_ROWS, OTHERS_SECONDS
from ablate.store.reader import Reader


def quoted(name: str) -> str:
    """A name in SQL."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def page() -> None:
    words.title("SQL")
    views = [study.results_view for study in studies()]
    if views:
        first = f"SELECT * FROM {quoted(views[0])}"
    else:
        first = "SELECT * FROM studies"
    words.caption(
        f"Read-only. A query may take {OTHERS_SECONDS:g} s, and at most {OTHERS_ROWS:,}"
        " rows are shown. Views: trial_results, study_results, layer_results, and one"
        f" per study: {', '.join(views[:12])}{', ...' if len(views) > 12 else ''}."
        " docs/sql.md explains the columns."
    )
    # A default that changes with the address would reset the box while the user types.
    st.session_state.setdefault("statement", state("sql") or first)
    with st.form("ask", border=False):
        statement = st.text_area("Statement", key="statement", height=140)
        asked = st.form_submit_button("Run", type="primary")
    keep({"sql": statement})
    if asked:
        st.session_state["asked"] = statement
    # Anyone can write an address and send it, so its statement runs only after a click.
    if st.session_state.get("asked") != statement:
        st.info("Press Run to execute the query.")
        return
    show(statement)


def show(statement: str) -> None:
    """The answer to a statement, with a file of it to keep."""
    start = time.perf_counter()
    try:
        with Reader(URL) as reader:
            columns, rows = reader.query(
                statement, most=OTHERS_ROWS, seconds=OTHERS_SECONDS, by_others=True
            )
    except AblateError as error:
        words.notice(str(error), "error")
        return
    took = 1000 * (time.perf_counter() - start)
    # A query may contain a column twice; the headings of a table must be unique.
    headings = unique(columns)
    frame = pd.DataFrame(rows, columns=headings)
    data = [dict(zip(headings, row, strict=True)) for row in rows]
    written = comma_separated(Table(headings, [], data))
    st.dataframe(frame, hide_index=True, width="stretch")
    more = " (more rows were cut off)" if len(rows) == OTHERS_ROWS else ""
    st.caption(f"{len(rows):,} rows{more}, {took:.0f} ms")
    st.download_button("Download as CSV", written, "query.csv", "text/csv")


page()
