"""Which workers count as hanging."""

from __future__ import annotations

import os
from pathlib import Path

from ablate.execution.monitor import BEGIN_SECONDS, Monitor


def beat(folder: Path, trial: str, moment: int) -> None:
    (folder / trial).mkdir(exist_ok=True)
    lock = folder / trial / "lock"
    lock.touch()
    os.utime(lock, ns=(moment, moment))


def watched(folder: Path, patience: float) -> Monitor:
    watch = Monitor(patience)
    for key in ("lively", "hanging", "without a folder", "a", "b"):
        watch.follow(key, str(folder))
        # It has begun.
        watch.told(key)
    return watch


def test_only_a_trial_without_a_sign_of_life_hangs(tmp_path: Path) -> None:
    watch = watched(tmp_path, 10)
    beat(tmp_path, "lively", 1)
    beat(tmp_path, "hanging", 1)
    assert watch.silent(["lively", "hanging", "without a folder"], now=100) == []
    beat(tmp_path, "lively", 2)
    assert watch.silent(["lively", "hanging", "without a folder"], now=109) == []
    # However wrong the clock is by which the file was touched.
    assert watch.silent(["lively", "hanging", "without a folder"], now=111) == [
        "hanging",
        "without a folder",
    ]
    assert watch.silent(["lively", "hanging"], now=112) == []
    assert watch.silent(["lively", "hanging"], now=123) == ["lively", "hanging"]


def test_what_waits_or_tells_does_not_hang(tmp_path: Path) -> None:
    watch = watched(tmp_path, 10)
    assert watch.silent(["a", "b"], now=100) == []
    watch.told("a")
    assert watch.silent(["a"], now=111) == []
    assert watch.silent(["a", "b"], now=112) == []


def test_patience_may_have_no_end(tmp_path: Path) -> None:
    watch = watched(tmp_path, 0)
    assert watch.silent(["a"], now=100) == []
    assert watch.silent(["a"], now=10**9) == []


def test_a_worker_that_starts_slowly_does_not_hang(tmp_path: Path) -> None:
    watch = watched(tmp_path, 10)
    beat(tmp_path, "a", 1)
    assert watch.silent(["a", "b"], now=100) == []
    # Both are handed out again after a kill of the nursery.
    watch.follow("a", str(tmp_path))
    watch.follow("b", str(tmp_path))
    assert watch.silent(["a", "b"], now=101) == []
    assert watch.silent(["a", "b"], now=150) == []
    beat(tmp_path, "a", 2)
    assert watch.silent(["a", "b"], now=151) == []
    assert watch.silent(["a", "b"], now=162) == ["a"]
    assert watch.silent(["b"], now=102 + BEGIN_SECONDS) == ["b"]
