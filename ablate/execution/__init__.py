"""How trials run.

An executor takes an order of jobs and tells what happens, event by event; it stores and
decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ablate.errors import ExecutorError, UnknownName, unknown
from ablate.provenance import install_extra
from ablate.records import Event, Order

if TYPE_CHECKING:
    from ablate.execution.ray_tune.rules import Rule

Emit = Callable[[Event], None]
Stop = Callable[[], bool]

EXECUTORS = ("ray", "inline")
# Where else epochs can be told while trials run, and the package that it takes.
SERVICES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
# How long to wait where there is no job now but may be one later.
WAIT_SECONDS = 0.1


@dataclass(frozen=True)
class Logs:
    """To which services a study's epochs are told while it runs, below which folder
    these keep their files, and which factors name a run.

    Raises:
        ExecutorError: a service's package is not installed.
    """

    services: tuple[str, ...] = ()
    folder: Path = Path()
    study: str = ""
    factors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.services:
            if find_spec(SERVICES[name]) is None:
                raise ExecutorError(
                    f"--log {name} needs a package that is not installed:"
                    f" {install_extra(name)}"
                )


NO_LOGS = Logs()


class Executor(Protocol):
    """Runs jobs, and asks for the next one only when it has a place for it (or, to keep
    workers warm, a little before).

    For each job it emits Started, then Progressed any number of times, then Ended;
    after a fault it may begin again with Started. An epoch told twice is the same
    epoch. It returns when all jobs have ended, or soon after `stop()` is true; jobs
    that were then running have ended with state running, and their checkpoints hold all
    that was told of them.
    """

    name: str

    def prepare(self, cpus: int | None, gpus: int | None) -> None:
        """Starts whatever takes long to start, without waiting for it."""

    def ready(self) -> None:
        """Waits for what `prepare` started. Raises ExecutorError where it failed."""

    def run(self, order: Order, emit: Emit, stop: Stop) -> None:
        """Runs all jobs of an order.

        Raises ExecutorError where it cannot do what the order asks.
        """

    def close(self) -> None:
        """Ends whatever was started."""


def make(name: str, ray_address: str = "", logs: Logs = NO_LOGS) -> Executor:
    """The executor of that name; that of Ray joins the cluster at an address where one
    is given, and logs.

    Raises UnknownName.

    The simulated one has no name here: its made-up numbers must be asked for by whoever
    makes it.
    """
    if name == "inline":
        from ablate.execution.inline import InlineExecutor

        return InlineExecutor()
    if name == "ray":
        from ablate.execution.ray_tune import RayExecutor

        return RayExecutor(ray_address, logs)
    raise UnknownName(unknown("executor", name, EXECUTORS))


def make_rule(order: Order) -> Rule | None:
    """By what an order's trials are stopped early; None where none is."""
    if order.scheduler.name == "fifo":
        return None
    from ablate.execution.ray_tune.rules import Rule

    return Rule(order)
