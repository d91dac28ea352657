"""The local executor: its slots, its GPUs, and what is left of a killed driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from ablate.execution import local
from ablate.execution.local import LocalSlots
from ablate.execution.nursery import Nursery
from ablate.execution.slots import Lost
from ablate.execution.worker import Answer, Leave
from ablate.records import Job, Order, Resources, Started, Status
from tests.execution.test_executors import trials
from tests.processes import ended

FOUR = ("0", "1", "2", "3")


class PlayedNursery(Nursery):
    """Workers that say nothing; it records which GPUs they see."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.seen: list[str | None] = []

    def worker(self, devices: dict[str, str | None] | None = None) -> Connection:
        assert devices is not None
        self.seen.append(devices["CUDA_VISIBLE_DEVICES"])
        ours, theirs = Pipe()
        self.theirs = theirs
        return ours


@pytest.fixture
def nursery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedNursery:
    for name in local.DEVICE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return PlayedNursery(tmp_path / "nursery")


@pytest.mark.parametrize(
    ("gpus", "most", "seen"),
    [
        (0, 8, ["", "", "", "", "", "", "", ""]),
        (1, 4, ["0", "1", "2", "3"]),
        (2, 2, ["0,1", "2,3"]),
        (0.5, 8, ["0", "1", "2", "3", "0", "1", "2", "3"]),
        (0.4, 8, ["0", "1", "2", "3", "0", "1", "2", "3"]),
        (0.1, 8, ["0", "1", "2", "3", "0", "1", "2", "3"]),
    ],
)
def test_each_slot_sees_its_own_gpus(
    gpus: float, most: int, seen: list[str], nursery: PlayedNursery
) -> None:
    slots = LocalSlots(Resources(cpus=1, gpus=gpus), nursery, 8, FOUR)
    assert slots.most() == most
    for _ in range(most):
        slots.add()
    assert nursery.seen == seen
    first = slots.all[0]
    slots.remove(first)
    slots.add()
    assert nursery.seen[-1] == seen[0], "its GPUs are free again"
    slots.close()
    assert slots.all == []
    assert slots._free == dict.fromkeys(FOUR, 1.0)


@pytest.mark.proof
def test_a_worker_that_was_killed_is_lost_and_its_slot_stays(
    tiny: str, tmp_path: Path
) -> None:
    job = Job(trials(tiny)[0], str(tmp_path), Resources())
    nursery = Nursery(tmp_path / "nursery")
    nursery.hold()
    slots = LocalSlots(Resources(), nursery, 1, ())
    try:
        slots.add()
        (slot,) = slots.all
        slots.begin(slot, job)
        (answer,) = all_answers(slots)
        assert isinstance(answer, Answer)
        (started,) = (event for event in answer.events if isinstance(event, Started))
        assert started.place.executor == "local"
        os.kill(started.place.pid, signal.SIGKILL)
        slots.ask(slot, Leave(Status.RUNNING))
        (answer,) = all_answers(slots)
        assert answer == Lost(
            "its process was killed, or memory ran out", with_slot=False
        )
        # The nursery dies too: the next job gets a new one.
        os.kill(nursery.process_id, signal.SIGKILL)
        slots.begin(slot, job)
        assert isinstance(next(iter(all_answers(slots))), Answer | Lost)
        slots.begin(slot, job)
        (answer,) = all_answers(slots)
        assert isinstance(answer, Answer)
        assert not answer.error
    finally:
        slots.close()
        nursery.close()


def all_answers(slots: LocalSlots) -> list[Answer | Lost]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answers = [answer for _, _, answer in slots.answers(0.1)]
        if answers:
            return answers
    raise AssertionError("no answer")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder whose path is short enough for sockets below it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_nothing_outlives_a_driver_and_the_user_reads_how_to_go_on(
    number: signal.Signals, tiny: str, tmp_path: Path, temporary: Path
) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny.replace("epochs: 3", "epochs: 4000"))
    words = [sys.executable, "-m", "ablate", "run", "tiny.yaml", "--executor", "local"]
    with (
        subprocess.Popen(
            [*words, "--cpus", "2"],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as driver,
        ended(driver),
    ):
        workers = until_workers(temporary)
        # The driver answers signals by the time that a trial trains.
        deadline = time.monotonic() + 60
        while not list((tmp_path / "runs" / "logs").rglob("*.txt")):
            assert time.monotonic() < deadline, "no trial trains"
            time.sleep(0.1)
        os.kill(driver.pid, number)
        _, errors = driver.communicate(timeout=60)
    # A terminal that has gone shows nothing.
    go_on = "Nothing stored is lost. Go on with: ablate resume --executor local\n"
    assert (go_on in errors) == (number == signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, 30)
    assert not alive
    deadline = time.monotonic() + 30
    while list(temporary.glob("ablate-run-*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not list(temporary.glob("ablate-*"))


def until_workers(temporary: Path) -> list[psutil.Process]:
    """Waits for two workers of the nursery below a folder."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for file in temporary.glob("*/nursery/pid"):
            nursery = int(file.read_text() or 0)
            workers = [
                process
                for process in psutil.process_iter(["ppid"])
                if process.info["ppid"] == nursery
            ]
            if len(workers) >= 2:
                return [psutil.Process(nursery), *workers]
        time.sleep(0.1)
    raise AssertionError("no workers")


@pytest.mark.parametrize(
    ("visible", "there", "names"),
    [
        (None, 2, ["0", "1"]),
        ("-1", 0, []),
        ("", 0, []),
        ("0,1", 1, ["0"]),
        ("GPU-a, GPU-b", 2, ["GPU-a", "GPU-b"]),
        ("1,-1,0", 1, ["1"]),
    ],
)
def test_gpus_are_those_that_torch_sees(
    visible: str | None, there: int, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in local.DEVICE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("torch.cuda.device_count", lambda: there)
    order = Order((), "top1", "max", Resources(cpus=1, gpus=1), 1)
    assert local._gpus(order) == names
    assert local._gpus(replace(order, gpus=1)) == names[:1]
    assert local._gpus(replace(order, resources=Resources())) == []


@pytest.mark.proof
@pytest.mark.parametrize("users", ["1", "0", None])
def test_the_users_setting_of_ray_train_stays(users: str | None) -> None:
    """Tune's schedulers are imported with another one; workers inherit that of the user."""
    code = (
        "import os, ablate.execution.tune_schedulers, ablate.execution.ray_tune\n"
        "print(os.environ.get('RAY_TRAIN_V2_ENABLED'))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "RAY_TRAIN_V2_ENABLED"}
    if users is not None:
        environment["RAY_TRAIN_V2_ENABLED"] = users
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(users)
