"""A metric over the levels of a factor: means with intervals."""

from __future__ import annotations

import streamlit as st
from links import state
from stored import final_values

from ablate.report.levels_chart import levels_chart
from views.shown import Shown, choose, show_chart


def show(study: Shown) -> None:
    """Draws the view."""
    factors = list(study.results.factors)
    if not factors:
        st.caption("The study has no factor.")
        return
    names = [metric.name for metric in study.results.metrics]
    metric = choose("Metric", names, study.results.metric.name, "metric")
    places = st.columns(2)
    by = places[0].selectbox(
        "Factor",
        factors,
        index=factors.index(state("by")) if state("by") in factors else 0,
        key="by",
    )
    groups = ["", *(name for name in factors if name != by)]
    group = places[1].selectbox(
        "One line per level of",
        groups,
        index=groups.index(state("group")) if state("group") in groups else 0,
        format_func=lambda name: name or "(one line)",
        key="group",
    )
    values = {
        row: by_seed
        for row, by_seed in final_values(study.name, metric).items()
        if row in study.rows
    }
    show_chart(levels_chart(study.results, values, metric, by, group))
