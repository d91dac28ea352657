"""Runs jobs on a simulated clock with made-up curves, in milliseconds.

This is for tests and for trying out a plan.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ablate import tasks
from ablate.execution.early_stopping import make_stopping_rule
from ablate.execution.executor import WAIT_SECONDS, Emit, Executor, Stop
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
    from ablate.execution.tune_schedulers import StoppingRule

Curve = Callable[[Trial, int], Epoch]


def made_up(trial: Trial, number: int) -> Epoch:
    """Returns one epoch of a curve that rises to a level set by the architecture.

    A little noise depends on the seed. This is not a result.
    """
    level = 60 + int(trial.architecture.hash[:6], 16) / 0xFFFFFF * 30
    noise = random.Random(f"{trial.hash}/{number}").gauss(0, 0.3)
    share = level * (1 - math.exp(-3 * number / trial.recipe.epochs)) + noise
    loss = 4.6 * (1 - share / 100)
    metrics = {}
    for metric_number, metric in enumerate(tasks.of(trial.architecture).metrics):
        rising = min(100.0, share + 5 * metric_number)
        metrics[metric.name] = rising if metric.direction == "max" else loss
    return Epoch(
        number=number,
        metrics=metrics,
        lr=trial.recipe.lr,
        seconds=1.0,
    )


class SimulatedExecutor(Executor):
    """Runs as many jobs at once as there are slots, in simulated time.

    It reads no data.

    Args:
        curve: returns epoch `number` of a trial. It may raise to simulate a failing
            trial, or return NaN to simulate a diverging one.
    """

    name = "simulated"
    reads_data: bool = False

    def __init__(self, curve: Curve = made_up) -> None:
        self._curve = curve
        self.clock = 0.0

    def run(self, order: Order, emit: Emit, stop: Stop) -> None:
        rule = make_stopping_rule(order)
        jobs = iter(order.jobs)
        # A heap of (time at which the epoch ends, serial number, job, epoch). The
        # serial number breaks ties, because jobs cannot be compared.
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
                    rule.add(
                        job.trial.hash,
                        job.history,
                        early_stop=job.early_stop,
                        group=job.group,
                    )
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
        self, job: Job, number: int, emit: Emit, rule: StoppingRule | None
    ) -> Ended | None:
        """Runs one epoch of a job; returns its end if this was the last one."""
        if number > job.trial.recipe.epochs:
            return Ended(job.trial.hash, Status.COMPLETED)
        try:
            epoch = self._curve(job.trial, number)
        except Exception as error:
            return Ended(job.trial.hash, Status.FAILED, repr(error))
        for name, value in epoch.metrics.items():
            if not math.isfinite(value):
                reason = f"{name} is {value} in epoch {number}"
                return Ended(job.trial.hash, Status.DIVERGED, reason)
        emit(Progressed(job.trial.hash, (epoch,)))
        stopped = rule is not None and rule.stops(job.trial.hash, (epoch,))
        if number >= job.trial.recipe.epochs:
            return Ended(job.trial.hash, Status.COMPLETED)
        if stopped:
            return Ended(job.trial.hash, Status.PRUNED)
        return None
