"""Jobs on a fake clock with made-up curves: the whole harness in milliseconds, for
tests and for trying a plan out.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ablate.execution import WAIT_SECONDS, Emit, Stop, make_rule
from ablate.records import (
    Ended,
    Epoch,
    Job,
    Order,
    Place,
    Progressed,
    Started,
    Status,
    Trial,
)

if TYPE_CHECKING:
    from ablate.execution.ray_tune.rules import Rule

Curve = Callable[[Trial, int], Epoch]


def made_up(trial: Trial, number: int) -> Epoch:
    """A curve that rises to a level which depends on the architecture and, a little, on
    the seed.

    Not a result.
    """
    level = 60 + int(trial.architecture.hash[:6], 16) / 0xFFFFFF * 30
    noise = random.Random(f"{trial.hash}/{number}").gauss(0, 0.3)
    top1 = level * (1 - math.exp(-3 * number / trial.recipe.epochs)) + noise
    loss = 4.6 * (1 - top1 / 100)
    return Epoch(
        number=number,
        train_loss=loss,
        loss=loss,
        top1=top1,
        top5=min(100.0, top1 + 5),
        lr=trial.recipe.lr,
        seconds=1.0,
    )


class SimulatedExecutor:
    """Runs as many jobs at once as there are slots, in simulated time.

    Args:
        curve: what epoch `number` of a trial gives. It may raise to play a failing
            trial, or give NaN to play a diverging one.
    """

    name = "simulated"

    def __init__(self, curve: Curve = made_up) -> None:
        self._curve = curve
        self.clock = 0.0

    def prepare(self, cpus: int | None, gpus: int | None) -> None:
        pass

    def ready(self) -> None:
        pass

    def run(self, order: Order, emit: Emit, stop: Stop) -> None:
        rule = make_rule(order)
        jobs = iter(order.jobs)
        running: list[tuple[float, int, Job, int]] = []
        serial, more = 0, True
        while not stop():
            while more and len(running) < (order.cpus or 2):
                try:
                    job = next(jobs)
                except StopIteration:
                    more = False
                    break
                if job is None:
                    break
                if rule is not None:
                    rule.add(job.trial.hash, job.history)
                place = Place(self.name, "simulated", 0, "cpu", job.resources.threads)
                emit(Started(job.trial.hash, place, len(job.history)))
                heapq.heappush(
                    running, (self.clock + 1, serial, job, len(job.history) + 1)
                )
                serial += 1
            if not running:
                if not more:
                    break
                time.sleep(WAIT_SECONDS)
                continue
            self.clock, _, job, number = heapq.heappop(running)
            ended = self._epoch(job, number, emit, rule)
            if ended is None:
                heapq.heappush(running, (self.clock + 1, serial, job, number + 1))
                serial += 1
            else:
                emit(ended)
        for _, _, job, _ in running:
            emit(Ended(job.trial.hash, Status.RUNNING))

    def _epoch(
        self, job: Job, number: int, emit: Emit, rule: Rule | None
    ) -> Ended | None:
        """One epoch of a job; the end of the job, if this is it."""
        if number > job.trial.recipe.epochs:
            return Ended(job.trial.hash, Status.COMPLETED)
        try:
            epoch = self._curve(job.trial, number)
        except Exception as error:
            return Ended(job.trial.hash, Status.FAILED, repr(error))
        if not math.isfinite(epoch.loss):
            return Ended(
                job.trial.hash,
                Status.DIVERGED,
                f"loss is {epoch.loss} in epoch {number}",
            )
        emit(Progressed(job.trial.hash, (epoch,)))
        stopped = rule is not None and rule.stops(job.trial.hash, (epoch,))
        if number >= job.trial.recipe.epochs:
            return Ended(job.trial.hash, Status.COMPLETED)
        if stopped:
            return Ended(job.trial.hash, Status.PRUNED)
        return None

    def close(self) -> None:
        pass
