"""The cache saves time, and can neither fail a command nor change a number."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from ablate.machine import cache

MADE = np.arange(12, dtype=np.float32).reshape(3, 4)


class Maker:
    """Makes an array, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> cache.Array:
        self.calls += 1
        return MADE


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_array_is_made_once(place: Path) -> None:
    make = Maker()
    for _ in range(3):
        found = cache.array("a key", make)
        assert found.dtype == MADE.dtype
        np.testing.assert_array_equal(found, MADE)
    assert make.calls == 1
    cache.array("another key", make)
    assert make.calls == 2
    assert len(list(place.iterdir())) == 2, "no part of a file is left"


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "pickle", "folder"])
def test_a_damaged_file_is_made_again(place: Path, damage: str) -> None:
    make = Maker()
    cache.array("a key", make)
    (file,) = place.iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.unlink()
    if damage == "flip":
        file.write_bytes(content)
    elif damage == "cut":
        file.write_bytes(content[:100])
    elif damage == "empty":
        file.touch()
    elif damage == "pickle":
        file.write_bytes(pickle.dumps(MADE))
    else:
        file.mkdir()
    np.testing.assert_array_equal(cache.array("a key", make), MADE)
    assert make.calls == 2


@pytest.mark.parametrize("body", [pickle.dumps(MADE), b"not an array"])
def test_a_file_with_other_content_and_a_right_digest(place: Path, body: bytes) -> None:
    import hashlib

    make = Maker()
    cache.array("a key", make)
    (file,) = place.iterdir()
    file.write_bytes(hashlib.sha256(body).digest() + body)
    np.testing.assert_array_equal(cache.array("a key", make), MADE)


def test_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "cache"))
    make = Maker()
    np.testing.assert_array_equal(cache.array("a key", make), MADE)
    np.testing.assert_array_equal(cache.array("a key", make), MADE)
    assert make.calls == 2


def test_the_oldest_files_make_room(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Maker()
    cache.array("0", make)
    (first,) = place.iterdir()
    os.utime(first, (1, 1))
    others = place / "my_dataset.npy"
    others.write_bytes(bytes(10_000))
    os.utime(others, (0, 0))
    monkeypatch.setattr(cache, "TIDY", 1)
    monkeypatch.setattr(cache, "MOST_BYTES", 3 * first.stat().st_size)
    for number in range(1, 5):
        cache.array(str(number), make)
    assert not first.exists()
    assert others.exists(), "a file of the user"
    assert len(list(place.iterdir())) == 4


def test_the_folder_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.folder() == Path("/somewhere/ablate")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv(cache.VARIABLE, "~/cache")
    assert cache.folder() == Path("/home/me/cache")


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(*_: object, **__: object) -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setattr("platformdirs.user_cache_path", no_home)
    np.testing.assert_array_equal(cache.array("a key", Maker()), MADE)
