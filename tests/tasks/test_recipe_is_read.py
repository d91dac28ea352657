"""Training reads each field of a recipe, or the plan refuses it.

A field that no code reads would make cells that differ in name only. The lists of what
is refused are written by hand; here they are compared with what training reads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ablate.data import describe
from ablate.data.sets import FILES_ONLY
from ablate.records import Recipe, Teacher, Trial
from ablate.tasks import tasks
from ablate.training import Training
from tests.tasks.test_tasks import trial as scene_trial
from tests.training.test_distillation import HARD, taught, teacher
from tests.training.test_training import trial as image_trial

__all__ = ["teacher"]

# The plan turns lengths into epochs.
FIELDS = frozenset(field.name for field in fields(Recipe)) - {"steps", "images"}
# Where training reads a recipe. Identity, plan and summary read all fields.
TRAINING = ("ablate.training", "ablate.learning", "ablate.data", "ablate.tasks")
PROPERTIES = ("ends_early", "mixes", "distils", "rate", "test_interpolation")
READ: set[str] = set()


class Recorder(Recipe):
    """A recipe that notes which of its fields training reads."""

    def __getattribute__(self, name: str) -> Any:
        if name in FIELDS:
            frame: Any = sys._getframe(1)
            if frame.f_code.co_name in PROPERTIES:
                # A property is called by this method, and that by who reads it.
                frame = frame.f_back.f_back
            if frame.f_globals["__name__"].startswith(TRAINING):
                READ.add(name)
        return super().__getattribute__(name)


@pytest.fixture
def read() -> Iterator[set[str]]:
    READ.clear()
    yield READ
    READ.clear()


def train(trials: list[Trial], folder: Path) -> None:
    """Trains the trials, and the first one with a validation split too."""
    split = replace(trials[0], data=replace(trials[0].data, validation=0.25))
    for number, trial in enumerate((*trials, split)):
        recorded = replace(trial, recipe=Recorder(**asdict(trial.recipe)))
        training = Training(recorded, folder / str(number))
        while not training.finished:
            training.epoch()
        training.save()
        training.close()


PLAIN = Recipe(epochs=2, batch_size=8)
RECIPES = (
    replace(PLAIN, optimizer="sgd", ema=0.9),
    replace(PLAIN, mixup=0.3, cutmix=1.0, warmup_epochs=1, random_erasing=0.25),
    replace(PLAIN, loss="bce", loss_threshold=0.2),
)


@pytest.mark.proof
def test_arrays(read: set[str], teacher: Teacher, tmp_path: Path) -> None:
    trials = [image_trial(replace(recipe, crop_padding=1)) for recipe in RECIPES]
    trials.append(taught(teacher, replace(HARD, distillation="soft")))
    train(trials, tmp_path)
    assert FIELDS - read == set(FILES_ONLY)


@pytest.mark.proof
def test_image_files(read: set[str], teacher: Teacher, tmp_path: Path) -> None:
    for split in ("train", "val"):
        for number in range(16):
            file = tmp_path / "images" / split / "ab"[number % 2] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (9 * number,) * 3).save(file)
    data = describe("folder", str(tmp_path / "images"), image_size=8, workers=0)
    recipes = (
        *RECIPES,
        replace(PLAIN, rand_augment="rand-m5-n2"),
        replace(PLAIN, three_augment=True, color_jitter=0.2),
        replace(PLAIN, crop_padding=1),
    )
    network = image_trial(**{"size.patch_size": 4}).architecture
    coloured = replace(network, channels=3, classes=2)
    trials = [
        Trial(architecture=coloured, recipe=recipe, data=data, seed=0)
        for recipe in recipes
    ]
    (tmp_path / "trials").mkdir()
    train(trials, tmp_path / "trials")
    train([taught(teacher, replace(HARD, distillation="soft"))], tmp_path)
    assert read == FIELDS


@pytest.mark.proof
@pytest.mark.parametrize("task", [name for name in tasks() if name != "classification"])
def test_scenes(task: str, read: set[str], tmp_path: Path) -> None:
    head = tasks()[task].heads[-1]
    recipes = (
        replace(PLAIN, optimizer="sgd", ema=0.9, warmup_epochs=1),
        PLAIN,
    )
    train([scene_trial(head, **asdict(recipe)) for recipe in recipes], tmp_path)
    assert FIELDS - read == tasks()[task].unread
