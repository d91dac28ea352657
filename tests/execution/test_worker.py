"""A worker trains one job after another for a client, in this process."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from ablate import pipeline, space
from ablate.cost import count
from ablate.execution import worker as module
from ablate.execution.worker import Answer, Begin, Count, Leave, Step
from ablate.families import resolve
from ablate.records import (
    Ended,
    Job,
    Progressed,
    Resources,
    Started,
    Status,
    Trial,
    epochs_of,
)
from tests.conftest import TINY

EPOCHS = 3


@pytest.fixture(scope="module")
def trials() -> tuple[Trial, ...]:
    return pipeline.cost_plan(space.load(TINY, "tiny.yaml"), "none.db").trials


@pytest.fixture
def job(trials: tuple[Trial, ...], tmp_path: Path) -> Job:
    return Job(trials[0], str(tmp_path), Resources())


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker sets the number of threads of the programs that it starts."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


class Client:
    """The other end of a worker's connection.

    Attributes:
        thread: serves until the worker ends.
    """

    def __init__(self, devices: str = "{}") -> None:
        self._mine, served = Pipe()
        self._mine.send_bytes(devices.encode())
        self.thread = threading.Thread(target=self._serve, args=(served,))
        self.thread.start()

    def _serve(self, connection: Connection) -> None:
        module.serve(connection)
        connection.close()

    def ask(self, request: module.Request) -> Answer:
        self._mine.send_bytes(pickle.dumps(request))
        answer: Answer = pickle.loads(self._mine.recv_bytes())
        return answer

    def hang_up(self) -> None:
        self._mine.close()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.hang_up()


@pytest.mark.proof
def test_a_job_begins_steps_and_ends(client: Client, job: Job) -> None:
    (started,) = client.ask(Begin(job, "local", last=False)).events
    assert isinstance(started, Started)
    assert started.trial == job.trial.hash
    assert started.place.pid == os.getpid()
    events = client.ask(Step(60)).events
    progressed = [event for event in events if isinstance(event, Progressed)]
    assert [epoch.number for epoch in epochs_of(progressed)] == [1, 2, 3]
    assert isinstance(events[-1], Ended)
    assert events[-1].status == Status.COMPLETED


@pytest.mark.proof
def test_a_step_is_at_least_one_epoch(client: Client, job: Job) -> None:
    client.ask(Begin(job, "local", last=False))
    for number in range(1, EPOCHS + 1):
        epochs = epochs_of(client.ask(Step(0)).events)
        assert [epoch.number for epoch in epochs] == [number]


@pytest.mark.proof
def test_after_the_end_a_step_does_nothing(client: Client, job: Job) -> None:
    client.ask(Begin(job, "local", last=False))
    client.ask(Step(60))
    assert client.ask(Step(60)) == Answer()
    assert client.ask(Leave(Status.RUNNING)) == Answer()


@pytest.mark.proof
def test_jobs_follow_one_another_until_the_last_one(
    trials: tuple[Trial, ...], tmp_path: Path
) -> None:
    client = Client()
    for trial in trials[:2]:
        assert client.ask(
            Begin(Job(trial, str(tmp_path), Resources()), "local", last=False)
        ).events
        assert client.ask(Step(60)).events
    assert client.thread.is_alive()
    client.ask(Begin(Job(trials[2], str(tmp_path), Resources()), "local", last=True))
    assert client.thread.is_alive(), "it ends with its last job, not before"
    client.ask(Step(60))
    client.thread.join(60)
    assert not client.thread.is_alive()


@pytest.mark.proof
@pytest.mark.parametrize("status", [Status.RUNNING, Status.PRUNED])
def test_a_job_that_is_left_can_be_resumed(
    client: Client, job: Job, status: Status
) -> None:
    client.ask(Begin(job, "local", last=False))
    client.ask(Step(0))
    (ended,) = client.ask(Leave(status)).events
    assert isinstance(ended, Ended)
    assert ended.status == status
    started, *known = client.ask(Begin(job, "local", last=False)).events
    assert isinstance(started, Started)
    assert started.epoch == 1, "from its checkpoint"
    assert [epoch.number for epoch in epochs_of(known)] == [1]
    client.ask(Leave(status))


@pytest.mark.proof
def test_a_failure_of_a_trial_is_an_event(client: Client, job: Job) -> None:
    data = replace(job.trial.data, name="none", path="nowhere")
    lacking = replace(job, trial=replace(job.trial, data=data))
    answer = client.ask(Begin(lacking, "local", last=False))
    assert not answer.error
    ended = answer.events[-1]
    assert isinstance(ended, Ended)
    assert ended.status == Status.FAILED
    assert "none" in ended.error


@pytest.mark.parametrize("error", [SystemExit(3), RuntimeError("broken"), MemoryError])
def test_an_error_outside_a_trial_ends_the_worker(
    job: Job, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("ablate.execution.trial_run.TrialRun.start", fail)
    client = Client()
    answer = client.ask(Begin(job, "local", last=False))
    assert answer.events == ()
    name = error.__name__ if isinstance(error, type) else type(error).__name__
    assert name in answer.error
    client.thread.join(60)
    assert not client.thread.is_alive(), "what it was doing is not known"


def test_a_network_is_counted(client: Client) -> None:
    network = resolve("deit_tiny_patch16_224", 32, 3, 10, {"size.depth": 1})
    assert client.ask(Count(network)).cost == count(network)


def test_a_network_that_cannot_be_built_has_its_reason(client: Client) -> None:
    network = resolve("deit_tiny_patch16_224", 32, 3, 10, {"size.depth": 1})
    wrong = replace(network, settings={**network.settings, "size.heads": 7})
    answer = client.ask(Count(wrong))
    assert answer.cost is None
    assert not answer.error
    assert "7" in answer.infeasible


def test_a_client_that_hangs_up_at_once_is_no_error() -> None:
    Client().hang_up()


def test_it_sees_the_gpus_of_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    Client('{"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": null}').hang_up()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "HIP_VISIBLE_DEVICES" not in os.environ
