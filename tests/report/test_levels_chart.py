"""A metric over the levels of a factor, with intervals."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest
from scipy import stats

from ablate import pipeline, space
from ablate.errors import AblateError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.report.charts import Chart
from ablate.report.matplotlib_charts import drawn
from ablate.report.plotly_charts import draw
from ablate.results.study import Study
from ablate.results.study_charts import chart
from tests.conftest import Say

SPACE = """
question: Is wide enough deep enough?
name: wide
backbone: {family: vit, patch_size: 4, depth: 2, heads: 2}
factors:
  size.width: [32, 8, 16]
  shortcuts.count: [0, 1]
  layout: [serial, parallel]
design: DESIGN
data: {name: digits}
recipe: {epochs: 1}
seeds: 3
"""


def top1(settings: dict[str, object], seed: int) -> float:
    noise = random.Random(f"{sorted(settings.items())} {seed}").gauss(0, 1)
    helps = 3 if settings.get("layout") == "parallel" else 0
    return 50 + float(str(settings["size.width"])) / 4 + helps + seed + noise


def curve(trial: Trial, number: int) -> Epoch:
    value = top1(dict(trial.architecture.settings), trial.seed)
    metrics = {"top1": value, "loss": 100 - value, "train_loss": 1.0, "top5": 90.0}
    return Epoch(number=number, metrics=metrics, lr=0.1, seconds=1.0)


def study(folder: Path, design: str, text: str = SPACE) -> Study:
    options = Options(runs=folder, cpus=2)
    declared = space.load(text.replace("DESIGN", design), "wide.yaml")
    pipeline.run(declared, "wide.yaml", options, executor=SimulatedExecutor(curve))
    return Study("wide", options.url)


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study(tmp_path_factory.mktemp("grid"), "grid")


def values(grid: Study, **levels: object) -> list[float]:
    """The means over the rows with these levels, by seed; computed apart."""
    results, _ = grid.read()
    rows = [
        cell.values
        for cell in results.cells
        if all(
            cell.levels[name.replace("_", ".")] == level
            for name, level in levels.items()
        )
    ]
    return [statistics.fmean(row[seed] for row in rows) for seed in (0, 1, 2)]


def test_points_are_means_over_seeds_with_intervals_of_t(grid: Study) -> None:
    made = chart(grid, "metric", by="size.width", group="layout")
    assert isinstance(made, Chart)
    # Numbers in their order, whatever the order in the space is.
    assert [list(series.x) for series in made.series] == [[8, 16, 32]] * 2
    assert [series.name for series in made.series] == [
        "layout = serial",
        "layout = parallel",
    ]
    assert list(made.ticks_x) == [8, 16, 32]
    for series, layout in zip(made.series, ("serial", "parallel"), strict=True):
        for place, width in enumerate((8, 16, 32)):
            seeds = values(grid, size_width=width, layout=layout)
            assert series.y[place] == pytest.approx(statistics.fmean(seeds))
            low, high = stats.t.interval(
                0.95, 2, statistics.fmean(seeds), statistics.stdev(seeds) / 3**0.5
            )
            assert series.low is not None
            assert series.high is not None
            assert series.low[place] == pytest.approx(low)
            assert series.high[place] == pytest.approx(high)
    assert "Means over 2 combinations of the levels of shortcuts.count" in made.note
    drawn(made)
    draw(made)


def test_another_metric_and_a_factor_with_texts(grid: Study) -> None:
    made = chart(grid, "metric", by="layout", metric="loss")
    assert isinstance(made, Chart)
    (series,) = made.series
    assert list(series.x) == ["serial", "parallel"]
    assert series.y[0] == pytest.approx(
        100 - statistics.fmean(values(grid, layout="serial"))
    )
    assert "loss" in made.y
    drawn(made)
    draw(made)


def test_one_at_a_time_uses_row_0_of_the_other_factors(tmp_path: Path) -> None:
    made = chart(study(tmp_path, "one-at-a-time"), "metric", by="size.width")
    assert isinstance(made, Chart)
    (series,) = made.series
    assert list(series.x) == [8, 16, 32]
    assert "Means over 1 combination of" in made.note


def test_a_single_seed_has_no_interval(tmp_path: Path) -> None:
    text = SPACE.replace("seeds: 3", "seeds: 1")
    made = chart(study(tmp_path, "grid", text), "metric", by="size.width")
    assert isinstance(made, Chart)
    (series,) = made.series
    assert series.low is not None
    assert list(series.low) == list(series.y)
    assert "No intervals" in made.note


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs a factor: by FACTOR, one of size.width, shortcuts.count, layout"),
        ({"by": "size.wdith"}, "size.width"),
        ({"by": "layout", "group": "layout"}, "by and group are both layout"),
        ({"by": "layout", "group": "norm"}, "norm"),
        ({"by": "layout", "metric": "lsos"}, "loss"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    grid: Study, arguments: dict[str, str], message: str
) -> None:
    with pytest.raises(AblateError, match=message):
        chart(grid, "metric", **arguments)
    with pytest.raises(
        AblateError, match="by is for metric and sensitivity, not for effects"
    ):
        chart(grid, "effects", by="layout")


def test_on_the_command_line(grid: Study, say: Say, tmp_path: Path) -> None:
    where = ("--store", grid.store)
    plot = ("plot", "wide", "--of", "metric", "--to", "a.svg", *where)
    code, _, error = say(
        *plot, "--by", "size.width", "--group", "layout", "--metric", "loss"
    )
    assert code == 0, error
    assert "size.width" in Path("a.svg").read_text()
    code, _, error = say(*plot)
    assert code == 2
    assert "--by FACTOR" in error
    code, _, error = say("plot", "wide", "--to", "a.svg", "--by", "layout", *where)
    assert code == 2
    assert "--by layout goes with --of metric" in error
