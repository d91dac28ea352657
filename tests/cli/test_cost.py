"""`ablate cost --timing`: times beside FLOPs, and where both disagree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ablate.cli.output import Steps
from ablate.own import registry
from ablate.records import Architecture
from ablate.training import timing
from ablate.training.timing import Conditions, Timing
from tests.conftest import Say


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Conditions]:
    """The conditions of a stopwatch that measures 1.5 for a shortcut."""
    seen: list[Conditions] = []

    class Stopwatch:
        images = 16

        def __init__(self, reference: Architecture, conditions: Conditions) -> None:
            seen.append(conditions)

        def measure(self, architecture: Architecture) -> Timing:
            ratio = 1.5 if architecture.settings.get("shortcuts.count") else 1.02
            return Timing(
                latency_ms=2.0, inference=300.0, training=100 / ratio, step_ratio=ratio
            )

    monkeypatch.setattr(timing, "Stopwatch", Stopwatch)
    return seen


def test_times_stand_beside_flops(say: Say, timed: list[Conditions]) -> None:
    code, out, _ = say("cost", "tiny.yaml", "--timing", "--format", "md")
    assert code == 0
    assert "step time (x row 0)" in out
    assert "16 images, float32 on 1 CPU thread" in out
    assert (
        "Time and FLOPs differ by more than 10% in row 2 (time x 1.50, FLOPs x 1.22),"
        " row 3 (time x 1.50, FLOPs x 1.22)."
    ) in out
    assert "row 0 (time" not in out
    code, out, _ = say("cost", "tiny.yaml", "--timing", "--format", "json")
    rows = json.loads(out)
    assert [row["step_ratio"] for row in rows] == [1.02, 1.02, 1.5, 1.5]
    assert timed[0].images == 50


def test_a_model_is_timed_beside_the_unmodified_one(
    say: Say, timed: list[Conditions]
) -> None:
    code, out, _ = say(
        "cost",
        *("--model", "deit_tiny_patch16_224", "--set", "shortcuts.count=1"),
        *("--image-size", "32", "--timing", "--format", "md"),
    )
    assert code == 0
    assert "step time (x unmodified)" in out
    assert "shortcuts.count=1 (time x 1.50" in out


def test_a_space_for_gpus_is_timed_on_a_gpu(
    say: Say, timed: list[Conditions], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path("tiny.yaml").read_text()
    Path("gpu.yaml").write_text(text + "resources: {gpus: 1}\n")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, said = say("cost", "gpu.yaml", "--timing")
    assert code == 2
    assert "--timing: resources.gpus = 1, but this process sees no GPU" in said
    assert not timed
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    code, out, _ = say("cost", "gpu.yaml", "--timing", "--format", "md")
    assert code == 0
    assert timed[0].device == "cuda"
    assert "float32 on a GPU" in out


def test_conditions_are_those_of_a_process_of_a_trial(
    say: Say, timed: list[Conditions]
) -> None:
    text = Path("tiny.yaml").read_text().replace("batch_size: 50", "batch_size: 48")
    text = text.replace("warmup_epochs: 0", "warmup_epochs: 0, accumulate: 3")
    Path("parts.yaml").write_text(text + "resources: {cpus: 4, processes: 2}\n")
    code, _, said = say("cost", "parts.yaml", "--timing", "--format", "md")
    assert code == 0, said
    assert timed == [Conditions(images=8, threads=2)]


def test_a_network_that_needs_too_much_memory_has_no_times(
    say: Say, timed: list[Conditions], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = timing.Stopwatch.measure

    def limited(self: timing.Stopwatch, architecture: Architecture) -> Timing:
        if architecture.settings.get("shortcuts.count"):
            raise torch.OutOfMemoryError
        return measure(self, architecture)

    monkeypatch.setattr(timing.Stopwatch, "measure", limited)
    code, out, _ = say("cost", "tiny.yaml", "--timing", "--format", "json")
    assert code == 0
    assert [row["training"] for row in json.loads(out)] == [98.0, 98.0, None, None]
    code, out, _ = say("cost", "tiny.yaml", "--timing", "--format", "md")
    assert "Without times: the GPU has too little memory." in out


def test_a_gpu_without_memory_for_row_0(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(timing, "Stopwatch", full)
    code, _, said = say("cost", "tiny.yaml", "--timing")
    assert code == 2
    assert (
        "--timing: even with two images a step, row 0 needs more memory than the GPU has;"
        " choose a smaller network or image_size, or a larger GPU"
    ) in said
    assert "Traceback" not in said


def test_a_trainer_of_ones_own_is_not_timed(say: Say) -> None:
    """Its network, its data and its step are known to the trainer only."""
    folder = Path(__file__).parents[2] / "examples" / "script"
    mine = str(folder / "mine.py")
    try:
        code, _, said = say(
            "cost", str(folder / "space.yaml"), "--timing", "--with", mine
        )
    finally:
        registry.clear()
    assert code == 2
    assert "builds its own networks; only networks that ablate builds" in said


def test_progress_says_what_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Steps, "SECONDS", 0.0)
    # Imports take 100 s, the steps of an earlier run none, and the others 10 s each.
    clock = iter((0.0, 100.0, 110.0, 120.0))
    monkeypatch.setattr("ablate.cli.output.time.monotonic", lambda: next(clock))
    steps = Steps("epoch")
    for done in (50, 51, 53):
        steps(done, 53)
    assert capsys.readouterr().err.splitlines() == [
        "epoch 50 of 53",
        "epoch 51 of 53, about 20 s left",
        "epoch 53 of 53",
    ]
