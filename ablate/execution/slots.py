"""The slots of a run: places for one trial each, with their CPUs and GPUs.

An executor that trains several trials at once is one class of slots; the loop of the run
is the driver's (`driver.py`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ablate.execution.worker import Answer, Request
from ablate.records import Job, Resources


@dataclass(eq=False)
class Slot:
    """A slot, with the requests that it has not answered.

    Attributes:
        handle: what the class of slots knows the slot by, such as an actor of Ray.
        asked: for each of these requests, the reference to its answer, and the job it
            is about; the oldest first.
        job: the job that it trains.
        has_started: whether it can be given a job.
        needs_new_worker: whether its worker has failed.
        last_used: when it was added, or its last answer came; by a monotonic clock.
    """

    handle: Any
    asked: deque[tuple[Any, Job | None]] = field(default_factory=deque)
    job: Job | None = None
    has_started: bool = False
    needs_new_worker: bool = False
    last_used: float = field(default_factory=time.monotonic)

    @property
    def is_idle(self) -> bool:
        return self.has_started and not self.asked


@dataclass(frozen=True)
class Lost:
    """Why there is no answer, and whether the slot has died too, not only its worker."""

    reason: str
    with_slot: bool


class Slots(Protocol):
    """The slots of a run. One thread uses them.

    An answer belongs to the job for which it was asked, and the answers of a slot come
    in the order of its requests. A slot that has died is not asked again.

    Attributes:
        all: the slots that exist now.
    """

    all: list[Slot]

    def most(self) -> int:
        """How many slots fit into the machines that there are now."""
        ...

    def add(self) -> None:
        """Starts a slot without waiting for it."""

    def remove(self, slot: Slot) -> None:
        """Ends a slot and its worker at once."""

    def retire(self) -> None:
        """Ends slots that have had no job for long, if others can use their place."""
        return

    def begin(self, slot: Slot, job: Job) -> None:
        """Gives a job to an idle slot."""

    def ask(self, slot: Slot, request: Request) -> None:
        """Sends a request about the job that a slot trains."""

    def answers(
        self, seconds: float
    ) -> Iterator[tuple[Slot, Job | None, Answer | Lost]]:
        """Waits for answers up to so many seconds, and yields those that have come.

        Yields:
            the slot, the job that the answer is about, and the answer. When a slot has
            started, the job is None.
        """
        ...

    def failure(self) -> str:
        """Why no slot can work any more; empty if they can."""
        return ""

    def close(self) -> None:
        """Ends all slots."""


def capacity(cpus: float, gpus: float, resources: Resources) -> int:
    """Returns how many trials fit into so many CPUs and GPUs."""
    by_cpus = _times(cpus, resources.cpus)
    if not resources.gpus:
        return by_cpus
    # A share of a GPU is of one GPU.
    if resources.gpus < 1:
        return min(by_cpus, int(gpus) * _times(1, resources.gpus))
    return min(by_cpus, _times(gpus, resources.gpus))


def _times(whole: float, part: float) -> int:
    """How often a part fits into a whole: 0.07 CPUs fit into 7 CPUs 100 times."""
    return int(whole / part + 1e-9)
