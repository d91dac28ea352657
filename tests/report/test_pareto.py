"""The Pareto front of a study."""

from __future__ import annotations

import pytest

from ablate.errors import AblateError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Hooks, Options
from ablate.records import Epoch, Trial
from ablate.results.study import Study
from tests.conftest import RunText

TEXT = """
question: What is worth its FLOPs?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors:
  shortcuts.count: [0, 1, 2, 3]
seeds: 2
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 2, batch_size: 50, warmup_epochs: 0}
"""
TOP1 = {0: 70.0, 1: 80.0, 2: 75.0, 3: 85.0}


def curve(trial: Trial, number: int) -> Epoch:
    top1 = (
        TOP1[int(trial.architecture.settings.get("shortcuts.count", 0))]
        + trial.seed
        - 0.5
    )
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": 99.0},
        lr=0.1,
        seconds=1.0,
    )


def test_the_front_has_what_nothing_beats(run_text: RunText, options: Options) -> None:
    run_text(TEXT, SimulatedExecutor(curve))
    study = Study("tiny", options.url)
    grid = study.pareto()
    assert [row["row"] for row in grid.data] == [
        0,
        1,
        3,
    ], "two shortcuts cost more than one and give less"
    flops = [cell.cost.flops for cell in study.results().cells if cell.cost]
    # Rectangles against the corner (70, flops of three shortcuts).
    expected = (80 - 70) * (flops[3] - flops[1])
    assert (
        f"Hypervolume {expected / 1e3:.4g} (top1 x flops (K)), against" in grid.notes[1]
    )
    assert [row["row"] for row in study.pareto(["top1=max"]).data] == [3]
    assert [row["row"] for row in study.pareto(["params=min", "top1=min"]).data] == [0]
    told = study.pareto(history=True)
    history = told.data
    assert history[-1]["hypervolume"] == pytest.approx(expected)
    assert told.rows[-1][2] == f"{expected / 1e3:.4g}"
    assert [row["cells"] for row in history] == [1, 2, 3, 4]
    assert [row["share"] for row in history] == sorted(row["share"] for row in history)
    assert history[-1]["share"] == 1


def test_what_is_no_objective_is_reported(run_text: RunText, options: Options) -> None:
    run_text(TEXT, SimulatedExecutor(curve))
    with pytest.raises(
        AblateError,
        match=(
            "objective flop=min: write NAME=max or NAME=min, with a NAME of top1,"
            " params"
        ),
    ):
        Study("tiny", options.url).pareto(["flop=min"])
    with pytest.raises(AblateError, match="objective flops=: write"):
        Study("tiny", options.url).pareto(["flops"])


def test_nothing_completed_is_reported(run_text: RunText, options: Options) -> None:
    run_text(TEXT, SimulatedExecutor(curve), Hooks(stop=lambda: True))
    with pytest.raises(AblateError, match="go on with: ablate resume tiny"):
        Study("tiny", options.url).pareto()
