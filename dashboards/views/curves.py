"""Learning curves, smoothed and grouped as the user wants."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st
from links import number, state
from stored import curves

from ablate.report.curves import curves_chart
from views.shown import Shown, choose, show_chart

MOST_LINES = 12
# To group rows, the epochs of all their trials are read.
MOST_GROUPED = 500
AXES = ("epoch", "metric")
MOST_SMOOTH = 0.95


def show(study: Shown) -> None:
    """Draws the view."""
    names = [metric.name for metric in study.results.metrics if not metric.of]
    metric = choose("Metric", names, study.results.metric.measured, "metric")
    places = st.columns([2, 1, 1])
    factors = ["", *study.results.factors]
    requested = state("by")
    by = places[0].selectbox(
        "One line per",
        factors,
        index=factors.index(requested) if requested in factors else 0,
        format_func=lambda name: f"level of {name}" if name else "row",
        key="by",
    )
    smoothing = places[1].slider(
        "Smoothing",
        0.0,
        MOST_SMOOTH,
        number("smooth", 0.0, MOST_SMOOTH),
        0.05,
        key="smooth",
    )
    logarithmic = places[2].segmented_control(
        "Logarithmic",
        AXES,
        selection_mode="multi",
        default=[axis for axis in state("log").split(",") if axis in AXES],
        key="log",
    )
    most = MOST_GROUPED if by else MOST_LINES
    rows = sorted(study.rows)[:most]
    drawn = curves_chart(
        study.results,
        curves(study.name, rows),
        metric,
        rows,
        by=by,
        smoothing=smoothing,
    )
    show_chart(
        replace(drawn, log_x="epoch" in logarithmic, log_y="metric" in logarithmic)
    )
    if len(study.rows) > most:
        st.caption(
            f"The first {most} of {len(study.rows)} rows; use the filter to see others."
        )
