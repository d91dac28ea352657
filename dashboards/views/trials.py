"""The trials of a study: a table to sort and filter, or links to a few of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd
import streamlit as st
from links import go, link, state
from stored import NOTE, TAGS, trial_frame, trials

from ablate.report.numbers import fixed
from ablate.text import escape
from views.shown import Shown

# Columns that are shown unless the user chooses others; factors and the metric too.
USUAL = ("trial", "row", "seed", "status", "seconds", "params", "flops")


def show(study: Shown) -> None:
    """Draws the view."""
    frame = trial_frame(study.name)
    frame = frame[frame["row"].isin(study.rows)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        columns = _columns(study, frame)
        frame = _matching(frame)
    picked = st.dataframe(
        frame[columns],
        hide_index=True,
        width="stretch",
        column_config=_formats(study),
        on_select="rerun",
        selection_mode="single-row",
        key="trials",
    )
    for index in picked["selection"]["rows"]:
        go("trial", trial=str(frame.iloc[index]["trial"]))
    trials = "1 trial" if len(frame) == 1 else f"{len(frame):,} trials"
    st.caption(
        f"{trials}. Click a heading to sort, the box at the left of a line to open"
        " that trial, and the magnifier at the top right to search."
    )
    st.download_button(
        "Download as CSV",
        lambda: _csv(frame[columns]),
        f"{study.name.replace('/', '-')}-trials.csv",
        "text/csv",
        key="csv-trials",
    )


def show_links(study: Shown, rows: Collection[int]) -> None:
    """Trials of a few rows as links, with their state and metric."""
    metric = study.results.metric
    for trial in trials(study.name):
        if trial.row not in rows:
            continue
        value = trial.metrics[metric.name]
        shown = ""
        if value is not None:
            shown = f", {metric.title} {fixed(value, metric.digits)}"
        label = (
            f"row {trial.row}, seed {trial.seed}: {trial.status}{shown}"
            f" ({trial.trial[:8]})"
        )
        link(label, "trial", icon=":material/model_training:", trial=trial.trial)


def _columns(study: Shown, frame: pd.DataFrame) -> list[str]:
    """The columns that the user chooses; kept in the address."""
    usual = [*USUAL, *study.results.factors, study.results.metric.name, TAGS]
    requested = [name for name in state("columns").split(",") if name in frame]
    offered = list(frame.columns)
    with st.popover("Columns"):
        chosen = st.multiselect(
            "Columns",
            offered,
            default=requested or [name for name in offered if name in usual],
            key="columns",
        )
    return chosen or ["trial"]


def _matching(frame: pd.DataFrame) -> pd.DataFrame:
    """The trials whose value in one column is in the range, or among the values, that
    the user chooses.
    """
    offered = [name for name in frame.columns if frame[name].nunique() > 1]
    requested = state("where")
    with st.popover("Filter by value"):
        name = st.selectbox(
            "Column",
            ["", *offered],
            index=offered.index(requested) + 1 if requested in offered else 0,
            format_func=lambda name: name or "any",
            key="where",
        )
        if not name:
            return frame
        values = frame[name]
        if pd.api.types.is_numeric_dtype(values) and values.nunique() > 10:
            least, most = float(values.min()), float(values.max())
            low, high = st.slider(
                "Range",
                least,
                most,
                (least, most),
                # Rates of learning differ by far less than the usual step of 0.01.
                step=(most - least) / 100,
                format="%.4g",
                key=f"range-{name}",
            )
            return frame[values.between(low, high)]
        texts = values.map(str)
        chosen = st.multiselect("Values", sorted(set(texts)), key=f"values-{name}")
        return frame[texts.isin(chosen)] if chosen else frame


def _formats(study: Shown) -> dict[str, Any]:
    """How columns are shown: numbers with as many digits as their metric has."""
    formats: dict[str, Any] = {
        "trial": st.column_config.TextColumn(width="small"),
        "seconds": st.column_config.NumberColumn(format="%.1f"),
        TAGS: st.column_config.TextColumn("tags"),
        NOTE: st.column_config.TextColumn("note"),
    }
    for metric in study.results.metrics:
        formats[metric.name] = st.column_config.NumberColumn(
            metric.title, format=f"%.{metric.digits}f"
        )
    for name in ("params", "flops", "flops_paper", "activations"):
        formats[name] = st.column_config.NumberColumn(format="localized")
    return formats


def _csv(frame: pd.DataFrame) -> str:
    """The trials as CSV, without formulas that a spreadsheet would run."""
    text: str = frame.map(escape.csv).to_csv(index=False)
    return text
