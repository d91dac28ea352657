"""Learning curves: smoothed, and grouped by a factor."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate import pipeline, space
from ablate.errors import AblateError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.report.curves import curves_chart, differences_chart, smoothed
from ablate.results.study import Study
from ablate.results.study_charts import curves
from tests.conftest import TINY

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def top1_of(trial: Trial, number: int) -> float:
    shortcuts = trial.architecture.settings.get("shortcuts.count", 0)
    assert isinstance(shortcuts, int)
    return 10.0 * number + trial.seed + 100 * shortcuts


def epoch(trial: Trial, number: int) -> Epoch:
    top1 = top1_of(trial, number)
    metrics = {"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": top1}
    return Epoch(number=number, metrics=metrics, lr=1e-3, seconds=1.0)


@pytest.fixture
def study(options: Options) -> Study:
    pipeline.run(
        space.load(TINY, "tiny.yaml"),
        "tiny.yaml",
        options,
        None,
        SimulatedExecutor(epoch),
    )
    return Study("tiny", options.url)


@given(VALUES)
def test_no_smoothing_changes_nothing(values: list[float]) -> None:
    assert smoothed(values, 0.0) == values


@given(VALUES, st.floats(0, 0.95))
def test_a_smoothed_curve_stays_within_its_values(
    values: list[float], weight: float
) -> None:
    """The first value is itself; without the correction it would lean towards 0."""
    averages = smoothed(values, weight)
    assert averages[0] == values[0]
    slack = 1e-9 * max(map(abs, values)) + 1e-12
    for count, average in enumerate(averages, 1):
        seen = values[:count]
        assert min(seen) - slack <= average <= max(seen) + slack


def test_smoothing_by_hand() -> None:
    assert smoothed([1.0, 2.0, 4.0], 0.5) == pytest.approx(
        [1.0, (0.5 * 1 + 2) / 1.5, (0.25 * 1 + 0.5 * 2 + 4) / 1.75]
    )


def test_each_trial_is_smoothed_before_the_mean(study: Study) -> None:
    results, _ = study.read()
    chart = curves_chart(results, curves(study), "top1", [0], smoothing=0.5)
    (series,) = chart.series
    wanted = smoothed([10.0 * number for number in series.x], 0.5)
    assert series.low is not None
    assert series.high is not None
    assert list(series.low) == pytest.approx(wanted)
    assert list(series.high) == pytest.approx([value + 1 for value in wanted])
    assert list(series.y) == pytest.approx([value + 0.5 for value in wanted])
    assert "Smoothed with weight 0.5" in chart.note


def test_one_line_per_level(study: Study) -> None:
    """Each line is over the trials of all rows with that level."""
    results, _ = study.read()
    chart = curves_chart(results, curves(study), "top1", by="shortcuts.count")
    assert [series.name for series in chart.series] == [
        "shortcuts.count = 0",
        "shortcuts.count = 1",
    ]
    without, with_one = chart.series
    assert with_one.y[0] - without.y[0] == pytest.approx(100)
    assert chart.note == "Bands: range over trials."
    both = curves_chart(results, curves(study), "top1", by="layout")
    assert both.series[0].y == pytest.approx(both.series[1].y)


def test_levels_of_one_label_are_two_lines(study: Study) -> None:
    results, _ = study.read()
    labels = {"layout:serial": "same", "layout:parallel": "same"}
    chart = curves_chart(
        replace(results, labels=labels), curves(study), "top1", by="layout"
    )
    assert [series.name for series in chart.series] == [
        "layout = same",
        "layout = same (parallel)",
    ]


def test_the_filter_holds_for_levels_too(study: Study) -> None:
    results, _ = study.read()
    rows = [cell.index for cell in results.cells if cell.levels["layout"] == "serial"]
    chart = curves_chart(results, curves(study), "top1", rows, by="layout")
    assert [series.name for series in chart.series] == ["layout = serial"]


def test_nothing_to_draw_is_said(study: Study) -> None:
    results, _ = study.read()
    with pytest.raises(AblateError, match="no epoch to draw yet"):
        curves_chart(results, {}, "top1", by="layout")


def test_differences_are_paired_by_seed(study: Study) -> None:
    """Seeds differ by 1 and rows by 100, so the differences of all seeds are equal."""
    results, _ = study.read()
    chart = differences_chart(results, curves(study), "top1")
    assert [series.keys[0] for series in chart.series] == [
        cell.index for cell in results.cells if cell.index
    ]
    for series in chart.series:
        cell = results.cells[series.keys[0]]
        shortcuts = cell.levels["shortcuts.count"]
        assert list(series.y) == [100 * int(str(shortcuts))] * len(series.x)
        assert list(series.low or ()) == list(series.high or ()) == list(series.y)
    assert chart.zero
    assert chart.y == "Δ top-1 (%)"


def test_seeds_and_epochs_without_a_partner_are_left_out(study: Study) -> None:
    results, _ = study.read()
    every = {row: dict(by_seed) for row, by_seed in curves(study).items()}
    every[1][0] = every[1][0][:1]
    del every[0][1]
    (series,) = differences_chart(results, every, "top1", [1]).series
    assert list(series.x) == [every[1][0][0].number]
    del every[0][0]
    with pytest.raises(AblateError, match="no seed yet with an epoch in row 0"):
        differences_chart(results, every, "top1", [1])


def test_one_row_has_no_differences(study: Study) -> None:
    results, _ = study.read()
    alone = replace(results, cells=results.cells[:1])
    with pytest.raises(AblateError, match="one row only"):
        differences_chart(alone, curves(study), "top1")
