"""Any quantity of trials against any other: levels, metrics, costs, diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ablate.errors import AblateError
from ablate.records import level_text
from ablate.report.charts import Chart, Series

# More whole numbers than this have ticks at round numbers only.
MOST_TICKS = 12


def scatter_chart(
    points: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    *,
    by: str = "",
    titles: Mapping[str, str] | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> Chart:
    """Draws one point per trial, and one series per value of `by`.

    A trial without one of both values has no point.

    Args:
        points: the quantities of each trial by their names, with its `row`, `seed` and
            `trial`; None where a trial has none.
        x, y: the names of two quantities. `y` has numbers; `x` may have texts.
        by: the name of the quantity that colours the points.
        titles: what the axes say in place of names.
        log_x, log_y: whether an axis is logarithmic, which leaves out values that are
            not positive.

    Raises:
        AblateError: no trial has both values.
    """
    known_points = [
        point
        for point in points
        if _is_drawn(point[x], log_x) and _is_drawn(point[y], log_y)
    ]
    if not known_points:
        positive = " that are positive" if log_x or log_y else ""
        raise AblateError(f"no trial has values of both {x} and {y}{positive} yet")
    shown = titles or {}
    # In the order of the trials, so that colours stay when a study gets more of them.
    grouped: dict[Any, list[Mapping[str, Any]]] = {}
    for point in known_points:
        grouped.setdefault(point[by] if by else None, []).append(point)
    heading = shown.get(by, by)
    series = []
    for value, of_group in grouped.items():
        name = f"{heading} = {level_text(value)}" if by else "trials"
        series.append(_points(name, of_group, x, y))
    return Chart(
        title="",
        x=shown.get(x, x),
        y=shown.get(y, y),
        series=series,
        log_x=log_x,
        log_y=log_y,
        ticks_x=_ticks([point[x] for point in known_points]),
    )


def _ticks(values: Sequence[Any]) -> list[float]:
    """Returns the values themselves if they are a few whole numbers."""
    if not all(isinstance(value, int) for value in values):
        return []
    few = sorted(set(values))
    return few if len(few) <= MOST_TICKS else []


def _is_drawn(value: Any, logarithmic: bool) -> bool:
    if logarithmic:
        return isinstance(value, int | float) and value > 0
    return value is not None


def _points(name: str, points: Sequence[Mapping[str, Any]], x: str, y: str) -> Series:
    return Series(
        name=name,
        x=[point[x] for point in points],
        y=[point[y] for point in points],
        keys=[point["trial"] for point in points],
        texts=[f"row {point['row']}, seed {point['seed']}" for point in points],
    )
