"""Jobs one after the other in this process."""

from __future__ import annotations

import os
import time

from ablate.errors import ExecutorError
from ablate.execution import WAIT_SECONDS, Emit, Stop, make_rule
from ablate.execution.work import Work
from ablate.records import Order, Progressed, Status


class InlineExecutor:
    """Runs in the calling process: no start-up, one trial at a time, every error with its full traceback."""

    name = "inline"

    def prepare(self, cpus: int | None, gpus: int | None) -> None:
        pass

    def ready(self) -> None:
        pass

    def run(self, order: Order, emit: Emit, stop: Stop) -> None:
        rule = make_rule(order)
        cores = order.cpus or os.cpu_count() or 1
        if order.resources.cpus > cores:
            raise ExecutorError(f"resources.cpus = {order.resources.cpus:g}, but there are {cores}")
        for job in order.jobs:
            if stop():
                return
            if job is None:
                time.sleep(WAIT_SECONDS)
                continue
            if rule is not None:
                rule.add(job.trial.hash, job.history)
            work = Work(job, self.name)
            try:
                events = work.start()
                while True:
                    stopped = False
                    for event in events:
                        emit(event)
                        if rule is not None and isinstance(event, Progressed):
                            stopped = rule.stops(job.trial.hash, event.epochs)
                    if work.status != Status.RUNNING:
                        break
                    if stop():
                        emit(work.interrupt())
                        return
                    if stopped:
                        emit(work.prune())
                        break
                    events = work.step()
            finally:
                work.close()

    def close(self) -> None:
        pass
