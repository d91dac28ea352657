"""torchvision's data sets: read from files in their layouts, refused without them."""

from __future__ import annotations

import csv
import inspect
import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.datasets
from PIL import Image
from scipy.io import savemat

from ablate import pipeline, space
from ablate.data import describe, presence
from ablate.data.arrays import load
from ablate.data.batches import batches
from ablate.data.images import dataset
from ablate.data.published_sets import PUBLISHED, download_command
from ablate.errors import DataError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Recipe
from tests.conftest import Say

CPU = torch.device("cpu")
SPACE = """
question: q?
name: svhn
backbone: {family: vit, patch_size: 8, width: 8, depth: 1, heads: 2}
data: DATA
factors: {layout: [serial, parallel]}
recipe: {epochs: 1}
seeds: 1
"""


def pictures(name: str, root: Path, split: str) -> Any:
    return dataset(describe(name, str(root)), split)


def picture(file: Path, mode: str = "RGB", side: int = 20) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(len(str(file)))
    shape = (side, side + 4, 3) if mode == "RGB" else (side, side + 4)
    Image.fromarray(generator.integers(0, 255, shape, dtype=np.uint8)).save(file)


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_is_a_class_of_torchvision_with_these_arguments(name: str) -> None:
    published = PUBLISHED[name]
    loader = getattr(torchvision.datasets, published.loader)
    arguments = inspect.signature(loader).parameters
    accepts_any = any(a.kind == a.VAR_KEYWORD for a in arguments.values())
    for key in {*published.train, *published.test}:
        assert key in arguments or accepts_any
    assert accepts_any or "download" in arguments or published.by_hand


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_missing_one_is_refused_with_the_line_that_fetches_it(
    name: str, tmp_path: Path
) -> None:
    data = describe(name, str(tmp_path / "none"))
    assert (data.classes, data.images) == (
        PUBLISHED[name].classes,
        PUBLISHED[name].images,
    )
    problem = presence.problem(data)
    assert f"data: {name} is not under {tmp_path}/none" in problem
    if not PUBLISHED[name].by_hand:
        command = download_command(name, data.path)
        assert command in problem
        # It is one line of a shell, and what Python gets compiles.
        program = shlex.split(command)
        assert program[:2] == ["python", "-c"]
        compile(program[2], "download", "exec")
    with pytest.raises(DataError, match=f"data: {name} is not under"):
        batches(data, Recipe(), CPU)


def test_svhn_as_torchvision_lays_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torchvision.datasets.SVHN, "_check_integrity", lambda self: True
    )
    generator = np.random.default_rng(0)
    stored = {}
    for split, number in (("train", 40), ("test", 20)):
        pixels = generator.integers(0, 255, (32, 32, 3, number), dtype=np.uint8)
        # The class 0 is stored as 10.
        labels = np.arange(number).reshape(-1, 1) % 10 + 1
        savemat(tmp_path / f"{split}_32x32.mat", {"X": pixels, "y": labels})
        stored[split] = pixels
    read = load(describe("svhn", str(tmp_path)))
    assert read.train.shape == (40, 3, 32, 32)
    assert read.test.shape == (20, 3, 32, 32)
    # Height and width are where they belong.
    assert np.array_equal(
        read.train[3].numpy(), stored["train"][..., 3].transpose(2, 0, 1)
    )
    assert set(read.train_labels.tolist()) == set(range(10))


def test_stl10_keeps_its_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = torchvision.datasets.STL10
    monkeypatch.setattr(made, "_check_integrity", lambda self: True)
    root = tmp_path / made.base_folder
    root.mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (4, 3, 96, 96), dtype=np.uint8)
    for split in ("train", "test"):
        pixels.tofile(root / f"{split}_X.bin")
        np.array([1, 2, 3, 10], dtype=np.uint8).tofile(root / f"{split}_y.bin")
    (root / "class_names.txt").write_text("\n".join("abcdefghij"))
    read = load(describe("stl10", str(tmp_path)))
    # Stored column by column.
    assert np.array_equal(read.train.numpy(), pixels.transpose(0, 1, 3, 2))
    assert read.train_labels.tolist() == [0, 1, 2, 9]


def test_pictures_in_files_are_read_in_rgb(tmp_path: Path) -> None:
    root = tmp_path / "food-101"
    names = {"train": ["apple_pie/1", "sushi/2", "sushi/3"], "test": ["sushi/4"]}
    for split, listed in names.items():
        labels: dict[str, list[str]] = {"apple_pie": [], "sushi": []}
        for name in listed:
            labels[name.partition("/")[0]].append(name)
            picture(
                root / "images" / f"{name}.jpg", "L" if name == "sushi/3" else "RGB"
            )
        (root / "meta").mkdir(exist_ok=True)
        (root / "meta" / f"{split}.json").write_text(json.dumps(labels))
    shown = pictures("food101", tmp_path, "train")
    assert len(shown) == 3
    assert [shown[index][0].mode for index in range(3)] == ["RGB"] * 3
    assert [shown[index][1] for index in range(3)] == [0, 1, 1]
    data = describe("food101", str(tmp_path), image_size=16, workers=0)
    read = batches(data, Recipe(batch_size=2), CPU)
    images, labels_of = next(iter(read.test()))
    assert images.shape == (1, 3, 16, 16)
    assert labels_of.tolist() == [1]
    assert presence.problem(data) == ""


def test_a_set_without_a_split_gets_a_fixed_one(tmp_path: Path) -> None:
    root = tmp_path / "eurosat" / "2750"
    for label in ("Forest", "River"):
        for number in range(10):
            picture(root / label / f"{label}_{number}.jpg", side=8)
    splits = {
        split: pictures("eurosat", tmp_path, split) for split in ("train", "test")
    }
    assert {split: len(part) for split, part in splits.items()} == {
        "train": 16,
        "test": 4,
    }
    for split, number in (("train", 8), ("test", 2)):
        part = splits[split]
        assert Counter(part[i][1] for i in range(len(part))) == {0: number, 1: number}
    shown = [
        {part[i][0].tobytes() for i in range(len(part))} for part in splits.values()
    ]
    assert splits["train"].indices == pictures("eurosat", tmp_path, "train").indices
    assert set(splits["train"].indices or ()).isdisjoint(splits["test"].indices or ())
    assert all(shown)


def test_the_numbers_of_sets_without_a_split_are_those_of_the_fifth() -> None:
    """A fifth is rounded up, as scikit-learn does."""
    wholes = {
        "eurosat": 27_000,
        "caltech101": 8_677,
        "caltech256": 30_607,
        "sun397": 108_754,
    }
    without = {name for name, published in PUBLISHED.items() if not published.has_split}
    assert without == set(wholes)
    for name, whole in wholes.items():
        published = PUBLISHED[name]
        assert published.images + published.test_images == whole
        assert published.test_images == -(-whole // 5)


def test_german_signs(tmp_path: Path) -> None:
    """One layout of folders, one of a table."""
    root = tmp_path / "gtsrb"
    for label in ("00000", "00001"):
        for number in range(3):
            picture(root / "GTSRB" / "Training" / label / f"{number}.ppm")
    picture(root / "GTSRB" / "Final_Test" / "Images" / "0.ppm")
    with (root / "GT-final_test.csv").open("w") as stream:
        writer = csv.DictWriter(stream, ["Filename", "ClassId"], delimiter=";")
        writer.writeheader()
        writer.writerow({"Filename": "0.ppm", "ClassId": "1"})
    assert len(pictures("gtsrb", tmp_path, "train")) == 6
    assert pictures("gtsrb", tmp_path, "test")[0][1] == 1


def test_plan_and_run_refuse_missing_data(say: Say, tmp_path: Path) -> None:
    Path("svhn.yaml").write_text(SPACE.replace("DATA", "svhn"))
    code, out, error = say("plan", "svhn.yaml")
    assert code == 2
    assert "2 trials: 0 known" in out, "the plan is shown all the same"
    assert 'SVHN("' in error
    assert 'split="train", download=True)' in error
    code, _, error = say("run", "svhn.yaml", "--executor", "local")
    assert code == 2
    assert "data: svhn is not under" in error
    assert not Path("runs").exists(), "nothing was stored"
    # Nothing is to be trained by somebody who reads no images.
    declared = space.load(SPACE.replace("DATA", "svhn"), "svhn.yaml")
    options = Options(runs=tmp_path / "runs")
    pipeline.run(declared, "svhn.yaml", options, executor=SimulatedExecutor())
    # All trials are known, so no data are needed any more.
    code, _, error = say("plan", "svhn.yaml")
    assert code == 0, error


@pytest.mark.parametrize("name", ["imagenet", "coco", "ade20k"])
def test_folders_that_are_missing_are_named(name: str, tmp_path: Path) -> None:
    data = describe(name, str(tmp_path / "none"))
    assert (
        f"data: {name} is not under {tmp_path}/none, which needs"
        in presence.problem(data)
    )


def test_nothing_is_missing_where_nothing_is_read() -> None:
    assert presence.problem(describe("digits")) == ""
    assert presence.problem(describe("digit-scenes")) == ""
