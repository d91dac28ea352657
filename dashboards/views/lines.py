"""Parallel coordinates: a line per row over its levels, its FLOPs and the metric."""

from __future__ import annotations

from stored import chart

from views.shown import Shown, only, show_chart


def show(study: Shown) -> None:
    """Draws the view."""
    show_chart(only(chart(study.name, "parallel"), study.rows))
