"""The numbers of rows beside the points of a printed figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ablate import escape
from ablate.report.charts import Chart, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

# Where the number of a row may stand beside its point, the best place first: the offset
# in points, and what of the text lies there.
BESIDE = (
    ((4, 3), "left", "baseline"),
    ((4, -3), "left", "top"),
    ((-4, 3), "right", "baseline"),
    ((-4, -3), "right", "top"),
)


def write_rows(place: Axes, chart: Chart) -> None:
    """Writes the number of its row beside each point, where there is room for it.

    The series that is drawn last is the most important one, so it has the first choice.
    """
    figure: Any = place.figure
    figure.draw_without_rendering()
    taken: list[Bbox] = []
    points: list[tuple[float, float]] = []
    for series in chart.series:
        if series.keys:
            points += place.transData.transform(_places(place, series)).tolist()
    for series in reversed(chart.series):
        for key, point in zip(series.keys, _places(place, series), strict=False):
            text = escape.figure(str(key))
            box = _write_beside(place, text, point, points, taken)
            if box is not None:
                taken.append(box)


def _places(place: Axes, series: Series) -> list[tuple[float, float]]:
    """Returns the points of a series as numbers; an axis of levels counts them."""
    axes: Any = place
    x = axes.xaxis.convert_units(list(series.x))
    y = axes.yaxis.convert_units(list(series.y))
    return list(zip(x, y, strict=True))


def _write_beside(
    place: Axes,
    text: str,
    point: tuple[float, float],
    points: Sequence[tuple[float, float]],
    taken: Sequence[Bbox],
) -> Bbox | None:
    """Writes a text beside a point, where no other point is nearer.

    Returns:
        The box of the text, or None if there is no room.
    """
    own = place.transData.transform(point)
    for offset, across, along in BESIDE:
        written = place.annotate(
            text,
            point,
            offset,
            textcoords="offset points",
            fontsize=7,
            horizontalalignment=across,
            verticalalignment=along,
        )
        box = written.get_window_extent()
        centre = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
        nearest = min(math.dist(centre, other) for other in points)
        misleads = math.dist(centre, own) > nearest
        if not misleads and not any(box.overlaps(other) for other in taken):
            return box
        written.remove()
    return None
