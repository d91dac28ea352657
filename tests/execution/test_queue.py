"""What is handed out: each trial once, again where it came back, and nothing for ever."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import Literal

import pytest

from ablate import pipeline, space
from ablate.execution import make
from ablate.pipeline import Options
from ablate.plan import make_plan
from ablate.records import Cost, Job, Resources, Trial
from ablate.scheduling.queue import MOST_RETURNS, Planned, Queue
from ablate.store.reader import Reader
from ablate.training import checkpoint
from tests.conftest import TINY

Answer = Literal["granted", "taken", "known"]


@pytest.fixture
def trials() -> tuple[Trial, ...]:
    return make_plan(
        space.load(TINY, "tiny.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    ).trials[:3]


def queue(trials: tuple[Trial, ...], answers: dict[str, list[Answer]]) -> Queue:
    def claim(key: str) -> Answer:
        return answers[key].pop(0) if answers.get(key) else "granted"

    return Queue(Planned(trials), claim, lambda trial: Job(trial, "", Resources()))


def test_each_trial_is_handed_out_once(trials: tuple[Trial, ...]) -> None:
    assert [job.trial for job in queue(trials, {}) if job] == list(trials)


def test_what_others_have_is_waited_for(trials: tuple[Trial, ...]) -> None:
    one, two, three = (trial.hash for trial in trials)
    made = queue(trials, {one: ["taken", "taken", "taken", "known"], two: ["taken"]})
    handed = [job.trial.hash if job else None for job in made]
    assert handed == [three, two, None]


def test_what_comes_back_after_the_end_is_handed_out_again(
    trials: tuple[Trial, ...],
) -> None:
    """An executor asks ahead: the queue has ended when the last trial comes back."""
    made = queue(trials[:2], {})
    assert len(list(made)) == 2
    made.returned(trials[1].hash)
    assert [job.trial for job in made if job] == [trials[1]]


def test_what_comes_back_is_handed_out_again_but_not_for_ever(
    trials: tuple[Trial, ...],
) -> None:
    made = queue(trials[:1], {})
    handed = 0
    for job in made:
        assert job is not None
        handed += 1
        made.returned(job.trial.hash)
    assert handed == MOST_RETURNS + 1


@pytest.mark.proof
def test_a_trial_that_another_process_still_trains_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that outlived its driver holds the trial's folder; it is no failure, and
    its time comes.
    """
    monkeypatch.setattr(checkpoint, "LOCK_SECONDS", 0.2)
    declared = space.load(TINY.replace("seeds: 2", "seeds: 1"), "tiny.yaml")
    options = Options(runs=tmp_path, executor="inline", cpus=2)
    pipeline.run(
        declared,
        "tiny.yaml",
        options,
        pipeline.Hooks(stop=lambda: True),
        make("inline"),
    )
    held = (
        make_plan(
            declared,
            lambda architecture: Cost(
                params=1, flops=1, flops_paper=1, activations=1, elementwise=1
            ),
        )
        .trials[0]
        .hash
    )
    with Reader(options.url) as reader:
        (name,) = reader.query("SELECT id FROM stores")[1][0]
    folder = tmp_path / "checkpoints" / name / held
    folder.mkdir(parents=True)
    stream = (folder / "lock").open("w")
    fcntl.flock(stream, fcntl.LOCK_EX)
    release = threading.Timer(1.0, stream.close)
    release.start()
    outcome = pipeline.run(declared, "tiny.yaml", options, executor=make("inline"))
    release.join()
    assert (outcome.trained, outcome.failed, outcome.unfinished) == (4, 0, 0)
    with Reader(options.url) as reader:
        ends = [attempt.status for attempt in reader.trials.attempts(held)]
    assert ends[-1] == "completed"
    assert set(ends[:-1]) <= {"interrupted"}
    assert len(ends) > 1
