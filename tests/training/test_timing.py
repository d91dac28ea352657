"""Measured times of networks: in turns with a reference, and without side effects."""

from __future__ import annotations

import pytest
import torch

from ablate.families import resolve
from ablate.records import Architecture
from ablate.training import timing
from ablate.training.timing import Conditions, Stopwatch, Timing


def vit(width: int = 8, depth: int = 1) -> Architecture:
    settings = {
        "size.width": width,
        "size.depth": depth,
        "size.heads": 1,
        "size.patch_size": 4,
    }
    return resolve("vit", 8, 1, 10, settings)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(timing, "LONG_ENOUGH", 0.001)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_everything_is_measured(precision: str) -> None:
    watch = Stopwatch(vit(), Conditions(images=4, precision=precision))
    measured = watch.measure(vit(width=16))
    assert isinstance(measured, Timing)
    assert measured.latency_ms > 0
    assert measured.inference > 0
    assert measured.training > 0
    assert measured.step_ratio > 0


def test_the_ratio_is_that_of_steps_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the machine slows down, both slow down."""
    rounds: list[str] = []

    def train(self: timing._Timed, images: int) -> float:
        wide = self._architecture.settings["size.width"] == 16
        rounds.append("wide" if wide else "reference")
        slow = len(rounds)
        return (3.0 if wide else 1.0) * slow

    monkeypatch.setattr(timing._Timed, "train", train)
    watch = Stopwatch(vit(), Conditions(images=2))
    rounds.clear()
    measured = watch.measure(vit(width=16))
    assert rounds == ["wide", *["reference", "wide"] * timing.LEAST_ROUNDS]
    assert 3 < measured.step_ratio < 5


def test_a_step_has_no_more_images_than_the_recipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing._Timed, "train", lambda self, images: images / 100)
    monkeypatch.setattr(timing, "LONG_ENOUGH", 0.2)
    assert Stopwatch(vit(), Conditions(images=256)).images == 32
    assert Stopwatch(vit(), Conditions(images=6)).images == 6
    assert Stopwatch(vit(), Conditions(images=1)).images == 1


@pytest.mark.proof
def test_threads_and_random_states_stay_as_they_were() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    before = torch.get_num_threads()
    Stopwatch(vit(), Conditions(images=2, threads=before + 1)).measure(vit())
    assert torch.get_num_threads() == before
    assert torch.equal(torch.rand(1), expected)


def test_a_step_has_as_many_images_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(self: timing._Timed, images: int) -> float:
        if images > 8:
            raise torch.OutOfMemoryError
        return 0.0

    monkeypatch.setattr(timing._Timed, "train", train)
    assert Stopwatch(vit(), Conditions(images=256)).images == 8
