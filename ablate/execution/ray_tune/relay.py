"""An actor of Ray that passes requests to a worker on its machine.

What it guarantees: it holds the CPUs and GPUs of one trial as long as it lives, and its
worker ends with it.

How: the actor imports neither torch nor Tune, so that it starts in the time that Python
and Ray take. Workers are forks of the nursery of the machine. With `fresh`, each job
gets a new worker, and the next one is forked in advance.

What would break it: importing anything heavy at the head of this module.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

from ablate.execution.nursery import Nursery, shared_folder


class Relay:
    """An actor of Ray that passes requests to a worker.

    Args:
        folder: the folder of the nursery; empty on a cluster, where each machine has
            its own.
        token: a random text that all slots of a run share.
        data: a pickled `Data` that the nursery loads for all workers, or nothing.
        fresh: each job gets a new process. On a GPU, a process stays for many jobs,
            because CUDA takes seconds to start.
    """

    def __init__(self, folder: str, token: str, data: bytes, *, fresh: bool) -> None:
        self._nursery = Nursery(Path(folder) if folder else _folder_of_node(token))
        self._fresh = fresh
        self._worker: Connection | None = None
        self._nursery.hold()
        if data:
            self._nursery.load(data)
        self._next: Connection | None = self._nursery.worker()

    def ready(self) -> None:
        """Returns when the actor has started."""

    def begin(self, request: bytes, replace: bool = False) -> bytes:
        """Passes on the request to begin a job, and returns the answer.

        Args:
            replace: to a new worker, even if workers stay for many jobs.
        """
        if self._fresh or replace or self._worker is None:
            self._replace()
        return self.ask(request)

    def ask(self, request: bytes) -> bytes:
        """Passes on a request and returns the answer, or nothing if the worker is lost."""
        if self._worker is None:
            return b""
        try:
            self._worker.send_bytes(request)
            return self._worker.recv_bytes()
        except (EOFError, OSError):
            self._worker.close()
            self._worker = None
            return b""

    def _replace(self) -> None:
        if self._worker is not None:
            self._worker.close()
        # A worker says nothing before it is asked: one that can be read from is dead.
        if self._next is not None and self._next.poll():
            self._next.close()
            self._next = None
        self._worker = self._next or self._nursery.worker()
        self._next = self._nursery.worker() if self._fresh else None


def _folder_of_node(token: str) -> Path:
    import ray

    node = ray.get_runtime_context().get_node_id()
    return shared_folder(f"{token}-{node[:8]}")
