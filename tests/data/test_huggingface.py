"""Data sets of Hugging Face's package: folders, and what its cache has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from ablate.data import describe, huggingface
from ablate.data.batches import batches
from ablate.data.images import dataset
from ablate.errors import DataError
from ablate.records import Recipe
from tests.conftest import Say

CPU = torch.device("cpu")
SPACE = """
question: q?
name: mine
backbone: {family: vit, patch_size: 4, width: 8, depth: 1, heads: 2}
data: {name: huggingface, path: PATH, image_size: 16, workers: 0}
factors: {layout: [serial, parallel]}
recipe: {epochs: 1, batch_size: 4}
seeds: 1
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    huggingface.open_set.cache_clear()


def rows(number: int, mode: str = "RGB", classes: int = 3) -> dict[str, list[Any]]:
    generator = np.random.default_rng(number)
    shape = (20, 24, 3) if mode == "RGB" else (20, 24)
    return {
        "image": [
            Image.fromarray(generator.integers(0, 255, shape, dtype=np.uint8))
            for _ in range(number)
        ],
        "label": [place % classes for place in range(number)],
    }


def split(number: int, **options: Any) -> datasets.Dataset:
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=["a", "b", "c"])
    )
    return datasets.Dataset.from_dict(rows(number, **options), features=features)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    made = datasets.DatasetDict(train=split(12), validation=split(6, mode="L"))
    made.save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_folder_of_save_to_disk(saved: Path, tmp_path: Path) -> None:
    data = describe("huggingface", str(saved), image_size=16, workers=0)
    assert (data.classes, data.images) == (3, 12)
    shown = dataset(data, "train")
    assert [shown[place][1] for place in range(4)] == [0, 1, 2, 0]
    # A grey picture of the test set has three channels.
    read = batches(data, Recipe(batch_size=4), CPU)
    images, labels = next(iter(read.test()))
    assert images.shape == (4, 3, 16, 16)
    assert labels.tolist() == [0, 1, 2, 0]
    assert len(list(read.train(torch.Generator().manual_seed(0)))) == 3


def test_a_folder_of_parquet_files(tmp_path: Path) -> None:
    for name in ("train", "test"):
        split(9).to_parquet(tmp_path / "parquet" / f"{name}-00000.parquet")
    data = describe("huggingface", str(tmp_path / "parquet"), workers=0)
    assert (data.classes, data.images) == (3, 9)
    assert dataset(data, "test")[1][1] == 1


def test_a_folder_of_image_files(tmp_path: Path) -> None:
    for name, number in (("train", 6), ("test", 3)):
        for place, picture in enumerate(rows(number)["image"]):
            file = tmp_path / "files" / name / "xyz"[place % 3] / f"{place}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            picture.save(file)
    data = describe("huggingface", str(tmp_path / "files"), workers=0)
    assert (data.classes, data.images) == (3, 6)


def test_the_identity_follows_the_content(saved: Path, tmp_path: Path) -> None:
    first = describe("huggingface", str(saved))
    saved.rename(tmp_path / "moved")
    huggingface.open_set.cache_clear()
    moved = describe("huggingface", str(tmp_path / "moved"))
    assert moved.canonical() == first.canonical()
    datasets.DatasetDict(train=split(11), validation=split(6)).save_to_disk(
        tmp_path / "other"
    )
    other = describe("huggingface", str(tmp_path / "other"))
    assert other.fingerprint != first.fingerprint
    with pytest.raises(DataError, match="not the images that this trial was planned"):
        batches(
            describe("huggingface", str(tmp_path / "moved")).__class__(
                **{**moved.__dict__, "fingerprint": other.fingerprint}
            ),
            Recipe(),
            CPU,
        )


def of_names(names: list[str], *labels: int) -> datasets.Dataset:
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=names)
    )
    values = {**rows(len(labels)), "label": list(labels)}
    return datasets.Dataset.from_dict(values, features=features)


def test_classes_are_those_of_their_names(tmp_path: Path) -> None:
    """A split that was numbered alone lacks a class, or has another order."""
    datasets.DatasetDict(
        train=of_names(["cat", "dog", "emu"], 0, 1, 2),
        test=of_names(["emu", "cat"], 0, 1, 1, 0),
    ).save_to_disk(tmp_path / "set")
    data = describe("huggingface", str(tmp_path / "set"), image_size=16, workers=0)
    shown = dataset(data, "test")
    assert [shown[place][1] for place in range(4)] == [2, 0, 0, 2]
    _, labels = next(iter(batches(data, Recipe(batch_size=4), CPU).test()))
    assert labels.tolist() == [2, 0, 0, 2]


def test_a_class_that_is_never_trained_is_refused(tmp_path: Path) -> None:
    datasets.DatasetDict(
        train=of_names(["cat", "dog"], 0, 1), test=of_names(["cat", "emu"], 0, 1)
    ).save_to_disk(tmp_path / "set")
    with pytest.raises(DataError, match="has the class emu, which train does not have"):
        describe("huggingface", str(tmp_path / "set"))


def test_the_test_split_is_the_first_one_whose_classes_are_known(
    tmp_path: Path,
) -> None:
    datasets.DatasetDict(
        train=split(9),
        test=of_names(["a", "b", "c"], -1, -1),
        validation=split(4),
        unseen=split(5),
    ).save_to_disk(tmp_path / "set")
    usual = describe("huggingface", str(tmp_path / "set"), image_size=16)
    assert len(dataset(usual, "test")) == 4
    chosen = describe(
        "huggingface", str(tmp_path / "set"), test_split="unseen", image_size=16
    )
    assert len(dataset(chosen, "test")) == 5
    assert chosen.canonical() != usual.canonical()
    with pytest.raises(DataError, match="has the class -1.*test_split: validation"):
        describe("huggingface", str(tmp_path / "set"), test_split="test")
    with pytest.raises(DataError, match="has no split tset; it has"):
        describe("huggingface", str(tmp_path / "set"), test_split="tset")
    with pytest.raises(DataError, match="test_split is for huggingface"):
        describe("digits", test_split="test")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: {"train": split(3)}, "needs a test set"),
        (lambda: {"test": split(3)}, "needs one called train"),
        (
            lambda: {
                name: split(3).remove_columns("label") for name in ("train", "test")
            },
            "one column of images, and one of classes",
        ),
        (
            lambda: {
                name: split(3).remove_columns("image") for name in ("train", "test")
            },
            "one column of images",
        ),
        (
            lambda: {
                "train": split(3),
                "test": datasets.Dataset.from_dict(
                    {**rows(3), "label": [-1, -1, -1]}, features=split(1).features
                ),
            },
            "has the class -1",
        ),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(
    made: Any, message: str, tmp_path: Path
) -> None:
    datasets.DatasetDict(made()).save_to_disk(tmp_path / "bad")
    with pytest.raises(DataError, match=message):
        describe("huggingface", str(tmp_path / "bad"))


def test_plan_and_run(saved: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.yaml").write_text(SPACE.replace("PATH", str(saved)))
    code, _, error = say("run", "mine.yaml", "--executor", "inline")
    assert code == 0, error
    Path("none.yaml").write_text(SPACE.replace("PATH", "someone/nothing-here"))
    code, _, error = say("plan", "none.yaml")
    assert code == 2
    assert "data: someone/nothing-here is not in the cache of Hugging Face" in error
    assert 'load_dataset("someone/nothing-here")' in error
    Path("none.yaml").write_text(SPACE.replace("path: PATH, ", ""))
    code, _, error = say("plan", "none.yaml")
    assert code == 2
    assert "huggingface needs a path" in error
    monkeypatch.setattr(huggingface, "find_spec", lambda name: None)
    huggingface.open_set.cache_clear()
    code, _, error = say("plan", "mine.yaml")
    assert code == 2
    assert "needs a package that is not installed" in error
