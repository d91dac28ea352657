"""Counts the cost of a network in this process, or in workers of a nursery."""

from __future__ import annotations

import contextlib
import pickle
import queue
import secrets
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from threading import Thread
from typing import TYPE_CHECKING

from ablate.errors import Infeasible
from ablate.records import Architecture, Cost

if TYPE_CHECKING:
    from ablate.execution.nursery import Nursery


# How long a worker may take to count one architecture, and to import torch before.
COUNT_SECONDS = 300.0


def count_here(architecture: Architecture) -> Cost:
    """Counts in this process, which imports torch for it.

    Raises Infeasible if the network cannot be built.
    """
    from ablate.cost import count

    return count(architecture)


def count_ahead(
    architectures: Sequence[Architecture],
    workers: int,
    keep: Callable[[Architecture, Callable[[Architecture], Cost]], object],
) -> None:
    """Counts many networks in several workers at once.

    What cannot be counted is left out: who needs its cost counts it again, and gets the
    error.

    Args:
        keep: called with each network and what counts it, by several threads.
    """
    from ablate.execution.nursery import Nursery, shared_folder

    nursery = Nursery(shared_folder(secrets.token_hex(8)))
    waiting = queue.SimpleQueue[Architecture]()
    for architecture in architectures:
        waiting.put(architecture)

    def work() -> None:
        count = WorkerCount(nursery, falls_back=False)
        counts.append(count)
        with contextlib.suppress(queue.Empty, LostWorker):
            while True:
                with contextlib.suppress(Infeasible):
                    keep(waiting.get_nowait(), count)

    counts: list[WorkerCount] = []
    try:
        nursery.hold()
        threads = [Thread(target=work, daemon=True) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        # The workers end with the nursery, and the threads with their workers.
        nursery.close()
        for count in counts:
            count.close()


class LostWorker(Exception):
    """A worker has ended, or cannot count a network."""


class WorkerCount:
    """Counts in a worker, which has imported torch already.

    The worker is forked for the first network. If it is lost or fails, the cost is
    counted in this process, where an error has its own type.

    Args:
        falls_back: False: raise LostWorker instead.
    """

    def __init__(self, nursery: Nursery, *, falls_back: bool = True) -> None:
        self._nursery: Nursery | None = nursery
        self._worker: Connection | None = None
        self._falls_back = falls_back

    def __call__(self, architecture: Architecture) -> Cost:
        """Counts the cost of a network. Raises Infeasible if it cannot be built."""
        from ablate.execution.worker import Answer, Count

        if self._nursery is None:
            return self._elsewhere(architecture)
        if self._worker is None:
            self._worker = self._nursery.worker()
        try:
            self._worker.send_bytes(pickle.dumps(Count(architecture)))
            if not self._worker.poll(COUNT_SECONDS):
                raise TimeoutError
            answer: Answer = pickle.loads(self._worker.recv_bytes())
        except (EOFError, OSError):
            self.close()
            return self._elsewhere(architecture)
        if answer.infeasible:
            raise Infeasible(answer.infeasible)
        if answer.cost is None:
            self.close()
            return self._elsewhere(architecture)
        return answer.cost

    def _elsewhere(self, architecture: Architecture) -> Cost:
        if not self._falls_back:
            raise LostWorker
        return count_here(architecture)

    def close(self) -> None:
        """Ends the worker, and starts no other one."""
        self._nursery = None
        if self._worker is not None:
            self._worker.close()
            self._worker = None
