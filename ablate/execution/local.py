"""Runs several jobs at once on this machine, without Ray.

What it guarantees: the numbers, the resources and the behaviour after a kill are those
of the Ray executor on one machine.

How: the driver's loop (`driver.py`) with slots that are connections to workers of the
nursery. A slot holds CPUs by their number, and GPUs by their names: a worker sees the
GPUs of its slot only. `Warden` cleans up after a driver that was killed.

What would break it: a connection that this process gives to a child, because the
nursery kills a worker when its connection has no other end any more.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from ablate.errors import ExecutorError
from ablate.execution.counting import WorkerCount, count_here
from ablate.execution.driver import train
from ablate.execution.executor import Emit, Executor, Stop
from ablate.execution.nursery import DEVICE_VARIABLES, Nursery
from ablate.execution.slots import Lost, Slot, Slots, capacity
from ablate.execution.warden import Warden
from ablate.execution.worker import Answer, Begin, Request
from ablate.machine.cpus import usable_cpus
from ablate.records import Architecture, Cost, Data, Job, Order, Resources
from ablate.text import advice
from ablate.text.advice import option


class LocalExecutor(Executor):
    """Runs as many jobs at once as fit into the CPUs and GPUs of this machine."""

    name = "local"

    def __init__(self) -> None:
        self._warden: Warden | None = None
        self._nursery: Nursery | None = None
        self._count: WorkerCount | None = None

    def prepare(
        self,
        cpus: int | None,
        gpus: int | None,
        resources: Resources | None = None,
        data: Data | None = None,
    ) -> None:
        # Without `resources`, nothing will be trained.
        if resources is not None:
            self._start(data)

    def _start(self, data: Data | None = None) -> Nursery:
        """Returns the nursery, which is started if there is none yet."""
        if self._nursery is not None:
            return self._nursery
        self._warden = Warden(advice.command("resume"))
        folder = self._warden.folder.parent / "nursery"
        nursery = Nursery(folder, self._warden.mark)
        try:
            nursery.hold()
            if data is not None:
                nursery.load(pickle.dumps(data))
        except BaseException:
            self._warden.close()
            self._warden = None
            raise
        self._nursery = nursery
        self._count = WorkerCount(nursery)
        return nursery

    def count(self, architecture: Architecture) -> Cost:
        # The nursery imports torch anyway, so this process need not.
        return (self._count or count_here)(architecture)

    def run(self, order: Order, emit: Emit, stop: Stop) -> None:
        cpus = order.cpus or usable_cpus()
        gpus = _gpus(order)
        for name, number, most, limit in (
            ("cpus", order.resources.cpus, cpus, order.cpus),
            ("gpus", order.resources.gpus, len(gpus), order.gpus),
        ):
            if number > most:
                remedy = f" or raise {option(name)}" if most == limit else ""
                raise ExecutorError(
                    f"resources.{name} = {number:g}, but this run has {most}; lower it in"
                    f" the space{remedy}"
                )
        slots = LocalSlots(order.resources, self._start(), cpus, gpus)
        train(order, emit, stop, slots)

    def close(self) -> None:
        if self._count is not None:
            self._count.close()
            self._count = None
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None
        if self._warden is not None:
            self._warden.close()
            self._warden = None


def _gpus(order: Order) -> list[str]:
    """Returns the names of the GPUs that an order may use; none if it needs none."""
    if not order.resources.gpus:
        return []
    import torch

    # Those that this process sees: the variable may name GPUs that are not there.
    number = torch.cuda.device_count()
    visible = os.environ.get(_device_variable())
    if visible is None:
        names = [str(index) for index in range(number)]
    else:
        names = [name.strip() for name in visible.split(",")][:number]
    return names[: order.gpus]


def _device_variable() -> str:
    """Returns the variable by which a worker sees its GPUs: the one that is set."""
    return next(
        (name for name in DEVICE_VARIABLES if name in os.environ),
        "CUDA_VISIBLE_DEVICES",
    )


@dataclass
class _Workers:
    """What a slot trains on.

    Attributes:
        gpus: the names of its GPUs.
        current: the worker that has its job.
        next: a worker that was forked in advance.
    """

    gpus: tuple[str, ...]
    current: Connection | None = None
    next: Connection | None = None


class LocalSlots(Slots):
    """The slots of a run on this machine.

    On CPUs, each job gets a new process. On a GPU, a process stays for many jobs,
    because CUDA takes seconds to start.

    Args:
        resources: what each slot holds.
        nursery: forks the workers.
        cpus: how many CPUs the slots may hold.
        gpus: the names of the GPUs that they may hold.
    """

    def __init__(
        self, resources: Resources, nursery: Nursery, cpus: float, gpus: Sequence[str]
    ) -> None:
        self.all: list[Slot] = []
        self._resources = resources
        self._nursery = nursery
        self._most = capacity(cpus, len(gpus), resources)
        # The share of each GPU that no slot holds.
        self._free = dict.fromkeys(gpus, 1.0)

    def most(self) -> int:
        return self._most

    def add(self) -> None:
        workers = _Workers(self._take_gpus())
        workers.next = self._fork(workers)
        self.all.append(Slot(workers, has_started=True))

    def _take_gpus(self) -> tuple[str, ...]:
        share = min(self._resources.gpus, 1.0)
        gpus: list[str] = []
        while len(gpus) * share < self._resources.gpus - 1e-9:
            # The emptiest one. All slots hold the same share, so this takes no place
            # from another slot.
            gpu = max(self._free, key=lambda gpu: self._free[gpu])
            self._free[gpu] -= share
            gpus.append(gpu)
        return tuple(gpus)

    def _fork(self, workers: _Workers) -> Connection:
        return self._nursery.worker({_device_variable(): ",".join(workers.gpus)})

    def remove(self, slot: Slot) -> None:
        if slot not in self.all:
            return
        self.all.remove(slot)
        for gpu in slot.handle.gpus:
            self._free[gpu] += min(self._resources.gpus, 1.0)
        # The nursery kills a worker whose client has hung up.
        for worker in (slot.handle.current, slot.handle.next):
            if worker is not None:
                worker.close()

    def begin(self, slot: Slot, job: Job) -> None:
        workers: _Workers = slot.handle
        each_job = not workers.gpus
        if each_job or slot.needs_new_worker or workers.current is None:
            self._replace(workers)
            workers.next = self._fork(workers) if each_job else None
        slot.needs_new_worker = False
        slot.job = job
        self.ask(slot, Begin(job, LocalExecutor.name, last=each_job))

    def _replace(self, workers: _Workers) -> None:
        if workers.current is not None:
            workers.current.close()
        # A worker says nothing before it is asked: one that can be read from is dead.
        if workers.next is not None and workers.next.poll():
            workers.next.close()
            workers.next = None
        workers.current = workers.next or self._fork(workers)
        workers.next = None

    def ask(self, slot: Slot, request: Request) -> None:
        # If the worker is dead, its connection ends, which `answers` reports.
        with contextlib.suppress(OSError):
            slot.handle.current.send_bytes(pickle.dumps(request))
        slot.asked.append((None, slot.job))

    def answers(
        self, seconds: float
    ) -> Iterator[tuple[Slot, Job | None, Answer | Lost]]:
        waiting = {slot.handle.current: slot for slot in self.all if slot.asked}
        if not waiting:
            time.sleep(seconds)
            return
        for connection in wait(list(waiting), seconds):
            slot = waiting[connection]
            _, job = slot.asked.popleft()
            slot.last_used = time.monotonic()
            yield slot, job, self._answer(slot)

    def _answer(self, slot: Slot) -> Answer | Lost:
        workers: _Workers = slot.handle
        assert workers.current is not None
        try:
            answer: Answer = pickle.loads(workers.current.recv_bytes())
            return answer
        except (EOFError, OSError):
            # None of its other answers will come.
            slot.asked.clear()
            workers.current.close()
            workers.current = None
            # If the nursery died, this starts another one.
            self._nursery.hold()
            return Lost("its process was killed, or memory ran out", with_slot=False)

    def close(self) -> None:
        for slot in list(self.all):
            self.remove(slot)
