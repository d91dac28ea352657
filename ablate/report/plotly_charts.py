"""Draws charts as Plotly figures, for pages with zoom and clicks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from ablate.report.charts import Chart, Coordinates, Series
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
from ablate.text import escape

SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "pentagon",
    "x",
    "star",
)

# Up to this many points are SVG shapes; more are drawn by the graphics card.
MOST_SVG = 1000


def draw(chart: Chart | Coordinates) -> Any:
    """Returns a `plotly.graph_objects.Figure` with the points' keys as `customdata`."""
    if isinstance(chart, Coordinates):
        return _parallel(chart)
    figure = go.Figure()
    for number, series in enumerate(chart.series):
        index = number if series.like is None else series.like
        # Skip black, which is invisible on a dark page.
        colour = NAMED.get(series.name, _colour(index))
        if chart.form == "bars":
            x = _shown(series.x)
            y = _shown(series.y)
            figure.add_bar(
                x=x,
                y=y,
                name=escape.plotly(series.name),
                orientation="h",
                marker_color=colour,
            )
            continue
        if chart.form == "lines" and series.low is not None and series.high is not None:
            _band(figure, series, colour)
        # WebGL draws thousands of points fast.
        (figure.add_scattergl if len(series.x) > MOST_SVG else figure.add_scatter)(
            x=_shown(series.x),
            y=_shown(series.y),
            name=escape.plotly(series.name),
            mode=_mode(chart, series),
            marker={
                "color": colour,
                "symbol": SYMBOLS[mark_index(series.name, index)],
                "size": 9 if chart.form == "points" else 5,
            },
            line={
                "color": colour,
                "shape": "hv" if series.steps else "linear",
                "dash": "dash" if series.dashed else "solid",
            },
            showlegend=series.like is None,
            customdata=list(series.keys) or None,
            hovertext=_shown(series.texts) or None,
            hovertemplate=_hover(series),
            **_bars(chart, series),
            **_labels(series),
        )
    if chart.zero:
        (figure.add_vline if chart.sideways else figure.add_hline)(
            0, line_dash="dot", line_color=GREY
        )
    figure.update_layout(
        title={
            "text": escape.plotly(chart.title),
            "subtitle": {"text": escape.plotly(chart.note)},
        },
        xaxis_title=escape.plotly(chart.x),
        yaxis_title=escape.plotly(chart.y),
        legend={"orientation": "h", "y": -0.25},
        height=(
            max(360, 60 + 34 * max((len(s.y) for s in chart.series), default=0))
            if chart.sideways
            else 420
        ),
        margin={"l": 10, "r": 10, "b": 10},
    )
    _set_axes(figure, chart)
    return figure


def _set_axes(figure: Any, chart: Chart) -> None:
    """Sets order, scale and ticks of the axes."""
    if chart.sideways and chart.shares_categories:
        # Series with the same categories lie beside one another.
        figure.update_layout(scattermode="group", scattergap=0.5)
        figure.update_traces(orientation="h")
    if chart.sideways:
        figure.update_yaxes(
            autorange="reversed",
            automargin=True,
            categoryorder="array",
            categoryarray=_shown(chart.categories()),
        )
    if chart.range_x is not None:
        figure.update_xaxes(range=list(chart.range_x))
    if chart.log_y:
        figure.update_yaxes(type="log")
    if chart.log_x:
        figure.update_xaxes(type="log")
    elif any(_has_texts(series.x) for series in chart.series):
        # Plotly would read levels such as "0" and "2" as numbers.
        figure.update_xaxes(type="category")
    if chart.ticks_x:
        texts = [f"{tick:g}" for tick in chart.ticks_x]
        figure.update_xaxes(tickvals=list(chart.ticks_x), ticktext=texts)


def _has_texts(values: Sequence[Any]) -> bool:
    return any(isinstance(value, str) for value in values)


def _colour(index: int) -> str:
    """Returns the colour of a series, which is that of the printed figure.

    The first one is grey instead of black, which a dark page would hide.
    """
    colour = COLOURS[index % len(COLOURS)]
    return GREY if colour == COLOURS[0] else colour


def _shown(values: Sequence[Any]) -> list[Any]:
    """Returns numbers unchanged, and texts escaped for Plotly."""
    return [
        escape.plotly(value) if isinstance(value, str) else value for value in values
    ]


def _hover(series: Series) -> str | None:
    if series.texts:
        return "%{hovertext}<br>%{x:.4g}, %{y:.4g}<extra></extra>"
    if series.keys:
        return "row %{customdata}<br>%{x:.4g}, %{y:.4g}<extra></extra>"
    return None


def _mode(chart: Chart, series: Series) -> str:
    if chart.form == "lines" and len(series.x) > 30:
        return "lines"
    if series.labels:
        return "lines+markers+text"
    if series.joined:
        return "lines+markers"
    return "markers"


def _labels(series: Series) -> dict[str, Any]:
    """Returns the texts beside the points; those of the first points may reach beyond
    the axes.
    """
    if not series.labels:
        return {}
    return {
        "text": _shown(series.labels),
        "textposition": "top left",
        "cliponaxis": False,
    }


def _bars(chart: Chart, series: Series) -> dict[str, Any]:
    """Returns intervals as error bars on the axis of the values."""
    if series.low is None or series.high is None:
        return {}
    # Lines have bands, but a band of one point has no width.
    if chart.form != "points" and len(series.x) > 1:
        return {}
    values = series.x if chart.sideways else series.y
    return {
        "error_x" if chart.sideways else "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [
                high - value for high, value in zip(series.high, values, strict=True)
            ],
            "arrayminus": [
                value - low for low, value in zip(series.low, values, strict=True)
            ],
        }
    }


def _band(figure: Any, series: Series, colour: str) -> None:
    x = _shown([*series.x, *reversed(series.x)])
    y = [*(series.high or ()), *reversed(series.low or ())]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        fill="toself",
        fillcolor=colour,
        opacity=0.15,
        line_width=0,
        hoverinfo="skip",
        showlegend=False,
    )


def _parallel(chart: Coordinates) -> Any:
    dimensions = []
    for axis in chart.axes:
        dimension: dict[str, Any] = {
            "label": escape.plotly(axis.name),
            "values": list(axis.values),
        }
        if axis.ticks:
            dimension["tickvals"] = list(range(len(axis.ticks)))
            # Plotly does not read the ticks of this one chart as HTML.
            dimension["ticktext"] = list(map(escape.line, axis.ticks))
        dimensions.append(dimension)
    line = {
        "color": list(chart.axes[-1].values),
        "colorscale": sample_colorscale(
            SCALE, [SCALE_FROM + (SCALE_TO - SCALE_FROM) * i / 10 for i in range(11)]
        ),
        "showscale": True,
    }
    # Sloping labels do not overlap on a phone.
    lines = go.Parcoords(
        dimensions=dimensions, line=line, labelangle=-20, labelside="top"
    )
    figure = go.Figure(lines)
    # Half of a label, and the ticks left of the first axis, are beside the axes.
    figure.update_layout(
        title=escape.plotly(chart.title),
        height=480,
        margin={"l": 60, "r": 60, "t": 140 if chart.title else 100, "b": 30},
    )
    return figure


def draw_vectors(axis: str, lines: Sequence[Line]) -> Any:
    """Draws a diagnostic with one vector per layer: one panel per line of the table.

    Layers go from dark to light.
    """
    figure, places = _panels([line.label for line in lines])
    for line, cell in zip(lines, places, strict=True):
        last = max(1, len(line.layers) - 1)
        for rank, (layer, values) in enumerate(line.layers.items()):
            # Both ends of the scale are left out: one is invisible on a dark page, the
            # other on a light page.
            colour = sample_colorscale(SCALE, 0.3 + 0.55 * rank / last)[0]
            figure.add_scatter(
                **cell,
                y=values,
                name=f"layer {layer}",
                mode="lines",
                line_color=colour,
                showlegend=False,
            )
    figure.update_xaxes(title=escape.plotly(axis))
    if all(min(values) > 0 for line in lines for values in line.layers.values()):
        figure.update_yaxes(type="log", dtick=1)
    return figure


def draw_matrices(axis: str, colours: str, lines: Sequence[Line], layer: int) -> Any:
    """Draws a diagnostic with one matrix per layer, for one layer.

    There is one panel per line of the table that has this layer.
    """
    having = [line for line in lines if layer in line.layers]
    limits: dict[str, Any] = {"showscale": False}
    if colours != "panel":
        limits = {"zmin": -1 if colours == "cosines" else 0, "zmax": 1}
    figure, places = _panels([line.label for line in having])
    for number, (line, cell) in enumerate(zip(having, places, strict=True)):
        figure.add_heatmap(
            **cell,
            z=line.layers[layer],
            **limits,
            colorscale=SCALE,
        )
        figure.update_yaxes(autorange="reversed", constrain="domain", **cell)
        if colours != "logarithm":
            anchor = f"x{number + 1 if number else ''}"
            figure.update_yaxes(scaleanchor=anchor, **cell)
        figure.update_xaxes(constrain="domain", **cell)
    figure.update_xaxes(title=escape.plotly(axis))
    return figure


def _panels(titles: Sequence[str]) -> tuple[Any, list[dict[str, int]]]:
    """Returns a figure with at most three panels side by side, and their places."""
    columns = min(3, len(titles))
    rows = math.ceil(len(titles) / columns)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=_shown(titles),
        vertical_spacing=0.5 / rows if rows > 1 else 0.0,
    )
    figure.update_layout(
        height=40 + 320 * rows, margin={"l": 10, "r": 10, "b": 10, "t": 40}
    )
    figure.update_annotations(font_size=12)
    return figure, [
        {"row": 1 + number // columns, "col": 1 + number % columns}
        for number in range(len(titles))
    ]


def page(chart: Chart | Coordinates) -> str:
    """Returns a complete HTML page that needs no network.

    Its title and note are text of the page, because Plotly does not break lines.
    """
    untitled = draw(replace(chart, title="", note=""))
    untitled.update_layout(margin_t=10)
    figure = untitled.to_html(include_plotlyjs=True, full_html=False, div_id="figure")
    title, note = escape.html(chart.title), escape.html(chart.note)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title></head>\n"
        '<body style="font-family: sans-serif; font-size: 14px">\n'
        f'<h1 style="font-size: 18px">{title}</h1>\n<p>{note}</p>\n'
        f"{figure}\n</body></html>\n"
    )
