"""Runs an order: hands out jobs, forwards events, and decides what comes next.

Read `_Run.run` first: it is the whole loop.

What it guarantees: each job of an order runs until it ends, is stopped by the rule, or
has been lost more than MAX_FAILURES times. Every event that a worker reports reaches
`emit` in order.

How: one thread sends requests to slots and waits for their answers. A stopping rule decides after
each epoch, with the schedulers of Ray Tune. Without a rule, the next step is asked for
before the last one is stored, so that a worker never waits for the store.

What would break it: a job that is forgotten while its worker is lost, or an answer that
is taken for the next job of a slot (`Slots` names the job of each answer).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from ablate.errors import ExecutorError
from ablate.execution.executor import NO_LOGS, WAIT_SECONDS, Emit, Logs, Stop
from ablate.execution.ray_tune.monitor import HANG_SECONDS, Monitor, dead_parts, died
from ablate.execution.ray_tune.slots import Lost, Slot, Slots
from ablate.execution.worker import Answer, Leave, Step
from ablate.records import Ended, Event, Job, Order, Status, epochs_of

if TYPE_CHECKING:
    from ablate.execution.ray_tune.loggers import Loggers
    from ablate.execution.ray_tune.stopping import StoppingRule

# How often one trial may be lost and start again. With the next loss it has failed.
MAX_FAILURES = 8
# Epochs shorter than this are reported together: each report costs the driver several
# milliseconds. What a killed worker has not reported, its successor reports from the
# checkpoint or trains again.
REPORT_SECONDS = 1.0
# How long an interrupted worker may take to save its checkpoint and to end what it has
# started (`STOP_SECONDS` of a user's training). Then it is killed.
LEAVE_SECONDS = 15.0


def train(
    order: Order,
    emit: Emit,
    stop: Stop,
    slots: Slots,
    logs: Logs = NO_LOGS,
    *,
    local: bool = True,
) -> None:
    """Runs an order on the Ray that this process is connected to.

    Args:
        slots: where trials run; they are ended afterwards.
        local: whether all of this Ray is on this machine.
    """
    run = None
    try:
        run = _Run(order, emit, stop, slots, logs, local=local)
        run.run()
    except ExecutorError:
        raise
    except Exception:
        # If a part of Ray has died, that is the cause, whatever error came first.
        parts = dead_parts()
        if parts and not (run is not None and run.has_failed):
            raise ExecutorError(died(parts)) from None
        raise
    finally:
        try:
            if run is not None:
                run.close()
        finally:
            slots.close()


def _stopping_rule(order: Order) -> StoppingRule | None:
    if order.scheduler.name == "fifo":
        return None
    # It imports Ray Tune, which takes a second.
    from ablate.execution.ray_tune.stopping import StoppingRule

    return StoppingRule(order)


def _loggers(logs: Logs) -> Loggers | None:
    if not logs.services:
        return None
    from ablate.execution.ray_tune.loggers import Loggers

    return Loggers(logs)


class _Run:
    """One order, from its first job to its last."""

    def __init__(
        self,
        order: Order,
        emit: Emit,
        stop: Stop,
        slots: Slots,
        logs: Logs,
        *,
        local: bool,
    ) -> None:
        self._jobs = iter(order.jobs)
        # Whether there was no further job a moment ago. One that comes back without a
        # result is handed out again.
        self._has_no_more = False
        self._emit = emit
        self._stop = stop
        self._slots = slots
        self._rule = _stopping_rule(order)
        self._monitor = Monitor(patience=HANG_SECONDS if local else 0.0)
        self._loggers = _loggers(logs)
        # Jobs that are leased and have no slot.
        self._waiting: deque[Job] = deque()
        self._losses: Counter[str] = Counter()
        self._failed_starts = 0
        # Trials that have started and not ended.
        self._open: set[str] = set()
        self.has_failed = False

    def run(self) -> None:
        while not self._stop():
            self._hand_out()
            if self._is_done():
                return
            self._hear(WAIT_SECONDS)
            self._replace_silent()
        self._interrupt()

    def _replace_silent(self) -> None:
        """Kills workers whose trial hangs, and hands out their jobs again."""
        busy = self._busy()
        for key in self._monitor.check(list(busy)):
            slot = busy[key]
            job = slot.job
            self._slots.remove(slot)
            if job is not None:
                self._lose(slot, job, "it gave no sign of life")

    def _is_done(self) -> bool:
        return self._has_no_more and not self._waiting and not self._busy()

    def _busy(self) -> dict[str, Slot]:
        """The slots that train, by the hash of their trial."""
        return {
            slot.job.trial.hash: slot
            for slot in self._slots.all
            if slot.job is not None
        }

    def _hand_out(self) -> None:
        """Gives jobs to idle slots, and starts slots for the others."""
        self._fetch()
        slots = self._slots.all
        for slot in slots:
            if slot.is_idle and self._waiting:
                self._begin(slot, self._waiting.popleft())
        starting = sum(not slot.has_started for slot in slots)
        wanted = min(len(self._waiting), self._slots.most() - len(slots) + starting)
        for _ in range(wanted - starting):
            self._slots.add()
        if not self._waiting:
            self._slots.retire()

    def _fetch(self) -> None:
        """Takes as many jobs as there is room for."""
        room = self._slots.most() - len(self._busy())
        self._has_no_more = False
        while len(self._waiting) < room:
            try:
                job = next(self._jobs)
            except StopIteration:
                self._has_no_more = True
                return
            if job is None:
                return
            self._waiting.append(job)

    def _begin(self, slot: Slot, job: Job) -> None:
        self._monitor.follow(job.trial.hash, job.checkpoints)
        if self._loggers is not None:
            self._loggers.follow(job)
        self._slots.begin(slot, job)
        if self._rule is None:
            self._slots.ask(slot, Step(REPORT_SECONDS))
        else:
            self._rule.add(job.trial.hash, job.history, early_stop=job.early_stop)

    def _hear(self, seconds: float) -> None:
        """Waits for answers and forwards what they report."""
        for slot, job, answer in self._slots.answers(seconds):
            if job is None:
                self._started(answer)
            elif job is slot.job:
                self._take(slot, job, answer)
            # Otherwise the job has ended, and the answer to a step that was asked for
            # in advance says nothing.

    def _started(self, answer: Answer | Lost) -> None:
        """Counts slots that could not start.

        Raises ExecutorError if that happens again and again.
        """
        if not isinstance(answer, Lost):
            self._failed_starts = 0
            return
        self._failed_starts += 1
        has_others = any(slot.has_started for slot in self._slots.all)
        if self._failed_starts > MAX_FAILURES and not has_others:
            raise ExecutorError(f"no worker of Ray starts: {answer.reason}")

    def _take(self, slot: Slot, job: Job, answer: Answer | Lost) -> None:
        """Handles an answer about the job that a slot trains."""
        if isinstance(answer, Lost):
            self._lose(slot, job, answer.reason)
            return
        has_ended = any(isinstance(event, Ended) for event in answer.events)
        if has_ended:
            slot.job = None
        elif self._rule is None and not answer.error and not slot.asked:
            # Before the events are stored, so that the worker need not wait.
            self._slots.ask(slot, Step(REPORT_SECONDS))
        for event in answer.events:
            self._tell(event)
        is_bad = False
        if self._rule is not None:
            # Other trials are compared with the last epoch too.
            epochs = tuple(epochs_of(answer.events))
            is_bad = self._rule.stops(job.trial.hash, epochs)
        if has_ended:
            return
        if answer.error:
            slot.needs_new_worker = True
            self._lose(slot, job, answer.error)
        elif self._rule is not None:
            self._slots.ask(slot, Leave(Status.PRUNED) if is_bad else Step(0))

    def _lose(self, slot: Slot, job: Job, reason: str) -> None:
        """Hands a job out again, or ends it as failed if that has happened too often."""
        key = job.trial.hash
        slot.job = None
        self._losses[key] += 1
        if self._losses[key] <= MAX_FAILURES:
            self._waiting.appendleft(job)
            return
        self._tell(
            Ended(
                trial=key,
                status=Status.FAILED,
                error=(
                    f"its worker failed, {self._losses[key]} in all; the last time:"
                    f" {reason}"
                ),
            )
        )

    def _tell(self, event: Event) -> None:
        self._monitor.told(event.trial)
        if isinstance(event, Ended):
            self._open.discard(event.trial)
        else:
            self._open.add(event.trial)
        try:
            self._emit(event)
        except BaseException:
            # Also Ctrl-C: this error, and no part of Ray, is then the cause.
            self.has_failed = True
            raise
        if self._loggers is not None:
            self._loggers.tell(event)

    def _interrupt(self) -> None:
        """Has every worker save its checkpoint and forwards what they report."""
        self._leave()
        deadline = time.monotonic() + LEAVE_SECONDS
        # A worker that does not answer in time keeps its last checkpoint.
        while self._busy() and time.monotonic() < deadline:
            for slot, job, answer in self._slots.answers(WAIT_SECONDS):
                if job is None or job is not slot.job:
                    continue
                if isinstance(answer, Lost) or answer.error:
                    slot.job = None
                    continue
                for event in answer.events:
                    if isinstance(event, Ended):
                        slot.job = None
                    self._tell(event)
        for slot in self._slots.all:
            slot.job = None
        for key in sorted(self._open):
            self._tell(Ended(key, Status.RUNNING))

    def _leave(self) -> None:
        for slot in self._busy().values():
            self._slots.ask(slot, Leave(Status.RUNNING))

    def close(self) -> None:
        """Has workers that still train save their checkpoints, and closes the logs."""
        try:
            if self._busy() and not dead_parts():
                self._leave()
                deadline = time.monotonic() + LEAVE_SECONDS
                while (
                    any(slot.asked for slot in self._busy().values())
                    and time.monotonic() < deadline
                ):
                    list(self._slots.answers(WAIT_SECONDS))
        finally:
            if self._loggers is not None:
                self._loggers.close()
