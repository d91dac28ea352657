"""The printed numbers of the papers beside those measured here."""

from __future__ import annotations

import pandas as pd
import streamlit as st
import words
from links import keep, link, state
from stored import URL as STORE
from stored import results, stamp, studies

from ablate.errors import AblateError
from ablate.published import tables
from ablate.results.study import Study


@st.cache_resource(max_entries=2, show_spinner="Looking for studies ...")
def declaring(stamp: str) -> dict[str, list[str]]:
    """Studies by the published table that they name."""
    by_paper: dict[str, list[str]] = {}
    for study in studies():
        try:
            table = results(study.name)[1].claim.published
        except AblateError:
            continue
        if table:
            by_paper.setdefault(table, []).append(study.name)
    return by_paper


def page() -> None:
    words.title("Published tables")
    every = tables()
    here = declaring(stamp())
    names = sorted(every, key=lambda name: (name not in here, name))
    requested = state("table")
    name = st.selectbox(
        "Table",
        names,
        index=names.index(requested) if requested in names else 0,
        key="table",
    )
    keep({"table": name})
    rows = [
        {
            "row": row.label,
            "params (M)": row.params,
            "FLOPs (G)": row.flops,
            **row.metrics,
            "why the printed cost differs from ablate's": row.reason,
        }
        for row in every[name].rows
    ]
    st.subheader("As published")
    st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch")
    for study in here.get(name, []):
        st.subheader("Measured")
        link(study, "study", study=study)
        try:
            table = Study(study, STORE).results_table(published=True)
        except AblateError as error:
            words.notice(str(error))
            continue
        st.dataframe(
            pd.DataFrame(table.rows, columns=list(table.columns)),
            hide_index=True,
            width="stretch",
        )
        for note in table.notes:
            words.note(note)
    if name not in here:
        st.info(
            "No study in this store refers to this table. `ablate init --list` shows"
            " examples that refer to a published table. To compare a study of your own,"
            " add the key `published` to its file."
        )


page()
