"""How trials run.

An executor takes an order of jobs and reports what happens as events. It stores nothing
and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ablate.records import Architecture, Cost, Data, Event, Order, Resources

Emit = Callable[[Event], None]
Stop = Callable[[], bool]

EXECUTORS = ("ray", "local", "inline")
# How long to wait if there is no job now but there may be one later.
WAIT_SECONDS = 0.1


class Executor(Protocol):
    """Runs jobs. It asks for the next job only when it has room for it.

    To keep workers warm, it may ask a little earlier. For each job it emits Started,
    then Progressed any number of times, then Ended. After a fault it may begin again
    with Started. Reporting an epoch again replaces it. `run` returns when all jobs have
    ended, or soon after `stop()` is true. Jobs that are running then end with status
    running, and their checkpoints contain everything that was reported.

    An executor that starts nothing has only a name and `run`.
    """

    name: str
    # Whether it reads images on this machine.
    reads_data: bool = True

    def prepare(
        self,
        cpus: int | None,
        gpus: int | None,
        resources: Resources | None = None,
        data: Data | None = None,
    ) -> None:
        """Starts what takes long to start, without waiting for it.

        Args:
            cpus, gpus: what a run may use of this machine; None: all of it.
            resources: what each trial will occupy; None if nothing will be trained.
            data: what most trials will be trained on.
        """
        return

    def count(self, architecture: Architecture) -> Cost:
        """Counts the cost of a network where torch is imported anyway.

        Raises Infeasible if it cannot be built.
        """
        from ablate.execution.counting import count_here

        return count_here(architecture)

    def ready(self) -> None:
        """Waits for what `prepare` started. Raises ExecutorError if it failed."""
        return

    def run(self, order: Order, emit: Emit, stop: Stop) -> None:
        """Runs all jobs of an order.

        Raises ExecutorError if it cannot do what the order asks for.
        """

    def close(self) -> None:
        """Ends what was started."""
        return
