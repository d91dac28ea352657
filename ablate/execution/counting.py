"""Counts the cost of a network in this process, or in a worker of the nursery."""

from __future__ import annotations

import pickle
from multiprocessing.connection import Connection
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


class WorkerCount:
    """Counts in a worker, which has imported torch already.

    The worker is forked for the first network. If it is lost or fails, the cost is
    counted in this process, where an error has its own type.
    """

    def __init__(self, nursery: Nursery) -> None:
        self._nursery: Nursery | None = nursery
        self._worker: Connection | None = None

    def __call__(self, architecture: Architecture) -> Cost:
        """Counts the cost of a network. Raises Infeasible if it cannot be built."""
        from ablate.execution.worker import Answer, Count

        if self._nursery is None:
            return count_here(architecture)
        if self._worker is None:
            self._worker = self._nursery.worker()
        try:
            self._worker.send_bytes(pickle.dumps(Count(architecture)))
            if not self._worker.poll(COUNT_SECONDS):
                raise TimeoutError
            answer: Answer = pickle.loads(self._worker.recv_bytes())
        except (EOFError, OSError):
            self.close()
            return count_here(architecture)
        if answer.infeasible:
            raise Infeasible(answer.infeasible)
        if answer.cost is None:
            self.close()
            return count_here(architecture)
        return answer.cost

    def close(self) -> None:
        """Ends the worker, and starts no other one."""
        self._nursery = None
        if self._worker is not None:
            self._worker.close()
            self._worker = None
