"""Still pictures (matplotlib): charts, and diagnostics by layer as the papers show them. Equal data give equal bytes in SVG."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate import escape
from ablate.errors import AblateError
from ablate.report.charts import Axis, Chart, Coordinates, Series
from ablate.report.layers import Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMS = ("svg", "png", "pdf")
# Okabe and Ito's colours, told apart by colour-blind eyes too; lines differ in their marks as well.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
MARKS = "osD^vP*X"
WHITE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
MOST_NAMED = 40
VERDICTS = {"helps": "#0072B2", "hurts": "#D55E00", "no difference": "#009E73", "inconclusive": "#8C8C8C"}
"""A verdict has one colour everywhere."""


def save_layers(file: Path, title: str, axis: str, form: str, drawn: Sequence[tuple[str, Sequence[Line]]]) -> None:
    """Draws one diagnostic to a file: numbers as lines over layers, vectors as lines of layers over entries, matrices as images.

    Args:
        form: number, vector or matrix.
        drawn: lines by the name of the diagnostic; a second one (a bound) is dashed.

    Raises:
        AblateError: the file's ending is none of svg, png and pdf.
    """
    ending = ending_of(file, FORMS)
    _prepared()
    _save({"number": _over_layers, "vector": _over_entries, "matrix": _images}[form](title, axis, drawn), file, ending)


def save_chart(file: Path, chart: Chart | Coordinates) -> None:
    """Draws a chart to a file: .svg, .png, .pdf, or .html for an interactive page that needs no network.

    Raises:
        AblateError: the file has another ending.
    """
    ending = ending_of(file, (*FORMS, "html"))
    if ending == "html":
        from ablate.report.interactive import page

        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(chart), encoding="utf-8")
        return
    _save(drawn(chart), file, ending)


def svg(chart: Chart | Coordinates) -> str:
    """A chart as an SVG element, to stand in a page."""
    stream = io.StringIO()
    drawn(chart).savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def drawn(chart: Chart | Coordinates) -> Figure:
    """A chart as a matplotlib figure."""
    _prepared()
    return _parallel(chart) if isinstance(chart, Coordinates) else _charted(chart)


def ending_of(file: Path, known: Sequence[str]) -> str:
    """The ending of a figure's file. Raises AblateError where it is none of those known."""
    ending = file.suffix.removeprefix(".")
    if ending not in known:
        raise AblateError(
            f"{file}: a figure is {', '.join(known)}; name a file like {file.parent / ((file.stem or 'figure') + '.svg')}"
        )
    return ending


def _prepared() -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ablate"
    # Whatever a user's matplotlibrc says: with TeX, every text of a study would be a program.
    matplotlib.rcParams["text.usetex"] = False


def _save(figure: Figure, file: Path, ending: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(file, dpi=150, metadata=undated.get(ending, {}))


def _charted(chart: Chart) -> Figure:
    from matplotlib.ticker import MaxNLocator

    longest = max((len(series.y) for series in chart.series), default=1)
    total = sum(len(series.y) for series in chart.series)
    figure = _figure(7, max(2.5, 1.5 + 0.3 * (total if chart.sideways else 9)))
    place = figure.add_subplot()
    names = list(dict.fromkeys(name for series in chart.series for name in (series.y if chart.sideways else ())))
    # Series that share their categories stand beside each other.
    apart = 0.2 if len(names) < total and chart.form != "bars" else 0.0
    for index, series in enumerate(chart.series):
        colour = VERDICTS.get(series.name, COLOURS[index % len(COLOURS)])
        mark = MARKS[index % len(MARKS)]
        shift = apart * (index - (len(chart.series) - 1) / 2)
        y = [names.index(name) + shift for name in series.y] if chart.sideways else list(series.y)
        if chart.form == "bars":
            high = 0.8 / len(chart.series)
            place.barh([at + high * index for at in y], list(series.x), high, color=colour, label=escape.figure(series.name))
        elif chart.form == "lines":
            place.plot(
                list(series.x),
                y,
                color=colour,
                marker=mark if longest <= 30 else "",
                markersize=3,
                label=escape.figure(series.name),
            )
            if series.low is not None and series.high is not None:
                place.fill_between(list(series.x), list(series.low), list(series.high), color=colour, alpha=0.15, linewidth=0)
        else:
            spread = _spread(chart, series)
            line = "-" if series.joined else ""
            place.errorbar(
                list(series.x),
                y,
                **spread,
                color=colour,
                marker=mark,
                linestyle=line,
                capsize=2,
                label=escape.figure(series.name),
            )
            # Of points in a plane, which row each is.
            for key, x, at in zip(series.keys if not chart.sideways else (), series.x, y, strict=False):
                if total <= MOST_NAMED:
                    place.annotate(escape.figure(str(key)), (x, at), (4, 3), textcoords="offset points", fontsize=7)
    if chart.sideways:
        place.set_yticks(range(len(names)), [escape.figure(name) for name in names], fontsize=8)
        place.set_ylim(len(names) - 0.4, -0.6)
    elif chart.form == "lines":
        place.xaxis.set_major_locator(MaxNLocator(integer=True))
    if chart.zero:
        (place.axvline if chart.sideways else place.axhline)(0, color="#8C8C8C", linestyle=":")
    place.set(xlabel=escape.figure(chart.x), ylabel=escape.figure(chart.y))
    named = chart.form == "points" and not chart.sideways and total <= MOST_NAMED and any(series.keys for series in chart.series)
    note = f"{chart.note} Numbers: rows of the table.".strip() if named else chart.note
    place.set_title(escape.figure(f"{chart.title}\n{note}" if note else chart.title), fontsize=9, wrap=True)
    place.grid(alpha=0.3)
    place.legend(fontsize=7)
    return figure


def _spread(chart: Chart, series: Series) -> dict[str, Any]:
    if series.low is None or series.high is None:
        return {}
    values = series.x if chart.sideways else series.y
    below = [max(0.0, value - low) for value, low in zip(values, series.low, strict=True)]
    above = [max(0.0, high - value) for value, high in zip(values, series.high, strict=True)]
    return {"xerr" if chart.sideways else "yerr": [below, above]}


def _parallel(chart: Coordinates) -> Figure:
    """Cells as lines over axes, each stretched from its least to its largest value, shaded by the last."""
    import matplotlib

    figure = _figure(max(6, 1.4 * len(chart.axes)), 4)
    place = figure.add_subplot()

    def stretched(axis: Axis) -> list[float]:
        low, high = min(axis.values), max(axis.values)
        return [(value - low) / (high - low) if high > low else 0.5 for value in axis.values]

    columns = [stretched(axis) for axis in chart.axes]
    shades = matplotlib.colormaps["cividis"]
    for line in zip(*columns, strict=True):
        place.plot(range(len(line)), line, color=shades(line[-1]), linewidth=1)
    for at, axis in enumerate(chart.axes):
        place.axvline(at, color="black", linewidth=0.5)
        if axis.ticks:
            heights = dict(zip(axis.values, columns[at], strict=True))
            for number, height in heights.items():
                place.text(
                    at - 0.02, height, escape.figure(axis.ticks[int(number)]), fontsize=7, ha="right", va="center", bbox=WHITE
                )
        else:
            place.text(at - 0.02, 1, f"{max(axis.values):.4g}", fontsize=7, ha="right", va="center", bbox=WHITE)
            place.text(at - 0.02, 0, f"{min(axis.values):.4g}", fontsize=7, ha="right", va="center", bbox=WHITE)
    place.set_xticks(range(len(chart.axes)), [escape.figure(axis.name) for axis in chart.axes], fontsize=8, rotation=20)
    place.set_yticks([])
    place.set_xlim(-0.4, len(chart.axes) - 0.9)
    place.set_title(escape.figure(f"{chart.title}\nOne line a row; the lighter, the larger {chart.axes[-1].name}."), fontsize=9)
    return figure


def _figure(wide: float, high: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(wide, high), layout="constrained")


def _over_layers(title: str, axis: str, drawn: Sequence[tuple[str, Sequence[Line]]]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    figure = _figure(7, 4)
    place = figure.add_subplot()
    for number, (name, found) in enumerate(drawn):
        for index, line in enumerate(found):
            place.plot(
                list(line.layers),
                list(line.layers.values()),
                color=COLOURS[index % len(COLOURS)],
                marker=MARKS[index % len(MARKS)],
                linestyle="--" if number else "-",
                markersize=4,
                label=escape.figure(line.label if len(drawn) == 1 else f"{line.label} ({name.rpartition('.')[2]})"),
            )
    everything = [value for _, found in drawn for line in found for value in line.layers.values()]
    if min(everything) > 0 and max(everything) > 50 * min(everything):
        place.set_yscale("log")
    place.xaxis.set_major_locator(MaxNLocator(integer=True))
    place.set(xlabel="layer", ylabel=escape.figure(axis), title=escape.figure(title))
    place.grid(alpha=0.3)
    place.legend(fontsize=8)
    return figure


def _over_entries(title: str, axis: str, drawn: Sequence[tuple[str, Sequence[Line]]]) -> Figure:
    """One panel a cell; layers from light to dark."""
    found = [line for _, some in drawn for line in some]
    columns = min(3, len(found))
    figure = _figure(3.4 * columns, 2.8 * math.ceil(len(found) / columns))
    figure.suptitle(escape.figure(title), fontsize=10)
    for index, line in enumerate(found):
        place = figure.add_subplot(math.ceil(len(found) / columns), columns, index + 1)
        for rank, (layer, values) in enumerate(line.layers.items()):
            shade = 0.85 - 0.85 * rank / max(1, len(line.layers) - 1)
            place.plot(values, color=str(shade), label=f"layer {layer}" if rank in (0, len(line.layers) - 1) else None)
        place.set(xlabel=escape.figure(axis), yscale="log")
        place.set_title(escape.figure(line.label), fontsize=8)
        place.legend(fontsize=7)
    return figure


def _images(title: str, axis: str, drawn: Sequence[tuple[str, Sequence[Line]]]) -> Figure:
    """One row of panels a cell: its first, middle and last layer."""
    found = [line for _, some in drawn for line in some]
    figure = _figure(8, 2.6 * len(found))
    figure.suptitle(escape.figure(title), fontsize=10)
    panels: list[Any] = []
    image: Any = None
    for row, line in enumerate(found):
        layers = list(line.layers)
        for column, layer in enumerate([layers[0], layers[len(layers) // 2], layers[-1]]):
            place = figure.add_subplot(len(found), 3, 3 * row + column + 1)
            image = place.imshow(line.layers[layer], vmin=-1, vmax=1, cmap="cividis", interpolation="nearest")
            place.set_title(escape.figure(f"{line.label}, layer {layer}"), fontsize=7)
            place.set(xticks=[], yticks=[], xlabel=escape.figure(axis))
            panels.append(place)
    figure.colorbar(image, ax=panels, shrink=0.8)
    return figure
