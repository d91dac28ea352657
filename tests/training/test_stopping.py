"""Trainings that end before their last epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ablate import space
from ablate.cost import count
from ablate.data import describe
from ablate.errors import SpaceError
from ablate.learning.stopping import ends_early
from ablate.plan.plan import make_plan
from ablate.records import Metric, Recipe, Trial
from ablate.results.study import Study
from ablate.training import Training
from tests.conftest import Say
from tests.training.test_training import RECIPE, trial

UP = Metric("top1", direction="max")
DOWN = Metric("loss", direction="min")


@pytest.mark.parametrize(
    ("recipe", "metric", "values", "ends"),
    [
        (Recipe(), UP, [1, 1, 1, 1], False),
        (Recipe(patience=2), UP, [], False),
        (Recipe(patience=2), UP, [3, 2], False),
        (Recipe(patience=2), UP, [3, 2, 1], True),
        (Recipe(patience=2), UP, [1, 3, 2], False),
        (Recipe(patience=2), UP, [1, 3, 3, 3], True),
        (Recipe(patience=2), UP, [3, 2, 4], False),
        (Recipe(patience=1), UP, [1, 2, 3, 3], True),
        (Recipe(patience=2), DOWN, [3, 2, 1], False),
        (Recipe(patience=2), DOWN, [1, 2, 3], True),
        (Recipe(target=50), UP, [49.9, 10], False),
        (Recipe(target=50), UP, [50], True),
        (Recipe(target=0.5), DOWN, [0.51], False),
        (Recipe(target=0.5), DOWN, [0.7, 0.5], True),
        (Recipe(target=90, patience=1), UP, [50, 50], True),
    ],
)
def test_when_a_training_ends(
    recipe: Recipe, metric: Metric, values: list[float], ends: bool
) -> None:
    assert ends_early(recipe, metric, values) is ends


def chosen(**fields: object) -> Trial:
    """A trial that ends early: its learning rate is far too large."""
    recipe = replace(RECIPE, lr=0.3, warmup_epochs=0, epochs=12)
    return replace(
        trial(replace(recipe, **fields)),
        data=describe("digits", train_images=200, test_images=60, validation=0.25),
    )


def trained(which: Trial, folder: Path, *, stops: bool = False) -> Training:
    training = Training(which, folder)
    while not training.finished:
        training.epoch()
        if stops:
            training.save()
            training.close()
            training = Training(which, folder)
    training.save()
    training.close()
    return training


def test_patience_ends_a_training_and_is_resumed_exactly(tmp_path: Path) -> None:
    straight = trained(chosen(patience=3), tmp_path / "straight")
    values = [epoch.metrics["top1"] for epoch in straight.epochs]
    assert len(values) < 12
    assert len(values) - 1 - values.index(max(values)) == 3
    assert straight.tested is not None
    assert straight.tested.epoch == len(values)
    resumed = trained(chosen(patience=3), tmp_path / "resumed", stops=True)
    assert [e.metrics for e in resumed.epochs] == [e.metrics for e in straight.epochs]
    assert resumed.tested == straight.tested


def test_a_training_of_more_epochs_has_ended_too(tmp_path: Path) -> None:
    short = chosen(patience=3, schedule="constant")
    ended = trained(short, tmp_path / "short")
    assert len(ended.epochs) < 12
    longer = Training(
        chosen(patience=3, schedule="constant", epochs=20),
        tmp_path / "longer",
        beginnings={short.hash: str(tmp_path / "short")},
    )
    longer.close()
    assert longer.finished
    assert longer.epochs == ended.epochs
    assert longer.tested == ended.tested


def test_the_best_epoch_of_an_early_end_is_tested(tmp_path: Path) -> None:
    training = trained(chosen(patience=3, select="best"), tmp_path)
    values = [epoch.metrics["top1"] for epoch in training.epochs]
    assert training.tested is not None
    assert training.tested.epoch == values.index(max(values)) + 1
    assert training.tested.epoch < len(values)


def test_a_target_ends_a_training(tmp_path: Path) -> None:
    training = trained(chosen(lr=4e-3, target=20.0, epochs=40), tmp_path)
    values = [epoch.metrics["top1"] for epoch in training.epochs]
    assert len(values) < 40
    assert values[-1] >= 20 > max(values[:-1], default=0)


@pytest.mark.proof
def test_two_processes_end_together(tmp_path: Path) -> None:
    training = Training(chosen(patience=2, batch_size=20), tmp_path, processes=2)
    while not training.finished:
        training.epoch()
    training.save()
    training.close()
    assert len(training.epochs) < 12
    assert training.tested is not None


TEXT = """
question: Does patience change the result?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors: {recipe.patience: [0, 2]}
data: {name: digits, train_images: 200, test_images: 60, validation: 0.25}
recipe: {epochs: 12, batch_size: 50, lr: 0.3, warmup_epochs: 0}
diagnostics: [token_cosine]
seeds: 2
"""


@pytest.mark.proof
def test_a_study_of_trainings_that_end_early(say: Say, tmp_path: Path) -> None:
    (tmp_path / "early.yaml").write_text(TEXT)
    code, out, error = say("run", "early.yaml", "--executor", "inline")
    assert code == 0, error
    assert "training may end early" in out
    study = Study("early", "runs/ablate.db")
    frame = study.frame()
    assert set(frame["status"]) == {"completed"}
    by_row = frame.groupby("cell")["epochs_done"].agg(["min", "max"])
    assert list(by_row.loc[0]) == [12, 12]
    assert by_row.loc[1, "max"] < 12
    assert "s left]" not in error.splitlines()[-1]
    done = int(frame["epochs_done"].sum())
    assert f"{done}/{done}" in say("status")[1]
    assert say("run", "early.yaml", "--executor", "inline")[0] == 0
    code, out, _ = say("query", "SELECT COUNT(DISTINCT trial_hash) FROM diagnostics")
    assert "4" in out, "diagnostics are taken at the end of each training"
    for words in (
        ("plot", "early", "--of", "curves", "--to", "curves.svg"),
        ("status", "early"),
        ("report", "early"),
        ("reproduce", str(frame[frame["cell"] == 1]["trial"].iloc[0])[:8]),
    ):
        code, _, error = say(*words)
        assert code == 0, (words, error)


@pytest.mark.parametrize("field", ["patience: 3", "target: 90"])
def test_a_validation_split_decides(field: str) -> None:
    text = TEXT.replace(", validation: 0.25", "").replace(
        "recipe.patience: [0, 2]", "layout: [serial, parallel]"
    )
    plan = make_plan(
        space.load(text.replace("epochs: 12", f"epochs: 12, {field}"), "x.yaml"), count
    )
    assert "set data.validation, for example to 0.1" in plan.cells[0].note


def test_a_target_is_a_percentage() -> None:
    text = TEXT.replace("epochs: 12", "epochs: 12, target: 500")
    with pytest.raises(SpaceError, match=r"recipe\.target: .*equal to 100, found 500"):
        space.load(text, "x.yaml")


def test_old_hashes_stay() -> None:
    assert not {"patience", "target"} & set(Recipe().canonical())


def test_weights_of_an_early_end_are_those_of_its_last_epoch(tmp_path: Path) -> None:
    early = trained(chosen(patience=3, schedule="constant"), tmp_path / "early")
    number = len(early.epochs)
    trained(chosen(schedule="constant", epochs=number), tmp_path / "plain")
    weights = [
        torch.load(tmp_path / name / "last.pt", weights_only=True)["model"]
        for name in ("early", "plain")
    ]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
