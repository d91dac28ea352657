"""Draws still pictures with matplotlib: charts, and diagnostics by layer.

Equal data give equal bytes in SVG.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError
from ablate.report.charts import Axis, Chart, Coordinates, Series
from ablate.report.layer_means import Line
from ablate.report.palette import (
    COLOURS,
    GREY,
    NAMED,
    SCALE,
    SCALE_FROM,
    SCALE_TO,
    mark_index,
)
from ablate.report.row_labels import write_rows
from ablate.text import escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ablate.diagnostics import Diagnostic
    from ablate.report.shown_figure import ShownFigure

FORMS = ("svg", "png", "pdf")
MARKS = "osD^vpX*"
WHITE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
# Up to this many points of a plane are labelled with the number of their row.
MOST_NAMED = 40
# Up to this many points of a line have markers.
MOST_MARKED = 30
# The height of a line of a legend, in inches.
LEGEND_LINE = 0.15
# The width of the key of a legend and of a letter beside it, in inches.
KEY_WIDTH, LETTER_WIDTH = 0.45, 0.06
# The share of the width that names beside a sideways chart may take, and the height of a
# line of them in inches.
NAMES_WIDTH, NAME_LINE = 0.4, 0.13
# The share of the width that a sideways chart has at least, and the width of a letter in
# the name of an axis, in inches at 9 points.
AXES_WIDTH, NAME_LETTER = 0.45, 0.077
# Names of parallel axes that are nearer than this, in inches, are steep.
STEEP = 0.8
# The usual width in inches.
WIDTH = 7.0
# How many layers stand side by side in pictures of layers.
PANELS = 6
# What most journals ask for.
PNG_DPI = 300


@dataclass(frozen=True)
class FigureStyle:
    """How a figure looks in a paper.

    Attributes:
        width: in inches; by default 7, or more for many parallel axes. Text keeps its
            size of 7 to 9 points.
        title: whether the title is drawn; in a paper, the caption says it.
    """

    width: float | None = None
    title: bool = True


PLAIN = FigureStyle()


def save_layers(
    file: Path,
    title: str,
    diagnostic: Diagnostic,
    drawn: Sequence[tuple[str, Sequence[Line]]],
) -> None:
    """Draws one diagnostic to a file.

    Numbers are lines over layers, vectors are lines of layers over entries, and
    matrices are images.

    Args:
        drawn: lines by the name of the diagnostic; a second diagnostic (a bound) is
            dashed.

    Raises:
        AblateError: the file does not end in .svg, .png or .pdf.
    """
    from ablate.report.shown_figure import own_settings

    ending = ending_of(file, FORMS)
    with own_settings():
        if diagnostic.form == "matrix":
            figure = _images(title, diagnostic, drawn)
        elif diagnostic.form == "vector":
            figure = _over_entries(title, diagnostic.axis, drawn)
        else:
            figure = _over_layers(title, diagnostic.axis, drawn)
    _save(figure, file, ending)


def save_chart(
    file: Path, chart: Chart | Coordinates, style: FigureStyle = PLAIN
) -> None:
    """Draws a chart to a file: .svg, .png, .pdf or .html.

    The HTML page is interactive and needs no network; it ignores the style.

    Raises:
        AblateError: the file has another ending.
    """
    ending = ending_of(file, (*FORMS, "html"))
    if ending == "html":
        from ablate.report.plotly_charts import page

        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(chart), encoding="utf-8")
        return
    _save(drawn(chart, style), file, ending)


def svg(chart: Chart | Coordinates, style: FigureStyle = PLAIN) -> str:
    """Returns a chart as an SVG element that can be embedded in a page."""
    return drawn(chart, style).svg()


def note_of(chart: Chart | Coordinates) -> str:
    """Returns what a reader of a chart has to know; empty if there is nothing."""
    if isinstance(chart, Coordinates):
        return chart.note
    if _shows_rows(chart) and any(series.keys for series in chart.series):
        numbers = (
            "Numbers: rows of the table; in brackets: rows hidden behind the mark."
        )
        return f"{chart.note} {numbers}".strip()
    return chart.note


def drawn(chart: Chart | Coordinates, style: FigureStyle = PLAIN) -> ShownFigure:
    """Returns a chart as a matplotlib figure."""
    from ablate.report.shown_figure import own_settings

    with own_settings():
        if isinstance(chart, Coordinates):
            return _parallel(chart, style)
        return _charted(chart, style)


def ending_of(file: Path, forms: Sequence[str]) -> str:
    """Returns the ending of a figure's file.

    Raises AblateError if it is not one of those known.
    """
    ending = file.suffix.removeprefix(".")
    if ending not in forms:
        raise AblateError(
            f"{file}: the name of a figure ends in {', '.join(forms)}; name a file"
            f" like {file.parent / ((file.stem or 'figure') + '.svg')}"
        )
    return ending


def _save(figure: ShownFigure, file: Path, ending: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(file, dpi=PNG_DPI, metadata=undated.get(ending, {}))


def _charted(chart: Chart, style: FigureStyle) -> ShownFigure:
    points = sum(len(series.y) for series in chart.series)
    height = max(2.5, 1.5 + 0.3 * (points if chart.sideways else 9))
    width = style.width or WIDTH
    if not chart.sideways:
        height *= min(1.0, max(0.6, width / WIDTH))
    figure = _figure(width, height)
    axes = figure.add_subplot()
    names = chart.categories()
    for number, series in enumerate(chart.series):
        index = number if series.like is None else series.like
        look: dict[str, Any] = {
            "color": NAMED.get(series.name, COLOURS[index % len(COLOURS)]),
            # matplotlib leaves this label out of the legend.
            "label": escape.figure(series.name) if series.like is None else "_",
        }
        mark = MARKS[mark_index(series.name, index)]
        if chart.form == "bars":
            _draw_bars(axes, chart, series, names, index, look)
        elif chart.form == "lines":
            _draw_line(axes, chart, series, mark, look)
        else:
            y = list(series.y)
            if chart.sideways:
                shift = _shift(chart, index)
                y = [names.index(name) + shift for name in series.y]
            _draw_points(axes, chart, series, y, mark, look)
    _dress(axes, chart, names, style)
    if _shows_rows(chart):
        write_rows(axes, chart)
    return figure


def _shift(chart: Chart, index: int) -> float:
    """Returns the offset of a series on the y axis, so that series do not overlap."""
    if not chart.shares_categories:
        return 0.0
    return 0.2 * (index - (len(chart.series) - 1) / 2)


def _draw_bars(
    axes: Axes,
    chart: Chart,
    series: Series,
    names: list[str],
    index: int,
    style: dict[str, Any],
) -> None:
    height = 0.8 / len(chart.series)
    y = [names.index(name) + height * index for name in series.y]
    axes.barh(y, list(series.x), height, **style)


def _draw_line(
    axes: Axes, chart: Chart, series: Series, mark: str, style: dict[str, Any]
) -> None:
    """Draws a line, and its interval as a band."""
    longest = max(len(series.y) for series in chart.series)
    if longest > MOST_MARKED:
        mark = ""
    if len(series.x) == 1:
        # A band of one point has no width.
        _draw_points(axes, chart, series, list(series.y), mark, style)
        return
    line = "--" if series.dashed else "-"
    axes.plot(series.x, series.y, line, marker=mark, markersize=3, **style)
    if series.low is None or series.high is None:
        return
    axes.fill_between(
        list(series.x),
        list(series.low),
        list(series.high),
        color=style["color"],
        alpha=0.15,
        linewidth=0,
    )


def _draw_points(
    axes: Axes,
    chart: Chart,
    series: Series,
    y: list[Any],
    mark: str,
    style: dict[str, Any],
) -> None:
    """Draws points with their intervals, joined if the series is."""
    axes.errorbar(
        list(series.x),
        y,
        **_spread(chart, series),
        **style,
        marker=mark,
        linestyle="-" if series.joined else "",
        drawstyle="steps-post" if series.steps else "default",
        capsize=2,
    )


def _shows_rows(chart: Chart) -> bool:
    """Whether each point of a plane is labelled with the number of its row."""
    if chart.form != "points" or chart.sideways:
        return False
    return sum(len(series.y) for series in chart.series) <= MOST_NAMED


def _dress(axes: Axes, chart: Chart, names: list[str], style: FigureStyle) -> None:
    """Adds axes, title, grid and legend."""
    from matplotlib.ticker import MaxNLocator

    if chart.sideways:
        letters = int(NAMES_WIDTH * (style.width or WIDTH) / LETTER_WIDTH)
        labels = [_wrapped(escape.figure(name), letters) for name in names]
        axes.set_yticks(range(len(names)), labels, fontsize=8)
        _grow(axes, NAME_LINE * sum(label.count("\n") for label in labels))
        axes.set_ylim(len(names) - 0.4, -0.6)
    elif chart.form == "lines":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if chart.zero:
        draw_zero = axes.axvline if chart.sideways else axes.axhline
        draw_zero(0, color=GREY, linestyle=":")
    if chart.range_x is not None:
        axes.set_xlim(chart.range_x)
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    if chart.ticks_x and chart.log_x:
        axes.set_xticks(list(chart.ticks_x), [f"{tick:g}" for tick in chart.ticks_x])
        axes.minorticks_off()
    elif chart.ticks_x:
        axes.set_xticks(list(chart.ticks_x))
    note = note_of(chart)
    title = f"{chart.title}\n{note}" if note else chart.title
    _name_axes(axes, chart, style.width or WIDTH)
    axes.tick_params(labelsize=8)
    if style.title:
        axes.set_title(escape.figure(title), fontsize=9, wrap=True)
    axes.grid(alpha=0.3)
    _add_legend(axes, style.width or WIDTH)


def _name_axes(axes: Axes, chart: Chart, width: float) -> None:
    """Writes the names of the axes, in lines that lie inside the figure.

    Matplotlib centres a name on its axis and cuts it off at the edge of the figure.
    """
    if chart.sideways:
        across = AXES_WIDTH * width
    else:
        across = 0.8 * width
    figure: Any = axes.figure
    upwards = 0.8 * figure.get_figheight()
    x = _wrapped(escape.figure(chart.x), int(across / NAME_LETTER))
    y = _wrapped(escape.figure(chart.y), int(upwards / NAME_LETTER))
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    _grow(axes, NAME_LINE * x.count("\n"))


def _add_legend(axes: Axes, width: float) -> None:
    """Puts the legend below the axes, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    # The width of an entry in inches, at 7 points.
    widest = KEY_WIDTH + LETTER_WIDTH * max(map(len, labels), default=0)
    columns = max(1, min(len(labels), int(width / widest)))
    letters = int((width - KEY_WIDTH) / LETTER_WIDTH)
    texts = [_wrapped(label, letters) for label in labels]
    rows = math.ceil(len(labels) / columns)
    wrapped = sum(text.count("\n") for text in texts)
    _grow(axes, LEGEND_LINE * max(0, rows + wrapped - 1))
    figure: Any = axes.figure
    figure.legend(
        handles,
        texts,
        fontsize=7,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
    )


def _wrapped(text: str, letters: int) -> str:
    """Returns a text in lines of so many letters.

    Words stay whole, because a break could part a sign from its escape.
    """
    return textwrap.fill(
        text, max(1, letters), break_long_words=False, break_on_hyphens=False
    )


def _grow(axes: Axes, inches: float) -> None:
    """Makes a figure higher, so that more lines of text take nothing from its axes."""
    figure: Any = axes.figure
    figure.set_figheight(figure.get_figheight() + inches)


def _spread(chart: Chart, series: Series) -> dict[str, Any]:
    if series.low is None or series.high is None:
        return {}
    values = series.x if chart.sideways else series.y
    below = [
        max(0.0, value - low) for value, low in zip(values, series.low, strict=True)
    ]
    above = [
        max(0.0, high - value) for value, high in zip(values, series.high, strict=True)
    ]
    return {"xerr" if chart.sideways else "yerr": [below, above]}


def _parallel(chart: Coordinates, style: FigureStyle) -> ShownFigure:
    """Draws cells as lines over parallel axes, coloured by their value on the last one.

    Each axis is scaled from its least to its largest value.
    """
    width = style.width or max(6, 1.4 * len(chart.axes))
    apart = width / len(chart.axes)
    figure = _figure(width, 4)
    axes = figure.add_subplot()

    columns = [_stretched(axis) for axis in chart.axes]
    shades = _add_colour_bar(axes, chart.axes[-1])
    for line in zip(*columns, strict=True):
        axes.plot(range(len(line)), line, color=shades(line[-1]), linewidth=1)
    for at, axis in enumerate(chart.axes):
        axes.axvline(at, color="black", linewidth=0.5)
        for height, text in _tick_texts(axis, columns[at]).items():
            axes.text(
                at - 0.02,
                height,
                text,
                fontsize=7,
                ha="right",
                va="center",
                bbox=WHITE,
            )
    axes.set_xticks(
        range(len(chart.axes)),
        [escape.figure(axis.name) for axis in chart.axes],
        fontsize=8,
        rotation=20 if apart > STEEP else 50,
        ha="center" if apart > STEEP else "right",
        rotation_mode="default" if apart > STEEP else "anchor",
    )
    axes.set_yticks([])
    axes.set_xlim(-0.4, len(chart.axes) - 0.9)
    if style.title:
        axes.set_title(
            escape.figure(f"{chart.title}\n{note_of(chart)}"), fontsize=9, wrap=True
        )
    return figure


def _add_colour_bar(axes: Axes, axis: Axis) -> Callable[[float], Any]:
    """Adds the scale of the values of an axis; returns the colour of 0 to 1 on it."""
    import matplotlib
    import numpy as np
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    whole = matplotlib.colormaps[SCALE]
    # Of more colours, matplotlib makes a picture inside the SVG.
    part = ListedColormap(whole(np.linspace(SCALE_FROM, SCALE_TO, 48)))
    scale = ScalarMappable(Normalize(min(axis.values), max(axis.values)), part)
    figure: Any = axes.figure
    bar = figure.colorbar(scale, ax=axes, pad=0.02)
    bar.set_label(escape.figure(axis.name), fontsize=8)
    bar.ax.tick_params(labelsize=7)
    # Otherwise a viewer shows white seams between the colours.
    bar.solids.set_edgecolor("face")
    return part


def _stretched(axis: Axis) -> list[float]:
    """Scales the values to between 0 and 1; 0.5 if all are equal."""
    low = min(axis.values)
    high = max(axis.values)
    if low == high:
        return [0.5] * len(axis.values)
    return [(value - low) / (high - low) for value in axis.values]


def _tick_texts(axis: Axis, heights: Sequence[float]) -> dict[float, str]:
    """Returns the texts beside an axis by height: levels, or the extremes."""
    if not axis.ticks:
        return {1.0: f"{max(axis.values):.4g}", 0.0: f"{min(axis.values):.4g}"}
    return {
        height: escape.figure(axis.ticks[int(value)])
        for value, height in zip(axis.values, heights, strict=True)
    }


def _figure(wide: float, high: float) -> ShownFigure:
    from ablate.report.shown_figure import ShownFigure

    return ShownFigure(figsize=(wide, high), layout="constrained")


def _lines(drawn: Sequence[tuple[str, Sequence[Line]]]) -> list[Line]:
    """The lines of all diagnostics."""
    return list(itertools.chain.from_iterable(lines for _, lines in drawn))


def _over_layers(
    title: str, axis: str, drawn: Sequence[tuple[str, Sequence[Line]]]
) -> ShownFigure:
    from matplotlib.ticker import MaxNLocator

    figure = _figure(WIDTH, 4)
    axes = figure.add_subplot()
    for number, (name, lines) in enumerate(drawn):
        for index, line in enumerate(lines):
            label = line.label
            if len(drawn) > 1:
                label += f" ({name.rpartition('.')[2]})"
            axes.plot(
                list(line.layers),
                list(line.layers.values()),
                color=COLOURS[index % len(COLOURS)],
                marker=MARKS[index % len(MARKS)],
                linestyle="--" if number else "-",
                markersize=4,
                label=escape.figure(label),
            )
    values: list[float] = []
    for line in _lines(drawn):
        values += line.layers.values()
    if min(values) > 0 and max(values) > 50 * min(values):
        axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="layer", ylabel=escape.figure(axis), title=escape.figure(title))
    axes.grid(alpha=0.3)
    _add_legend(axes, WIDTH)
    return figure


def _over_entries(
    title: str, axis: str, drawn: Sequence[tuple[str, Sequence[Line]]]
) -> ShownFigure:
    """Draws one panel per cell, with layers from light to dark."""
    lines = _lines(drawn)
    columns = min(3, len(lines))
    figure = _figure(3.4 * columns, 2.8 * math.ceil(len(lines) / columns))
    figure.suptitle(escape.figure(title), fontsize=10)
    for index, line in enumerate(lines):
        axes = figure.add_subplot(math.ceil(len(lines) / columns), columns, index + 1)
        for rank, (layer, values) in enumerate(line.layers.items()):
            shade = 0.85 - 0.85 * rank / max(1, len(line.layers) - 1)
            axes.plot(
                values,
                color=str(shade),
                label=f"layer {layer}" if rank in (0, len(line.layers) - 1) else None,
            )
        positive = all(min(values) > 0 for values in line.layers.values())
        axes.set(xlabel=escape.figure(axis), yscale="log" if positive else "linear")
        axes.set_title(escape.figure(line.label), fontsize=8)
        axes.legend(fontsize=7)
    return figure


def _images(
    title: str, diagnostic: Diagnostic, drawn: Sequence[tuple[str, Sequence[Line]]]
) -> ShownFigure:
    """Draws a panel for each layer of each cell."""
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize

    lines = _lines(drawn)
    norm: Normalize | None = None
    if diagnostic.colours == "cosines":
        norm = Normalize(-1, 1)
    elif diagnostic.colours == "logarithm":
        values = [np.ravel(m) for line in lines for m in line.layers.values()]
        norm = LogNorm(max(np.concatenate(values).min(), 1e-3), clip=True)
    shape = np.shape(next(iter(lines[0].layers.values())))
    flat = 1.0
    if diagnostic.colours != "logarithm":
        flat = min(1.0, shape[0] / shape[1])
    columns = min(PANELS, max(3, *(len(line.layers) for line in lines)))
    rows = [math.ceil(len(line.layers) / columns) for line in lines]
    height = (8 / columns - 0.4) * flat + 0.5
    figure = _figure(8, 0.6 + height * sum(rows))
    figure.suptitle(escape.figure(title), fontsize=10)
    panels: list[Any] = []
    image: Any = None
    for number, line in enumerate(lines):
        before = columns * sum(rows[:number])
        for place, (layer, of_layer) in enumerate(
            line.layers.items(), start=before + 1
        ):
            axes = figure.add_subplot(sum(rows), columns, place)
            image = axes.imshow(
                of_layer,
                norm=norm,
                aspect="auto" if diagnostic.colours == "logarithm" else "equal",
                cmap="cividis",
                interpolation="nearest",
            )
            axes.set_title(f"layer {layer}", fontsize=7)
            axes.set(xticks=[], yticks=[])
            axes.set_xlabel(escape.figure(diagnostic.axis), fontsize=6)
            if place == before + 1:
                wrapped = textwrap.fill(
                    line.label, width=round(14 * height), break_long_words=False
                )
                axes.set_ylabel(escape.figure(wrapped), fontsize=7)
            panels.append(axes)
    # Panels with a scale of their own have no common bar of colours.
    if norm is not None:
        figure.colorbar(image, ax=panels, shrink=0.8)
    return figure
