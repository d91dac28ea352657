"""Any quantity of trials against any other."""

from __future__ import annotations

from typing import Any

import pytest

from ablate.errors import AblateError
from ablate.report.matplotlib_charts import drawn
from ablate.report.plotly_charts import draw
from ablate.report.scatter import scatter_chart


def point(number: int, **quantities: Any) -> dict[str, Any]:
    return {"trial": f"t{number}", "row": number // 2, "seed": number % 2, **quantities}


POINTS = [
    point(0, width=16, act="gelu", top1=80.0, loss=1.0),
    point(1, width=16, act="gelu", top1=81.0, loss=0.0),
    point(2, width=32, act="relu", top1=None, loss=0.5),
    point(3, width=32, act="relu", top1=84.0, loss=0.25),
]


def test_a_point_per_trial_that_has_both_values() -> None:
    chart = scatter_chart(POINTS, "width", "top1", titles={"top1": "top-1 (%)"})
    (series,) = chart.series
    assert list(series.x) == [16, 16, 32]
    assert list(series.y) == [80.0, 81.0, 84.0]
    assert list(series.keys) == ["t0", "t1", "t3"]
    assert list(series.texts) == ["row 0, seed 0", "row 0, seed 1", "row 1, seed 1"]
    assert (chart.x, chart.y) == ("width", "top-1 (%)")


def test_a_series_per_value_of_the_colour_in_the_order_of_rows() -> None:
    chart = scatter_chart(POINTS, "width", "loss", by="act")
    assert [series.name for series in chart.series] == ["act = gelu", "act = relu"]
    assert [len(series.x) for series in chart.series] == [2, 2]


def test_a_logarithm_leaves_out_what_has_none() -> None:
    chart = scatter_chart(POINTS, "width", "loss", log_y=True)
    assert list(chart.series[0].y) == [1.0, 0.5, 0.25]
    assert chart.log_y
    assert not chart.log_x


def test_whole_numbers_are_the_ticks() -> None:
    assert scatter_chart(POINTS, "width", "loss").ticks_x == [16, 32]
    assert scatter_chart(POINTS, "loss", "width").ticks_x == []
    assert scatter_chart(POINTS, "act", "loss").ticks_x == []
    many = [point(number, width=number, loss=1.0) for number in range(40)]
    assert scatter_chart(many, "width", "loss").ticks_x == []


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(AblateError, match="no trial has values of both top1 and gone"):
        scatter_chart([point(0, top1=None, gone=None)], "top1", "gone")
    with pytest.raises(AblateError, match="that are positive"):
        scatter_chart([point(0, top1=-1.0, loss=1.0)], "top1", "loss", log_x=True)


@pytest.mark.proof
@pytest.mark.parametrize("x", ["width", "act"])
def test_both_libraries_draw_it(x: str) -> None:
    chart = scatter_chart(POINTS, x, "loss", by="act", log_y=True)
    figure = draw(chart)
    assert figure.layout.yaxis.type == "log"
    assert [list(trace.customdata) for trace in figure.data] == [
        ["t0"],
        ["t2", "t3"],
    ]
    (axes,) = drawn(chart).axes
    assert axes.get_yscale() == "log"


def test_thousands_of_points_are_drawn_by_the_graphics_card() -> None:
    many = [point(number, width=number, loss=1.0) for number in range(3000)]
    (trace,) = draw(scatter_chart(many, "width", "loss")).data
    assert trace.type == "scattergl"
    assert len(trace.x) == 3000
