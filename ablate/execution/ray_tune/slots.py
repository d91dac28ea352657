"""Slots on Ray.

What it guarantees: an answer belongs to the job for which it was asked, in order, and a
slot that died is not asked again.

How: a slot is an actor of Ray (`Relay`) that holds the resources of one trial, so Ray
decides on which machine it starts. It answers requests in order, so a second one can
wait there while its worker works on the first.
"""

from __future__ import annotations

import contextlib
import pickle
import secrets
import time
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayError

from ablate.execution.ray_tune.processes import dead_parts, died
from ablate.execution.ray_tune.relay import Relay
from ablate.execution.slots import Lost, Slot, Slots, capacity
from ablate.execution.worker import Answer, Begin, Request
from ablate.records import Data, Job, Resources

# Workers that start before the plan is known. The others start when there are jobs.
EARLY = 8
# How long a slot of a cluster may have no job before it gives its place back.
IDLE_SECONDS = 30.0
# How often the nodes of a cluster are counted.
COUNT_SECONDS = 1.0


class RaySlots(Slots):
    """The slots of a run, as actors of Ray.

    Args:
        resources: what each slot holds.
        local: whether this Ray is only on this machine.
        folder: the folder of this machine's nursery, if it is the only machine.
        data: data that each nursery loads for its workers.
    """

    def __init__(
        self, resources: Resources, *, local: bool, folder: str = "", data: Data | None
    ) -> None:
        self._resources = resources
        self._local = local
        self._fresh = not resources.gpus
        self._arguments = (
            folder,
            secrets.token_hex(8),
            b"" if data is None else pickle.dumps(data),
        )
        self._maker = ray.remote(Relay).options(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_restarts=0
        )
        self.all: list[Slot] = []
        self._counted_at = -COUNT_SECONDS
        self._most = 0

    def most(self) -> int:
        """How many slots fit into the machines that there are now.

        On a cluster there is one more: an autoscaler adds a machine for a slot that
        waits for a place.
        """
        now = time.monotonic()
        if now - self._counted_at >= COUNT_SECONDS and not (self._local and self._most):
            self._counted_at = now
            self._most = sum(
                capacity(
                    node["Resources"].get("CPU", 0),
                    node["Resources"].get("GPU", 0),
                    self._resources,
                )
                for node in ray.nodes()
                if node["Alive"]
            )
        return self._most + (not self._local)

    def start_early(self) -> None:
        """Starts the first slots before there are jobs."""
        for _ in range(min(self.most(), EARLY)):
            self.add()

    def retire(self) -> None:
        """Ends slots that have had no job for long, so that others can use the nodes.

        Only on a cluster: a Ray on one machine has no other users.
        """
        if self._local:
            return
        now = time.monotonic()
        for slot in list(self.all):
            if slot.job is None and now - slot.last_used > IDLE_SECONDS:
                self.remove(slot)

    def add(self) -> None:
        folder, token, data = self._arguments
        actor = self._maker.remote(folder, token, data, fresh=self._fresh)
        slot = Slot(actor)
        slot.asked.append((actor.ready.remote(), None))
        self.all.append(slot)

    def remove(self, slot: Slot) -> None:
        # The nursery kills its worker.
        if slot in self.all:
            self.all.remove(slot)
            with contextlib.suppress(RayError):
                ray.kill(slot.handle)

    def begin(self, slot: Slot, job: Job) -> None:
        slot.job = job
        request = pickle.dumps(Begin(job, "ray", last=self._fresh))
        answer = slot.handle.begin.remote(request, slot.needs_new_worker)
        slot.needs_new_worker = False
        slot.asked.append((answer, job))

    def ask(self, slot: Slot, request: Request) -> None:
        answer = slot.handle.ask.remote(pickle.dumps(request))
        slot.asked.append((answer, slot.job))

    def answers(
        self, seconds: float
    ) -> Iterator[tuple[Slot, Job | None, Answer | Lost]]:
        oldest = {slot.asked[0][0]: slot for slot in self.all if slot.asked}
        if not oldest:
            time.sleep(seconds)
            return
        ready, _ = ray.wait(list(oldest), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = ray.wait(list(oldest), num_returns=len(oldest), timeout=0)
        for reference in ready:
            slot = oldest[reference]
            _, job = slot.asked.popleft()
            slot.last_used = time.monotonic()
            answer = self._answer(reference, job)
            if isinstance(answer, Lost) and answer.with_slot:
                # None of its other answers will come.
                slot.asked.clear()
                self.remove(slot)
            elif job is None:
                slot.has_started = True
            yield slot, job, answer

    def _answer(self, reference: Any, job: Job | None) -> Any:
        try:
            content = ray.get(reference)
        except RayError as error:
            return Lost(_first_line(error), with_slot=True)
        if job is None:
            return Answer()
        if not content:
            return Lost("its process was killed, or memory ran out", with_slot=False)
        return pickle.loads(content)

    def failure(self) -> str:
        parts = dead_parts()
        return died(parts) if parts else ""

    def close(self) -> None:
        for slot in list(self.all):
            self.remove(slot)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
