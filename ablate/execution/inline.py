"""Runs jobs one after another in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ablate.errors import ExecutorError
from ablate.execution.early_stopping import make_stopping_rule
from ablate.execution.executor import WAIT_SECONDS, Emit, Executor, Stop
from ablate.execution.trial_run import TrialRun
from ablate.machine.cpus import usable_cpus
from ablate.records import (
    Job,
    Order,
    Progressed,
    Status,
)

if TYPE_CHECKING:
    from ablate.execution.tune_schedulers import StoppingRule


class InlineExecutor(Executor):
    """Runs in the calling process.

    There is no start-up, one trial runs at a time, and every error has its full
    traceback.
    """

    name = "inline"

    def run(self, order: Order, emit: Emit, stop: Stop) -> None:
        rule = make_stopping_rule(order)
        cores = order.cpus or usable_cpus()
        if order.resources.cpus > cores:
            raise ExecutorError(
                f"resources.cpus = {order.resources.cpus:g}, but only {cores} CPUs can"
                " be used; lower resources.cpus in the space"
            )
        for job in order.jobs:
            if stop():
                return
            if job is None:
                time.sleep(WAIT_SECONDS)
            elif not self._train(job, rule, emit, stop):
                return

    def _train(
        self, job: Job, rule: StoppingRule | None, emit: Emit, stop: Stop
    ) -> bool:
        """Trains one job, epoch by epoch. Returns False if the user stopped it."""
        if rule is not None:
            rule.add(
                job.trial.hash, job.history, early_stop=job.early_stop, group=job.group
            )
        work = TrialRun(job, self.name)
        try:
            events = work.start()
            while True:
                is_bad = False
                for event in events:
                    emit(event)
                    if rule is not None and isinstance(event, Progressed):
                        is_bad = rule.stops(job.trial.hash, event.epochs)
                if work.status != Status.RUNNING:
                    return True
                if stop():
                    emit(work.interrupt())
                    return False
                if is_bad:
                    emit(work.prune())
                    return True
                events = work.step()
        finally:
            work.close()
