"""Any quantity of the trials against any other."""

from __future__ import annotations

from typing import Any, cast

import pandas as pd
import streamlit as st
from links import go, state
from stored import NOTE, TAGS, diagnostic_values, scalar_diagnostics, trial_frame

from ablate.report.scatter import scatter_chart
from views.shown import Shown, show_chart

# A browser takes seconds for tens of thousands of points.
MOST_POINTS = 5000
# More values than this are no groups that colours can show.
MOST_GROUPS = 8
NO_QUANTITY = ("trial", TAGS, NOTE)
AXES = ("x", "y")


def show(study: Shown) -> None:
    """Draws the view."""
    frame = trial_frame(study.name)
    frame = frame[frame["row"].isin(study.rows)]
    diagnostics = scalar_diagnostics(study.name)
    names = [name for name in frame.columns if name not in NO_QUANTITY]
    numbers = [name for name in names if pd.api.types.is_numeric_dtype(frame[name])]
    groups = [name for name in names if 1 < frame[name].nunique() <= MOST_GROUPS]
    metric = study.results.metric.name
    first = next(iter(study.results.factors), metric)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        x = _choose("x", [*names, *diagnostics], first)
        y = _choose("y", [*numbers, *diagnostics], metric)
        by = _choose("colour", ["", *groups], "row" if "row" in groups else "")
        logarithmic = st.segmented_control(
            "Logarithmic",
            AXES,
            selection_mode="multi",
            default=[axis for axis in state("log").split(",") if axis in AXES],
            key="log",
        )
    for name in {x, y} & set(diagnostics):
        frame = frame.assign(
            **{name: frame["trial"].map(diagnostic_values(study.name, name))}
        )
    step = -(-len(frame) // MOST_POINTS)
    drawn = scatter_chart(
        _points(frame.iloc[:: max(1, step)]),
        x,
        y,
        by=by,
        titles={metric.name: metric.title for metric in study.results.metrics},
        log_x="x" in logarithmic,
        log_y="y" in logarithmic,
    )
    picked = show_chart(
        drawn, on_select="rerun", selection_mode="points", key=f"scatter-{x}-{y}-{by}"
    )
    if step > 1:
        st.caption(
            f"Only one in {step} trials is drawn. If a filter leaves few rows, all of their"
            " trials are drawn."
        )
    st.caption("Each point is a trial. Click one to open it.")
    for point in picked["selection"]["points"] if picked else []:
        key = point.get("customdata")
        go("trial", trial=str(key[0] if isinstance(key, list) else key))


def _choose(key: str, offered: list[str], default: str) -> str:
    """A choice that the address keeps."""
    usual = default if default in offered else offered[0]
    requested = state(key, usual)
    chosen: str = st.selectbox(
        key,
        offered,
        index=offered.index(requested if requested in offered else usual),
        format_func=lambda name: name or "one colour for all",
        key=key,
    )
    return chosen


def _points(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame; missing values are None."""
    with_none = frame.astype(object).where(frame.notna(), None)
    return cast("list[dict[str, Any]]", with_none.to_dict("records"))
