"""What checkpoints occupy, what frees it, and what stays of a completed trial."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest
import torch

from ablate import pipeline, space
from ablate.errors import CheckpointError
from ablate.execution.inline import InlineExecutor
from ablate.execution.trial_run import TrialRun
from ablate.machine import filesystems
from ablate.pipeline import Options
from ablate.records import (
    Diagnostics,
    Job,
    Keep,
    Measured,
    Progressed,
    Resources,
    Status,
)
from ablate.results.study import Study
from ablate.store.reader import Reader
from ablate.trained import disk
from ablate.trained.diagnosis import diagnose
from tests.conftest import Killed, killing


def train(text: str, options: Options, hooks: Any = None) -> None:
    pipeline.run(
        space.load(text, "tiny.yaml"), "tiny.yaml", options, hooks, InlineExecutor()
    )


def files(options: Options) -> list[Path]:
    return sorted((options.runs / "checkpoints").rglob("last.pt"))


def test_finished_trials_are_freed_and_no_result_is_lost(
    tiny: str, options: Options
) -> None:
    train(tiny, options)
    table = Study("tiny", options.url).table()
    places = disk.usage(options)
    assert {place.kind for place in places} == {"finished"}
    assert len(places) == 8
    assert sum(place.size for place in places) >= sum(
        file.stat().st_size for file in files(options)
    )
    freed = disk.free(options, ["finished"])
    assert (freed.folders, freed.busy) == (8, 0)
    assert freed.size == sum(place.size for place in places)
    assert disk.usage(options) == []
    assert Study("tiny", options.url).table() == table
    train(tiny, options)
    assert files(options) == [], "what is known is not trained again"


def test_an_unfinished_trial_keeps_its_checkpoint(
    tiny: str, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.execution.trial_run.CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(Killed):
        train(tiny, options, killing(3))
    assert [place.kind for place in disk.usage(options)] == ["unfinished"]
    for kind in disk.KINDS:
        assert disk.free(options, [kind]).folders == 0
    assert len(files(options)) == 1


def test_trials_of_no_study_and_of_other_stores_are_distinguished(
    tiny: str, options: Options
) -> None:
    train(tiny, options)
    with Reader(options.url) as reader:
        store = reader.store_id()
    root = options.runs / "checkpoints"
    for folder in (
        root / store / "0123456789abcdef",
        root / "0123456789ab" / "fedcba9876543210",
    ):
        folder.mkdir(parents=True)
        (folder / "last.pt").write_bytes(b"x" * 1000)
    found = {
        place.kind: place for place in disk.usage(options) if place.kind != "finished"
    }
    assert found["unused"].size == found["other-stores"].size == 1000
    strangers = [
        root / "thesis.tex",
        root / "photos" / "a.jpg",
        root / store / "notes" / "n.txt",
    ]
    for stranger in strangers:
        stranger.parent.mkdir(exist_ok=True)
        stranger.write_text("mine")
    assert disk.free(options, ["unused"]).size == 1000
    assert disk.free(options, ["other-stores"]).size == 1000
    assert {place.kind for place in disk.usage(options)} == {"finished"}
    assert all(stranger.read_text() == "mine" for stranger in strangers), (
        "only checkpoints are removed"
    )


def test_a_folder_that_a_process_holds_is_left(tiny: str, options: Options) -> None:
    train(tiny, options)
    lock = files(options)[0].with_name("lock")
    with lock.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        freed = disk.free(options, ["finished"])
    assert (freed.folders, freed.busy) == (7, 1)
    assert len(files(options)) == 1


@pytest.mark.proof
def test_keep_none_leaves_no_checkpoint_once_the_result_is_stored(
    tiny: str, options: Options
) -> None:
    train(tiny, options)
    table = Study("tiny", options.url).table()
    other = Options(runs=options.runs.with_name("none"), executor="inline", cpus=2)
    train(tiny + "keep: none\n", other)
    assert files(other) == []
    assert Study("tiny", other.url).table() == table


@pytest.mark.proof
def test_keep_best_leaves_the_weights_alone(tiny: str, options: Options) -> None:
    train(tiny, options)
    whole = sum(file.stat().st_size for file in files(options))
    other = Options(runs=options.runs.with_name("best"), executor="inline", cpus=2)
    train(tiny + "keep: best\n", other)
    assert len(files(other)) == 8
    assert sum(file.stat().st_size for file in files(other)) < 0.6 * whole
    assert Study("tiny", other.url).table() == Study("tiny", options.url).table()
    wanted = Diagnostics(("token_cosine",), 20)
    for one in (options, other):
        assert diagnose(("tiny",), wanted, one).trials == 8
    assert Study("tiny", other.url).layers("token_cosine") == Study(
        "tiny", options.url
    ).layers("token_cosine")


def test_a_kill_after_the_last_epoch_finds_the_trial_finished(
    tiny: str, tmp_path: Path
) -> None:
    declared = space.load(tiny, "tiny.yaml")
    trial = pipeline.preview(
        declared, str(tmp_path / "none.db"), probe=False
    ).plan.trials[0]
    job = Job(
        trial=trial, checkpoints=str(tmp_path), resources=Resources(), keep="best"
    )
    first = TrialRun(job, "inline")
    told = list(first.start())
    while first.status == Status.RUNNING:
        told += list(first.step())
    first.close()
    state = torch.load(tmp_path / trial.hash / "last.pt", weights_only=True)
    assert "optimizer" not in state
    again = TrialRun(job, "inline")
    events = list(again.start())
    again.close()
    assert again.status == Status.COMPLETED
    assert events[1] == type(events[1])(
        trial.hash,
        tuple(epoch for event in told for epoch in getattr(event, "epochs", ())),
    )


@pytest.mark.proof
def test_a_longer_training_does_not_begin_at_weights_alone(
    tiny: str, options: Options
) -> None:
    constant = tiny.replace("epochs: 3", "schedule: constant, epochs: 3")
    train(constant + "keep: best\n", options)
    train(constant.replace("epochs: 3", "epochs: 4"), options)
    other = Options(runs=options.runs.with_name("longer"), executor="inline", cpus=2)
    train(constant.replace("epochs: 3", "epochs: 4"), other)
    assert (
        Study("tiny", options.url).results().cells
        == Study("tiny", other.url).results().cells
    )


def test_a_store_that_refuses_to_remove_ends_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refused(Exception):
        """An error of a protocol of its own."""

    class System:
        def rm(self, path: str, recursive: bool) -> None:
            raise Refused

    monkeypatch.setattr(filesystems, "system_of", lambda place: (System(), place))
    filesystems.remove_checkpoint("nosuch://bucket/trial")


def test_checkpoints_of_other_stores_at_a_url_are_left(
    tiny: str, options: Options
) -> None:
    train(tiny, options)
    remote = Options(
        runs=options.runs, executor="inline", checkpoints="memory://checkpoints"
    )
    with pytest.raises(
        CheckpointError,
        match="are in use, so they are not removed; make sure that no run uses them",
    ):
        disk.free(remote, ["other-stores"])


@pytest.mark.parametrize("keep", ["last", "best"])
def test_diagnostics_are_those_of_one_network_whatever_is_kept(
    keep: Keep, tiny: str, options: Options, tmp_path: Path
) -> None:
    """The last weights, also where the best were tested, were kept alone, and a kill
    came between.
    """
    text = tiny.replace("test_images: 50", "test_images: 50, validation: 0.2").replace(
        "epochs: 3", "epochs: 3, select: best"
    )
    declared = space.load(text + "diagnostics: [token_cosine]\n", "tiny.yaml")
    trial = pipeline.preview(
        declared, str(tmp_path / "none.db"), probe=False
    ).plan.trials[0]
    wanted = Diagnostics(("token_cosine",), 20)
    measured = []
    for name, kill in (("whole", False), ("killed", True)):
        folder = tmp_path / name
        folder.mkdir()
        job = Job(
            trial=trial,
            checkpoints=str(folder),
            resources=Resources(),
            diagnostics=wanted,
            keep=keep,
        )
        work = TrialRun(job, "inline")
        events = list(work.start())
        while work.status == Status.RUNNING:
            for event in work.step():
                events.append(event)
                if (
                    kill
                    and isinstance(event, Progressed)
                    and event.epochs[-1].number == 3
                ):
                    # The checkpoint is written, and the diagnostics are not yet taken.
                    break
            else:
                continue
            break
        work.close()
        if kill:
            work = TrialRun(job, "inline")
            events = list(work.start())
            work.close()
        measured.append(
            [event.measurements for event in events if isinstance(event, Measured)][-1]
        )
    assert measured[0] == measured[1]
