"""How trials run.

An executor takes an order of jobs and reports what happens as events. It stores nothing
and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from ablate.errors import ExecutorError
from ablate.machine.provenance import install_extra
from ablate.records import Architecture, Cost, Data, Event, Order, Resources
from ablate.text.advice import option

Emit = Callable[[Event], None]
Stop = Callable[[], bool]

EXECUTORS = ("ray", "inline")
# Services that epochs can also be logged to while trials run, and the package that each
# of them needs.
SERVICES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
# How long to wait if there is no job now but there may be one later.
WAIT_SECONDS = 0.1


@dataclass(frozen=True)
class Logs:
    """Which services log the epochs of a study while it runs.

    Args:
        services: names of the services.
        folder: the folder below which they keep their files.
        study: name of the study.
        factors: the factors that the name of a run shows.

    Raises:
        ExecutorError: the package of a service is not installed.
    """

    services: tuple[str, ...] = ()
    folder: Path = Path()
    study: str = ""
    factors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.services:
            if find_spec(SERVICES[name]) is None:
                raise ExecutorError(
                    f"{option('log')} {name} needs a package that is not installed:"
                    f" {install_extra(name)}"
                )


NO_LOGS = Logs()


class Executor(Protocol):
    """Runs jobs. It asks for the next job only when it has room for it.

    To keep workers warm, it may ask a little earlier. For each job it emits Started,
    then Progressed any number of times, then Ended. After a fault it may begin again
    with Started. Reporting an epoch again replaces it. `run` returns when all jobs have
    ended, or soon after `stop()` is true. Jobs that are running then end with status
    running, and their checkpoints contain everything that was reported.
    """

    name: str

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

    def count(self, architecture: Architecture) -> Cost:
        """Counts the cost of a network where torch is imported anyway.

        Raises Infeasible if it cannot be built.
        """

    def ready(self) -> None:
        """Waits for what `prepare` started. Raises ExecutorError if it failed."""

    def run(self, order: Order, emit: Emit, stop: Stop) -> None:
        """Runs all jobs of an order.

        Raises ExecutorError if it cannot do what the order asks for.
        """

    def close(self) -> None:
        """Ends what was started."""
