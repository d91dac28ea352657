"""Runs an order: hands out jobs, forwards events, and decides what comes next.

Read `_Run.run` first: it is the whole loop.

What it guarantees: each job of an order runs until it ends, is stopped by the rule, or
has been lost more than MAX_FAILURES times. Every event that a worker reports reaches
`emit` in order.

How: one thread sends requests to slots and waits for their answers. Only the slots know
where trials run: on Ray, or on this machine. A stopping rule decides after each epoch,
with the schedulers of Ray Tune. Without a rule, the next step is asked for before the last
one is stored, so that a worker never waits for the store.

What would break it: a job that is forgotten while its worker is lost, or an answer that
is taken for the next job of a slot (`Slots` names the job of each answer).
"""

from __future__ import annotations

import time
from collections import Counter, deque

from ablate.errors import ExecutorError
from ablate.execution.early_stopping import make_stopping_rule
from ablate.execution.executor import WAIT_SECONDS, Emit, Stop
from ablate.execution.monitor import HANG_SECONDS, Monitor
from ablate.execution.slots import Lost, Slot, Slots
from ablate.execution.worker import Answer, Leave, Step
from ablate.records import Ended, Event, Job, Order, Status, epochs_of

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
    *,
    local: bool = True,
) -> None:
    """Runs an order.

    Args:
        slots: where trials run; they are ended afterwards.
        local: whether all slots are on this machine.

    Raises:
        ExecutorError: no slot can work any more.
    """
    run = None
    try:
        run = _Run(order, emit, stop, slots, local=local)
        run.run()
    except ExecutorError:
        raise
    except Exception:
        # If no slot can work any more, that is the cause, whatever error came first.
        failure = slots.failure()
        if failure and not (run is not None and run.has_failed):
            raise ExecutorError(failure) from None
        raise
    finally:
        try:
            if run is not None:
                run.close()
        finally:
            slots.close()


class _Run:
    """One order, from its first job to its last."""

    def __init__(
        self,
        order: Order,
        emit: Emit,
        stop: Stop,
        slots: Slots,
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
        self._rule = make_stopping_rule(order)
        self._monitor = Monitor(patience=HANG_SECONDS if local else 0.0)
        # Jobs that are leased and have no slot.
        self._waiting: deque[Job] = deque()
        self._losses: Counter[str] = Counter()
        self._failed_starts = 0
        # Trials that have started and not ended.
        self._open: set[str] = set()
        self.has_failed = False
        # Whether workers were asked to save and leave.
        self._is_leaving = False

    def run(self) -> None:
        while not self._stop():
            self._hand_out()
            if self._is_done():
                return
            self._hear(WAIT_SECONDS)
            failure = self._slots.failure()
            if failure:
                raise ExecutorError(failure)
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
        free = sum(slot.is_idle or not slot.has_started for slot in slots)
        room = self._slots.most() - len(slots)
        for _ in range(min(len(self._waiting) - free, room)):
            self._slots.add()
        for slot in slots:
            if slot.is_idle and self._waiting:
                self._begin(slot, self._waiting.popleft())
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
        self._slots.begin(slot, job)
        if self._rule is None:
            self._slots.ask(slot, Step(REPORT_SECONDS))
        else:
            self._rule.add(
                job.trial.hash, job.history, early_stop=job.early_stop, group=job.group
            )

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
            raise ExecutorError(f"no worker starts: {answer.reason}")

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
            # Also Ctrl-C: this error, and no slot, is then the cause.
            self.has_failed = True
            raise

    def _interrupt(self) -> None:
        """Has every worker save its checkpoint and forwards what they report."""
        self._is_leaving = True
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
        """Has workers that still train save their checkpoints.

        A second signal does not wait for those that were asked already.
        """
        if self._is_leaving or not self._busy() or self._slots.failure():
            return
        self._leave()
        deadline = time.monotonic() + LEAVE_SECONDS
        while (
            any(slot.asked for slot in self._busy().values())
            and time.monotonic() < deadline
        ):
            list(self._slots.answers(WAIT_SECONDS))
