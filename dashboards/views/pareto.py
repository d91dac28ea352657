"""The metric against a cost, with the front; a click on a point shows its trials."""

from __future__ import annotations

import streamlit as st
import words
from stored import chart

from ablate.report import charts
from ablate.report.charts import Chart, Series
from views.shown import Shown, choose, only, show_chart
from views.trials import show_links

COSTS = ("flops", "params", "activations")
MOST_POINTS = 2000


def show(study: Shown) -> None:
    """Draws the view."""
    cost = choose("Cost", COSTS, "flops", "cost")
    drawn = only(chart(study.name, "pareto", cost), study.rows)
    assert isinstance(drawn, Chart)
    # A browser takes seconds for tens of thousands of points.
    step = -(-max(len(series.keys) for series in drawn.series) // MOST_POINTS)
    if step > 1:
        drawn = only(
            drawn,
            {
                key
                for series in drawn.series
                for at, key in enumerate(series.keys)
                if _keeps(series, at, step)
            },
        )
    picked = show_chart(
        drawn, on_select="rerun", selection_mode="points", key=f"pareto-{cost}"
    )
    if step > 1:
        st.caption(
            f"Only one in {step} dominated rows is drawn. If a filter leaves few rows, all"
            " of them are drawn."
        )
    points = picked["selection"]["points"] if picked else []
    chosen = [
        point.get("customdata")
        for point in points
        if point.get("customdata") is not None
    ]
    if not chosen:
        st.caption("Click a point to see its trials.")
        return
    row = int(chosen[0][0] if isinstance(chosen[0], list) else chosen[0])
    words.heading(f"Row {row}: {charts.label(study.results, study.cell(row))}", 3)
    show_links(study, {row})


def _keeps(series: Series, at: int, step: int) -> bool:
    """Whether a point is drawn where there are too many: all of the front, so many of
    the others.
    """
    return series.joined or at % step == 0
