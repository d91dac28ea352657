"""The lines of a run without a terminal."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import ablate
from ablate import space
from ablate.cli.progress import Progress
from ablate.pipeline import Preview
from ablate.plan import make_plan
from ablate.progress_bar import ProgressBar
from ablate.records import (
    Cost,
    Ended,
    Epoch,
    Event,
    Place,
    Plan,
    Progressed,
    Started,
    Status,
    Trial,
)


def plan_of(text: str) -> Plan:
    return make_plan(
        space.load(text, "tiny.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    )


def ended(trial: Trial) -> list[Event]:
    """What happens to a trial that is trained to its end."""
    metrics = {"top1": 50.0, "top5": 90.0, "loss": 1.0, "train_loss": 1.0}
    epochs = tuple(
        Epoch(number=number, metrics=metrics, lr=1e-3, seconds=1.0)
        for number in range(1, trial.recipe.epochs + 1)
    )
    return [
        Started(trial.hash, Place("inline", "here", 1, "cpu", 1), 0),
        Progressed(trial.hash, epochs),
        Ended(trial.hash, Status.COMPLETED),
    ]


def test_a_lost_worker_is_a_line_with_the_trial_and_where_it_goes_on(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tiny)
    key = plan.trials[0].hash
    progress = Progress()
    progress.planned(Preview(plan=plan, known={}, to_train=plan.trials, seconds=None))
    progress.event(Started(key, Place("ray", "here", 1, "cpu", 1), 0))
    assert "lost" not in capsys.readouterr().err
    progress.event(Started(key, Place("ray", "here", 2, "cpu", 1), 3))
    assert (
        capsys.readouterr().err
        == "the worker was lost: baseline, seed 0; the trial continues after epoch 3\n"
    )


def test_lines_say_what_is_left(
    tiny: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Captured output has no bars, so each line says it."""
    clock = [100.0]
    monkeypatch.setattr("ablate.cli.progress.time.monotonic", lambda: clock[0])
    plan = plan_of(tiny)
    progress = Progress()
    progress.planned(Preview(plan=plan, known={}, to_train=plan.trials, seconds=None))
    said = []
    for trial in plan.trials[:2]:
        clock[0] += 20
        for event in ended(trial):
            progress.event(event)
        said.append(capsys.readouterr().err.splitlines()[-1])
    # Of the first trial, the time is not known without its start. After it, 3 epochs
    # took 20 s, and 18 of 24 are left; one of the six had ended when the clock began.
    assert said[0] == f"[1/{len(plan.trials)}] baseline, seed 0: top1 50.00"
    assert ", 72 s left]" in said[1]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_first_estimate_is_near_the_truth(
    tiny: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    """Workers take six seconds to start, and an epoch takes one."""
    clock = [0.0]
    monkeypatch.setattr("ablate.cli.progress.time.monotonic", lambda: clock[0])
    plan = plan_of(
        tiny.replace("seeds: 2", "seeds: 6").replace("epochs: 3", "epochs: 5")
    )
    progress = Progress()
    progress.planned(Preview(plan=plan, known={}, to_train=plan.trials, seconds=None))
    estimates = []
    clock[0] = 6.0
    for start in range(0, len(plan.trials), workers):
        beside = plan.trials[start : start + workers]
        begun, *_, end = zip(*map(ended, beside), strict=True)
        for event in begun:
            progress.event(event)
        for number in range(5):
            clock[0] += 1
            for trial in beside:
                (epochs,) = [e for e in ended(trial) if isinstance(e, Progressed)]
                progress.event(Progressed(trial.hash, epochs.epochs[: number + 1]))
        for event in end:
            progress.event(event)
        left = progress._seconds_left()
        truth = (len(plan.trials) - start - workers) / workers * 5
        if left is not None and truth > 0:
            estimates.append(left / truth)
    assert estimates
    assert all(0.75 < ratio < 1.35 for ratio in estimates), estimates


def test_python_shows_one_bar_for_all_epochs(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tiny)
    first, *others = plan.trials
    with ProgressBar() as bar:
        hooks = bar.hooks()
        preview = Preview(plan=plan, known={}, to_train=(first,), seconds=None)
        hooks.planned(preview)
        assert "tiny:   0%" in capsys.readouterr().err
        for event in ended(first):
            hooks.event(event)
        said = capsys.readouterr().err
        assert "100%" in said
        assert "3/3" in said
        assert "1/1 trials" in said
        # A search proposes more.
        hooks.proposed([replace(plan.cells[0], trials=tuple(others[:3]))])
        said = capsys.readouterr().err
        assert "3/12" in said
        assert "1/4 trials" in said


def test_a_bar_with_nothing_to_train_is_none(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressBar() as bar:
        bar.hooks().planned(
            Preview(plan=plan_of(tiny), known={}, to_train=(), seconds=None)
        )
    assert capsys.readouterr().err == ""


@pytest.mark.proof
@pytest.mark.parametrize(
    ("kernel", "asked"), [(True, None), (False, None), (False, True), (True, False)]
)
def test_notebooks_have_the_bar_unless_set_otherwise(
    tiny: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kernel: bool,
    asked: bool | None,
) -> None:
    if kernel:
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny)
    ablate.run(file, runs=tmp_path, executor="inline", progress=asked)
    shown = "trials" in capsys.readouterr().err
    assert shown == (kernel if asked is None else asked)
