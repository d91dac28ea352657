"""The numbers of rows beside the points of a printed figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablate.report.charts import Chart, Series
from ablate.text import escape

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


# A point hides another one if their distance in points is at most this.
HIDES = 2.5
POINTS_PER_INCH = 72


@dataclass(frozen=True)
class _Mark:
    """A point that stands for a row: in data coordinates, and in pixels."""

    key: Any
    point: tuple[float, float]
    pixel: tuple[float, float]


def write_rows(axes: Axes, chart: Chart) -> None:
    """Writes the number of its row beside each point, where there is room for it.

    Points that hide one another have one text with the numbers of all their rows. What
    is drawn last is visible and the most important, so it has the first choice.
    """
    figure: Any = axes.figure
    figure.draw_without_rendering()
    marks: list[_Mark] = []
    for series in reversed(chart.series):
        marks += _marks(axes, series)
    near = HIDES * figure.dpi / POINTS_PER_INCH
    taken: list[Bbox] = []
    written: set[Any] = set()
    for mark in marks:
        if mark.key in written:
            continue
        together = set()
        others = []
        for other in marks:
            if math.dist(mark.pixel, other.pixel) <= near:
                together.add(other.key)
            else:
                others.append(other.pixel)
        # Without room for all numbers, that of the visible mark stands alone.
        for hidden in (sorted(together - written - {mark.key}), []):
            text = escape.figure(_text(mark.key, hidden))
            box = _write_beside(axes, text, mark.point, others, taken)
            if box is not None:
                taken.append(box)
                written.update([mark.key, *hidden])
                break


def _text(visible: Any, hidden: Sequence[Any]) -> str:
    """Returns the number of the visible mark, then those of marks behind it."""
    if not hidden:
        return str(visible)
    return f"{visible} ({', '.join(map(str, hidden))})"


def _marks(axes: Axes, series: Series) -> list[_Mark]:
    """Returns the points of a series that stand for a row, the last drawn one first."""
    places = _places(axes, series)
    pixels = axes.transData.transform(places).tolist() if places else []
    marks = [
        _Mark(key=key, point=point, pixel=tuple(pixel))
        for key, point, pixel in zip(series.keys, places, pixels, strict=False)
    ]
    return marks[::-1]


def _places(any_axes: Axes, series: Series) -> list[tuple[float, float]]:
    """Returns the points of a series as numbers; an axis of levels counts them."""
    axes: Any = any_axes
    x = axes.xaxis.convert_units(list(series.x))
    y = axes.yaxis.convert_units(list(series.y))
    return list(zip(x, y, strict=True))


def _write_beside(
    axes: Axes,
    text: str,
    point: tuple[float, float],
    others: Sequence[tuple[float, float]],
    taken: Sequence[Bbox],
) -> Bbox | None:
    """Writes a text beside a point, where no other point is nearer.

    Returns:
        The box of the text, or None if there is no room.
    """
    position = axes.transData.transform(point)
    for offset, across, along in BESIDE:
        written = axes.annotate(
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
        nearest = min((math.dist(centre, other) for other in others), default=math.inf)
        misleads = math.dist(centre, position) > nearest
        if not misleads and not any(box.overlaps(other) for other in taken):
            return box
        written.remove()
    return None
