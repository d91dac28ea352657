"""Jobs one after the other in this process."""

from __future__ import annotations

import os

from ablate.errors import ExecutorError
from ablate.execution import Emit, Stop
from ablate.execution.work import Work
from ablate.records import Order, Status


class InlineExecutor:
    """Runs in the calling process: no start-up, one trial at a time, every error with its full traceback."""

    name = "inline"

    def prepare(self, cpus: int | None, gpus: int | None) -> None:
        pass

    def ready(self) -> None:
        pass

    def run(self, order: Order, emit: Emit, stop: Stop) -> None:
        if order.scheduler.name != "fifo":
            raise ExecutorError(f"scheduler {order.scheduler.name} compares trials that run together; use --executor ray")
        cores = order.cpus or os.cpu_count() or 1
        for job in order.jobs:
            if job.resources.cpus > cores:
                raise ExecutorError(f"resources.cpus = {job.resources.cpus:g}, but there are {cores}")
            if stop():
                return
            work = Work(job, self.name)
            try:
                for event in work.start():
                    emit(event)
                while work.status == Status.RUNNING:
                    if stop():
                        emit(work.interrupt())
                        return
                    for event in work.step():
                        emit(event)
            finally:
                work.close()

    def close(self) -> None:
        pass
