"""Checkpoints at URLs: the same promises as in a folder, but the lock."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem

from ablate import pipeline, space
from ablate.errors import CheckpointError
from ablate.machine.storage import Folder, storage, try_out
from ablate.pipeline import Options
from ablate.records import Diagnostics
from ablate.trained import diagnosis
from ablate.training import Training
from ablate.training.checkpoint import CheckpointFolder, has_checkpoint
from tests.training.test_training import numbers, trial


class Shared(LocalFileSystem):
    """A file system of fsspec that is not the local one.

    `broken` breaks an upload in its middle.
    """

    protocol = "shared"
    broken: ClassVar[bool] = False
    moved: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("shared://").removeprefix("bucket://")

    def put_file(
        self, lpath: str, rpath: str, callback: Any = None, **settings: Any
    ) -> None:
        if Shared.broken:
            Path(rpath).write_bytes(Path(lpath).read_bytes()[:100])
            raise OSError("connection reset")
        shutil.copyfile(lpath, rpath)

    def mv(self, path1: str, path2: str, **settings: Any) -> None:
        Shared.moved.append(path2)
        super().mv(path1, path2, **settings)


class Bucket(Shared):
    """One whose objects appear whole."""

    protocol = "bucket"


@pytest.fixture(autouse=True)
def systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    fsspec.register_implementation("shared", Shared, clobber=True)
    fsspec.register_implementation("bucket", Bucket, clobber=True)
    monkeypatch.setattr("ablate.machine.storage.OBJECT_STORES", frozenset({"bucket"}))
    monkeypatch.setattr(Shared, "broken", False)
    monkeypatch.setattr(Shared, "moved", [])
    staged = tmp_path / "staged"
    staged.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(staged))
    yield
    assert not list(staged.iterdir()), "nothing staged stays"


@pytest.mark.parametrize("damage", ["none", "truncated", "empty", "flipped", "text"])
def test_a_trial_goes_on_from_a_url_or_starts_again_where_it_is_damaged(
    damage: str, tmp_path: Path
) -> None:
    straight = Training(trial(), tmp_path / "straight")
    while not straight.finished:
        straight.epoch()
    straight.close()
    url, file = f"shared://{tmp_path}/far/x", tmp_path / "far/x/last.pt"
    training = Training(trial(), url)
    training.epoch()
    training.save()
    training.close()
    content = file.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    damaged = {
        "none": content,
        "truncated": content[:middle],
        "empty": b"",
        "flipped": flipped,
        "text": b"not a checkpoint",
    }
    file.write_bytes(damaged[damage])
    again = Training(trial(), url)
    assert len(again.epochs) == (1 if damage == "none" else 0)
    assert Path(f"{file}.unreadable").is_file() == (damage != "none")
    while not again.finished:
        again.epoch()
    again.close()
    assert numbers(again.epochs) == numbers(straight.epochs)


@pytest.mark.parametrize("protocol", ["shared", "bucket"])
def test_a_checkpoint_is_replaced_in_one_step(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(f"{protocol}://{tmp_path}/x", "t")
    assert folder.load() is None
    folder.save({"epochs": 1})
    assert Shared.moved == (
        [] if protocol == "bucket" else [f"{tmp_path}/x/last.pt"]
    ), "an object store needs no move"
    if protocol == "shared":
        monkeypatch.setattr(Shared, "broken", True)
        with pytest.raises(OSError, match="connection reset"):
            folder.save({"epochs": 2})
    with monkeypatch.context() as patch:
        patch.setattr(
            torch, "save", lambda state, stream: stream.write(b"half") and 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            folder.save({"epochs": 3})
    loaded = folder.load()
    assert loaded is not None
    assert loaded["epochs"] == 1
    with pytest.raises(
        CheckpointError,
        match=rf"{protocol}://.*last.pt is a checkpoint of trial t, not of u",
    ):
        CheckpointFolder(f"{protocol}://{tmp_path}/x", "u").load()


def test_a_file_url_is_a_folder_with_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.training.checkpoint.LOCK_SECONDS", 0.2)
    assert isinstance(storage(f"file://{tmp_path}/x"), Folder)
    held = CheckpointFolder(f"file://{tmp_path}/x", "t")
    with pytest.raises(CheckpointError, match="another process has been training t"):
        CheckpointFolder(tmp_path / "x", "t")
    held.release()


def test_looking_makes_nothing(tmp_path: Path) -> None:
    for place in (tmp_path / "x", f"shared://{tmp_path}/x", f"file://{tmp_path}/x"):
        assert not has_checkpoint(place)
    assert not (tmp_path / "x").exists()


def test_a_url_that_cannot_be_written_is_reported_before_training(
    tiny: str, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        CheckpointError,
        match="checkpoints nosuch://x/.*Protocol not known: nosuch.*folder or a URL",
    ):
        try_out("nosuch://x")
    try_out(f"shared://{tmp_path}/root")
    assert not list((tmp_path / "root").iterdir()), "what was written to try is gone"
    monkeypatch.setattr(Shared, "broken", True)
    declared = space.load(tiny, "tiny.yaml")
    with pytest.raises(
        CheckpointError, match="cannot be written: OSError: connection reset"
    ):
        pipeline.run(
            declared,
            "tiny.yaml",
            replace(options, checkpoints=f"shared://{tmp_path}/root"),
        )


def test_a_study_with_its_checkpoints_at_a_url(
    tiny: str, options: Options, tmp_path: Path
) -> None:
    """Trained, left, gone on with, and looked into."""
    wanted = replace(options, checkpoints=f"shared://{tmp_path}/far/")
    declared = space.load(tiny.replace("seeds: 2", "seeds: 1"), "tiny.yaml")
    heard: list[object] = []
    outcome = pipeline.run(
        declared,
        "tiny.yaml",
        wanted,
        pipeline.Hooks(event=heard.append, stop=lambda: len(heard) > 2),
    )
    assert outcome.interrupted
    pipeline.resume(None, wanted)
    found = list((tmp_path / "far").glob("*/*/last.pt"))
    assert len(found) == 4
    assert not (options.runs / "checkpoints").exists()
    looked = diagnosis.diagnose(
        ("tiny",), Diagnostics(("token_similarity",), 8), wanted
    )
    assert (looked.trials, looked.without) == (4, 0)
    assert (
        diagnosis.diagnose(
            ("tiny",), Diagnostics(("token_similarity",), 8), options
        ).without
        == 4
    )
