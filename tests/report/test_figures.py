"""Figures as papers print them: fonts, sizes, order, colours and steps."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablate.diagnostics import catalogue
from ablate.report.charts import Axis, Chart, Coordinates, Series
from ablate.report.layer_means import Line
from ablate.report.matplotlib_charts import (
    FigureStyle,
    drawn,
    save_chart,
    save_layers,
    svg,
)
from ablate.report.palette import COLOURS, GREY
from ablate.report.plotly_charts import draw as interactive

ROWS = [f"{number}: row" for number in range(4)]
FOREST = Chart(
    title="The title",
    x="difference",
    y="",
    series=[
        Series("inconclusive", [1.0, 3.0, 0.5], ROWS[:2] + ROWS[3:], keys=[0, 1, 3]),
        Series("helps", [2.0], ROWS[2:3], keys=[2]),
    ],
    sideways=True,
)
CURVES = Chart(
    title="The title",
    x="epoch",
    y="top-1 (%)",
    form="lines",
    series=[Series(name, [1, 2, 3], [1.0, 2.0, 3.0]) for name in ROWS * 2],
)
FRONT = Chart(
    title="",
    x="FLOPs",
    y="top-1",
    series=[Series("front", [1, 2, 3], [1.0, 2.0, 3.0], joined=True, steps=True)],
)


def test_text_is_text(tmp_path: Path) -> None:
    text = svg(FOREST)
    for word in ("The title", "difference", *ROWS, "helps"):
        assert re.search(rf">{word}</text>", text), word
    save_chart(tmp_path / "a.pdf", FOREST)
    content = (tmp_path / "a.pdf").read_bytes()
    assert b"/Type3" not in content, "publishers refuse such fonts"
    assert b"/FontFile2" in content, "fonts are embedded"


def test_the_legend_of_a_diagnostic_is_below_its_axes(tmp_path: Path) -> None:
    lines = [
        Line(cell=cell, label=f"row {cell}", seeds=2, layers={0: 1.0, 1: 2.0})
        for cell in range(8)
    ]
    file = tmp_path / "layers.svg"
    save_layers(file, "title", catalogue()["token_cosine"], [("a", lines)])
    texts = re.findall(r"<text([^>]*)>([^<]*)</text>", file.read_text())
    height = {text: float(_y_of(attributes)) for attributes, text in texts}
    assert all(height[f"row {cell}"] > height["layer"] for cell in range(8))


@pytest.mark.parametrize("name", ["token_similarity", "attention_spectra"])
@pytest.mark.parametrize("depth", [1, 2, 3, 7, 12])
def test_a_picture_of_layers_has_each_of_them_once(
    name: str, depth: int, tmp_path: Path
) -> None:
    label = "placement = both, shortcuts.count = 4, shortcuts.circulant_b = 8"
    matrix = np.full((4, 4), 0.5)
    lines = [
        Line(
            cell=cell, label=label, seeds=2, layers=dict.fromkeys(range(depth), matrix)
        )
        for cell in range(2)
    ]
    file = tmp_path / "layers.svg"
    save_layers(file, "title", catalogue()[name], [("a", lines)])
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", file.read_text())
    for layer in range(depth):
        assert texts.count(f"layer {layer}") == 2
    assert sum(text.startswith("layer ") for text in texts) == 2 * depth
    # The label is wrapped, and stands once beside the panels of its cell.
    assert " ".join(texts).count("circulant_b = 8") == 2


def _y_of(attributes: str) -> str:
    found = re.search(r'\by="([\d.]+)"|translate\([\d.]+ ([\d.]+)\)', attributes)
    assert found is not None
    return found[1] or found[2]


def test_width_and_title() -> None:
    figure = drawn(FOREST, FigureStyle(width=3.25, title=False))
    assert figure.get_size_inches()[0] == 3.25
    assert figure.axes[0].get_title() == ""
    usual = drawn(FOREST)
    assert usual.get_size_inches()[0] == 7
    assert usual.axes[0].get_title() == "The title"


def test_rows_are_in_the_order_of_the_table() -> None:
    labels = [text.get_text() for text in drawn(FOREST).axes[0].get_yticklabels()]
    assert labels == ROWS


def test_rows_are_in_the_order_of_the_table_on_a_page() -> None:
    """Plotly would group them by series."""
    axis: Any = interactive(FOREST).layout.yaxis
    assert list(axis.categoryarray) == ROWS
    assert axis.autorange == "reversed"


def test_a_verdict_has_the_same_marker_in_every_figure() -> None:
    one, other = FOREST.series
    turned = replace(FOREST, series=[other, one])
    symbols = []
    for chart in (FOREST, turned):
        traces: Any = interactive(chart).data
        symbols.append({trace.name: trace.marker.symbol for trace in traces})
        handles, names = drawn(chart).axes[0].get_legend_handles_labels()
        markers: list[Any] = [handle.lines[0].get_marker() for handle in handles]
        assert dict(zip(names, markers, strict=True)) == {
            "inconclusive": "o",
            "helps": "s",
        }
    assert symbols[0] == symbols[1] == {"inconclusive": "circle", "helps": "square"}


def test_levels_on_an_axis_are_not_numbers() -> None:
    """Between the levels 0 and 1 of a factor is nothing, so there are no ticks."""
    levels = Series("a = 1", ["0", "1"], [1.0, 2.0], joined=True)
    axis: Any = interactive(replace(FRONT, series=[levels])).layout.xaxis
    assert axis.type == "category"
    labels = drawn(replace(FRONT, series=[levels])).axes[0].get_xticklabels()
    assert [text.get_text() for text in labels] == ["0", "1"]


# Rows of a search, which differ from row 0 in many factors.
LONG = replace(
    CURVES,
    series=[
        replace(
            series,
            name=f"{number}: shortcuts.count = 2, shortcuts.b = 2, ffn.activation ="
            " swish, ffn.kernel = 3, recipe.lr = 0.004",
        )
        for number, series in enumerate(CURVES.series)
    ],
)


@pytest.mark.parametrize("width", [3.25, 7.0])
@pytest.mark.parametrize(
    "chart", [FOREST, CURVES, LONG], ids=["forest", "curves", "long names"]
)
def test_the_legend_covers_nothing(chart: Chart, width: float) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = drawn(chart, FigureStyle(width=width))
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    below = legend.get_window_extent()
    axes = figure.axes[0].get_tightbbox()
    assert axes is not None
    assert below.y1 <= axes.y0 + 1
    assert below.y0 >= -1
    assert below.x0 >= -1
    assert below.x1 <= figure.bbox.x1 + 1
    assert figure.axes[0].get_window_extent().height > 72, "an inch is left"
    assert len(legend.get_texts()) == len(chart.series)


def test_long_names_of_rows_leave_room_for_the_effects() -> None:
    names = [series.name for series in LONG.series][:4]
    forest = replace(FOREST, series=[Series("helps", [1.0, 2.0, 3.0, 4.0], names)])
    figure = drawn(forest, FigureStyle(width=3.25))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    inside = axes.get_window_extent().width / figure.bbox.width
    assert inside > 0.4
    assert figure.get_size_inches()[1] > drawn(FOREST).get_size_inches()[1]
    whole = axes.get_tightbbox()
    assert whole is not None
    assert whole.x0 >= -1


@pytest.mark.parametrize("width", [2.5, 3.25, 3.5, 7.0])
@pytest.mark.parametrize("sideways", [False, True])
def test_the_names_of_axes_lie_inside_the_figure(sideways: bool, width: float) -> None:
    """Names of rows leave a forest plot half of its width."""
    names = [f"{row}: drop.path = 0.1, norm.kind = batch (n=5)" for row in range(3)]
    series = [Series("helps", [1.0, 2.0, 3.0], names)]
    forest = replace(FOREST, series=series, x="Δ top-1 (points), row minus row 0")
    curves = replace(CURVES, y="correctly classified images of the test set (%), mean")
    figure = drawn(
        forest if sideways else curves, FigureStyle(width=width, title=False)
    )
    figure.draw_without_rendering()
    (axes,) = figure.axes
    labels = [axes.xaxis.label] if sideways else [axes.xaxis.label, axes.yaxis.label]
    for label in labels:
        box = label.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y0 >= 0
        assert box.y1 <= figure.bbox.y1


def test_numbers_of_rows_do_not_overlap() -> None:
    """The front has the first choice, as it is drawn last."""
    crowd = [1.0, 1.05, 1.1, 1.15, 1.2, 1.25]
    cloud = Series(
        "dominated", [*crowd, 2.0], [*crowd, 0.5], keys=[11, 12, 13, 14, 15, 16, 17]
    )
    front = Series("front", [1.0, 3.0], [1.1, 3.0], keys=[21, 22], joined=True)
    figure = drawn(replace(FRONT, series=[cloud, front]), FigureStyle(width=3.25))
    written = {text.get_text(): text for text in figure.axes[0].texts}
    assert {"21", "22", "17"} < set(written)
    assert len(written) < 9, "there is no room for all"
    boxes = [text.get_window_extent() for text in written.values()]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)


def test_series_with_the_same_categories_lie_beside_one_another() -> None:
    kinds = [Series(name, [1.0, 2.0], ROWS[:2]) for name in ("alone", "left out")]
    apart = interactive(FOREST)
    assert apart.layout.scattermode is None
    together = interactive(replace(FOREST, series=kinds))
    assert together.layout.scattermode == "group"
    assert {trace.orientation for trace in together.data} == {"h"}


def test_points_that_hide_one_another_have_one_text() -> None:
    """A point of the front must not hide that another row is at the same place."""
    cloud = Series("dominated", [1.0, 2.0], [1.0, 0.5], keys=[7, 1])
    front = Series("front", [1.0, 3.0], [1.005, 3.0], keys=[5, 4], joined=True)
    figure = drawn(replace(FRONT, series=[cloud, front]), FigureStyle(width=3.25))
    assert {text.get_text() for text in figure.axes[0].texts} == {"1", "4", "5 (7)"}


@pytest.mark.parametrize("width", [3.25, 7.0])
def test_rows_that_lie_together_are_both_named(width: float) -> None:
    cloud = Series("dominated", [1.0, 2.0], [1.0, 0.5], keys=[5, 1])
    front = Series("front", [1.0, 3.0], [1.12, 3.0], keys=[6, 4], joined=True)
    figure = drawn(replace(FRONT, series=[cloud, front]), FigureStyle(width=width))
    assert {text.get_text() for text in figure.axes[0].texts} == {"1", "4", "5", "6"}


@pytest.mark.parametrize("width", [3.25, 7.0])
def test_a_number_stands_nearest_to_its_own_point(width: float) -> None:
    front = Series("front", [1.0, 1.01, 3.0], [1.0, 1.06, 3.0], keys=[0, 2, 4])
    figure = drawn(replace(FRONT, series=[front]), FigureStyle(width=width))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    points = {
        str(key): axes.transData.transform((x, y))
        for key, x, y in zip(front.keys, front.x, front.y, strict=True)
    }
    assert len(axes.texts) == 3
    for text in axes.texts:
        box = text.get_window_extent()
        centre = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
        nearest = min(points, key=lambda key: math.dist(points[key], centre))
        assert nearest == text.get_text()


def test_names_of_parallel_axes_do_not_overlap() -> None:
    axes = [Axis(f"a.long.name.{number}", [0.0, 1.0, 2.0]) for number in range(7)]
    chart = Coordinates("", axes, [0, 1, 2])
    figure = drawn(chart, FigureStyle(width=3.25))
    names = figure.axes[0].get_xticklabels()
    assert {name.get_rotation() for name in names} == {50.0}
    assert {
        name.get_rotation()
        for name in drawn(chart, FigureStyle(width=14)).axes[0].get_xticklabels()
    } == {20.0}


def test_a_row_has_the_same_colour_in_every_figure() -> None:
    lines = drawn(CURVES).axes[0].get_lines()
    traces: Any = interactive(CURVES).data
    printed = [line.get_color() for line in lines]
    shown = [trace.line.color for trace in traces]
    assert len(set(printed)) == len(COLOURS)
    # Black is grey on a page, which may be dark.
    assert shown == [GREY if one == COLOURS[0] else one for one in printed]


def test_a_front_goes_in_steps() -> None:
    (line,) = (
        one for one in drawn(FRONT).axes[0].get_lines() if len(one.get_xdata()) == 3
    )
    assert line.get_drawstyle() == "steps-post"
    trace: Any = interactive(FRONT).data[0]
    assert trace.line.shape == "hv"
