"""The process that forks workers: what it promises of their life and death."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from ablate.cost import count
from ablate.data import arrays
from ablate.errors import ExecutorError, Infeasible
from ablate.execution import nursery as client
from ablate.execution import nursery_process as module
from ablate.execution.counting import WorkerCount
from ablate.execution.nursery import DEVICE_VARIABLES, Nursery
from ablate.execution.worker import Count, see_devices
from ablate.families import resolve
from ablate.records import Architecture, Data
from tests.processes import ended


@contextmanager
def started(folder: Path) -> Iterator[Nursery]:
    """A nursery that ends with everything in it."""
    made = Nursery(folder)
    made.hold()
    yield made
    left = processes(made)
    made.close()
    _, alive = psutil.wait_procs(left, 30)
    assert not alive, "nothing outlives a nursery"
    assert not made.folder.exists()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with started(tmp_path_factory.mktemp("shared") / "nursery") as made:
        yield made


@pytest.fixture
def nursery(shared: Nursery) -> Nursery:
    """The nursery of all tests that leave it alive, without workers."""
    assert until(lambda: not workers(shared))
    return shared


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Nursery]:
    """A nursery of this test alone."""
    with started(tmp_path / "nursery") as made:
        yield made


def until(holds: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def processes(nursery: Nursery) -> list[psutil.Process]:
    """The nursery and its workers."""
    alive = []
    for process in psutil.process_iter(["name", "ppid"]):
        if process.info["name"] not in ("ablate-nursery", "ablate-worker"):
            continue
        belongs = nursery.process_id in (process.pid, process.info["ppid"])
        # A process may end between any two of these lines.
        with contextlib.suppress(psutil.NoSuchProcess):
            if belongs and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def workers(nursery: Nursery) -> list[psutil.Process]:
    return [
        process
        for process in processes(nursery)
        if process.info["name"] == "ablate-worker"
    ]


def vit(width: int) -> Architecture:
    return resolve(
        "deit_tiny_patch16_224", 32, 3, 10, {"size.width": width, "size.depth": 1}
    )


def costs(worker: Connection, width: int) -> object:
    worker.send_bytes(pickle.dumps(Count(vit(width))))
    return pickle.loads(worker.recv_bytes()).cost


@pytest.mark.proof
def test_workers_are_forks_that_work(nursery: Nursery) -> None:
    with nursery.worker() as one, nursery.worker() as other:
        assert costs(one, 96) == count(vit(96))
        assert costs(other, 192) == count(vit(192))
        assert len(workers(nursery)) == 2


@pytest.mark.proof
def test_a_worker_ends_with_its_client_even_if_it_hangs(nursery: Nursery) -> None:
    with nursery.worker() as worker:
        costs(worker, 96)
        (process,) = workers(nursery)
        process.send_signal(signal.SIGSTOP)
    assert until(lambda: not workers(nursery))


@pytest.mark.proof
def test_the_client_of_a_killed_worker_hears_of_it(nursery: Nursery) -> None:
    with nursery.worker() as killed, nursery.worker() as other:
        costs(killed, 96)
        (process,) = workers(nursery)[:1]
        costs(other, 96)
        process.kill()
        with pytest.raises((EOFError, ConnectionError)):
            killed.recv_bytes()
        assert costs(other, 192) == count(vit(192)), "no other worker is touched"


@pytest.mark.proof
def test_workers_die_with_the_nursery_and_a_client_starts_another(
    own: Nursery,
) -> None:
    with own.worker() as worker:
        costs(worker, 96)
        left = processes(own)
        os.kill(own.process_id, signal.SIGKILL)
        with pytest.raises((EOFError, ConnectionError)):
            worker.recv_bytes()
        _, alive = psutil.wait_procs(left, 30)
        assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
    with own.worker() as worker:
        assert costs(worker, 96) == count(vit(96))


@pytest.mark.proof
def test_two_clients_share_one_nursery_which_ends_after_both(tmp_path: Path) -> None:
    one, other = Nursery(tmp_path / "n"), Nursery(tmp_path / "n")
    one.hold()
    other.hold()
    with other.worker() as worker:
        assert costs(worker, 96)
    first = one.process_id
    assert other.process_id == first
    one.release()
    with other.worker() as worker:
        assert costs(worker, 96)
    other.release()
    assert until(lambda: not psutil.pid_exists(first))
    assert not (tmp_path / "n").exists()


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    with pytest.raises(ExecutorError, match="can be entered by other users"):
        Nursery(folder).hold()
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(ExecutorError, match="can be entered by other users"):
        Nursery(link).hold()


def test_signals_of_a_terminal_are_the_drivers(nursery: Nursery) -> None:
    with nursery.worker() as worker:
        costs(worker, 96)
        for process in processes(nursery):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                process.send_signal(number)
        assert costs(worker, 192) == count(vit(192))


def test_costs_are_counted_in_a_worker(nursery: Nursery) -> None:
    counter = WorkerCount(nursery)
    assert counter(vit(96)) == count(vit(96))
    assert len(workers(nursery)) == 1
    unbuildable = resolve(
        "deit_tiny_patch16_224", 32, 3, 10, {"size.width": 100, "size.depth": 1}
    )
    with pytest.raises(Infeasible) as here:
        count(unbuildable)
    with pytest.raises(Infeasible) as there:
        counter(unbuildable)
    assert str(there.value) == str(here.value)
    (process,) = workers(nursery)
    process.kill()
    assert counter(vit(96)) == count(vit(96)), "counted here"
    counter.close()


@pytest.mark.proof
def test_the_nursery_has_one_thread_and_never_touches_cuda() -> None:
    """A fork copies only one thread, and cannot use the CUDA of its parent."""
    program = """
import contextlib
import os
from ablate.data import arrays
from ablate.execution import nursery_process as nursery
import torch
def refused(*_): raise AssertionError("CUDA was asked")
for name in ("_cuda_getDeviceCount", "_cuda_init"):
    if hasattr(torch._C, name):
        setattr(torch._C, name, refused)
nursery._import()
from ablate.records import Data
arrays._digits()
assert not torch.cuda.is_initialized()
print(len(os.listdir("/proc/self/task")))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **client.ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "1\n", ran.stderr


ONE_TRIAL = """
import sys, tempfile
from pathlib import Path
from ablate import space
from ablate.execution import nursery_process as nursery
from ablate.families import resolve
from ablate.records import Diagnostics, Job, Resources, Status, Trial
nursery._import()
declared = space.read(Path(sys.argv[1]))
network = resolve(declared.network.backbone, 8, 1, 10, declared.factors.fixed)
trial = Trial(network, declared.recipe, declared.data, seed=0)
job = Job(trial, tempfile.mkdtemp(), Resources(cpus=1), diagnostics=Diagnostics())
from ablate.data import arrays
arrays.load(trial.data)
before = set(sys.modules)
from ablate.execution.trial_run import TrialRun
run = TrialRun(job, "ray", in_worker=True)
events = list(run.start())
while run.status == Status.RUNNING:
    events += run.step()
assert run.status == Status.COMPLETED, events
print(*sorted(set(sys.modules) - before))
"""


@pytest.mark.proof
def test_a_worker_has_nothing_to_import(tmp_path: Path) -> None:
    """Each of thousands of forks would import it again."""
    space = tmp_path / "space.yaml"
    space.write_text(
        "question: What does a trial import?\n"
        "backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2,"
        " mlp_ratio: 2}\n"
        "factors: {layout: [serial, parallel]}\n"
        "data: {name: digits, train_images: 64, test_images: 32}\n"
        "recipe: {epochs: 1, batch_size: 32, warmup_epochs: 0}\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", ONE_TRIAL, str(space)],
        env={**os.environ, **client.ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "\n", ran.stderr


def test_a_worker_sees_the_devices_of_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    see_devices({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": None})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "HIP_VISIBLE_DEVICES" not in os.environ
    assert {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"} <= set(DEVICE_VARIABLES)


def test_data_are_loaded_once_for_all_forks() -> None:
    wanted = Data(name="digits", path="", image_size=8, channels=1, classes=10)
    arrays.load.cache_clear()
    ours, theirs = socket.socketpair()
    with Connection(ours.detach()) as client:
        client.send_bytes(pickle.dumps(wanted))
        module._load(theirs)
    assert arrays.load.cache_info().currsize == 1
    arrays.load(wanted)
    assert arrays.load.cache_info().hits == 1


FORKING_WORKER = """
import os, sys, time
from ablate.execution import nursery_process, worker

def serve(connection, lends):
    if os.fork():
        connection.send_bytes(str(os.getpid()).encode())
    time.sleep(120)

worker.serve = serve
nursery_process._import = lambda: None
nursery_process.serve(int(sys.argv[1]))
"""


@pytest.mark.proof
def test_what_a_worker_has_started_ends_with_it(tmp_path: Path) -> None:
    """A process that the worker has forked holds the connection too."""
    path = tmp_path / "socket"
    (tmp_path / "lock").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        number = listener.fileno()
        forking = subprocess.Popen(
            [sys.executable, "-c", FORKING_WORKER, str(number)], pass_fds=[number]
        )
    with ended(forking):
        made = Nursery(tmp_path)
        with made._connected(client.FORK) as worker:
            process = psutil.Process(int(worker.recv_bytes()))
            (child,) = process.children()
            process.kill()
            began = time.monotonic()
            with pytest.raises((EOFError, ConnectionError)):
                worker.recv_bytes()
            assert time.monotonic() - began < 60
            assert until(lambda: not child.is_running())


def test_a_worker_that_cannot_be_forked_is_a_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nursery hangs up before the client has said which GPUs the worker sees."""

    def connect(self: Nursery, word: bytes) -> Connection:
        ours, theirs = Pipe()
        theirs.close()
        return ours

    monkeypatch.setattr(Nursery, "_connect", connect)
    nursery = Nursery(tmp_path)
    with nursery.worker() as worker:
        assert worker.poll(), "it can be read from, so it is dead"
    nursery.load(pickle.dumps(None))


def test_a_nursery_that_cannot_be_started_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ExecutorError, match="cannot be started"):
        Nursery(tmp_path / "nursery").hold()


@pytest.mark.proof
def test_ctrl_c_in_a_terminal_does_not_reach_a_nursery_that_starts(
    tmp_path: Path,
) -> None:
    with started(tmp_path / "nursery") as made:
        assert until(lambda: made.process_id != 0)
        assert os.getpgid(made.process_id) != os.getpgid(0)
