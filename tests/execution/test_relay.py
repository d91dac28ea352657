"""A relay passes requests to a worker, and knows when to ask for another one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar

import pytest

from ablate.execution.ray_tune import relay as module
from ablate.execution.ray_tune.relay import Relay


class Echo:
    """A worker that answers each request with its number and the request."""

    def __init__(self, number: int) -> None:
        self.client, self._server = Pipe()
        self._number = number
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                request = self._server.recv_bytes()
            except (EOFError, OSError):
                return
            if request == b"die":
                self._server.close()
                return
            self._server.send_bytes(b"%d:%s" % (self._number, request))

    def kill(self) -> None:
        self.client.send_bytes(b"die")
        self._thread.join()


class FakeNursery:
    """Forks workers in no time, and remembers what was wanted.

    Attributes:
        workers: all workers that it forked.
        loaded: the data that it was to load.
    """

    made: ClassVar[list[FakeNursery]] = []

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_held = False
        self.loaded: list[bytes] = []
        self.workers: list[Echo] = []
        FakeNursery.made.append(self)

    def hold(self) -> None:
        self.is_held = True

    def load(self, data: bytes) -> None:
        assert not self.workers, "workers forked before share no data"
        self.loaded.append(data)

    def worker(self) -> Connection:
        self.workers.append(Echo(len(self.workers)))
        return self.workers[-1].client


@pytest.fixture(autouse=True)
def nurseries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeNursery]]:
    FakeNursery.made = []
    monkeypatch.setattr(module, "Nursery", FakeNursery)
    yield FakeNursery.made
    for nursery in FakeNursery.made:
        for worker in nursery.workers:
            worker.client.close()


def relay(*, fresh: bool, data: bytes = b"") -> tuple[Relay, FakeNursery]:
    made = Relay("folder", "token", data, fresh=fresh)
    return made, FakeNursery.made[-1]


def test_it_holds_the_nursery_of_its_folder_and_forks_in_advance() -> None:
    made, nursery = relay(fresh=True)
    made.ready()
    assert nursery.folder == Path("folder")
    assert nursery.is_held, "a nursery without clients would end"
    assert nursery.loaded == []
    assert len(nursery.workers) == 1


def test_data_are_loaded_before_the_first_fork() -> None:
    _, nursery = relay(fresh=True, data=b"digits")
    assert nursery.loaded == [b"digits"]


def test_without_a_job_there_is_no_answer() -> None:
    made, _ = relay(fresh=True)
    assert made.ask(b"step") == b""


def test_each_job_has_a_process_of_its_own_on_a_cpu() -> None:
    made, nursery = relay(fresh=True)
    assert made.begin(b"a") == b"0:a"
    assert made.ask(b"step") == b"0:step"
    assert made.begin(b"b") == b"1:b"
    # The next one is forked while this job trains.
    assert len(nursery.workers) == 3


def test_a_process_stays_for_many_jobs_on_a_gpu() -> None:
    made, nursery = relay(fresh=False)
    assert made.begin(b"a") == b"0:a"
    assert made.begin(b"b") == b"0:b"
    assert len(nursery.workers) == 1


def test_a_process_on_a_gpu_is_replaced_on_request() -> None:
    made, nursery = relay(fresh=False)
    made.begin(b"a")
    assert made.begin(b"b", replace=True) == b"1:b"
    assert made.begin(b"c") == b"1:c"
    assert len(nursery.workers) == 2


@pytest.mark.parametrize("fresh", [True, False])
def test_a_lost_worker_has_no_answer_and_the_next_job_another_worker(
    fresh: bool,
) -> None:
    made, _ = relay(fresh=fresh)
    made.begin(b"a")
    assert made.ask(b"die") == b""
    assert made.ask(b"step") == b"", "its job is gone with it"
    assert made.begin(b"a") == b"1:a"


def test_a_worker_that_died_before_its_first_job_is_not_used() -> None:
    made, nursery = relay(fresh=True)
    nursery.workers[0].kill()
    assert made.begin(b"a") == b"1:a"


def test_on_a_cluster_each_machine_has_a_folder_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        module, "_folder_of_node", lambda token: Path(f"of-this-node-{token}")
    )
    Relay("", "token", b"", fresh=True)
    assert FakeNursery.made[-1].folder == Path("of-this-node-token")
