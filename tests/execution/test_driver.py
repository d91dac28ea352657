"""What the driver does with jobs and answers, on slots that a test plays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ablate import space
from ablate.errors import ExecutorError
from ablate.execution.worker import Answer, Leave, Request, Step
from ablate.plan import make_plan
from ablate.records import (
    Cost,
    Ended,
    Epoch,
    Event,
    Job,
    Order,
    Place,
    Progressed,
    Resources,
    Started,
    Status,
    Trial,
)
from tests.conftest import TINY

PLACE = Place("ray", "host", 1, "cpu", 1)
# What a slot says to a request: an answer, or why there is none.
Reply = Callable[[Job, Request | None], Any]


@pytest.fixture
def trials() -> tuple[Trial, ...]:
    return make_plan(
        space.load(TINY, "tiny.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    ).trials[:3]


class PlayedSlots:
    """Slots whose answers come from a function, without Ray.

    Args:
        reply: the answer to a request about a job; None for the request to begin.
        most: how many slots there may be.
        starts: whether slots start.
    """

    def __init__(self, reply: Reply, most: int = 1, *, starts: bool = True) -> None:
        self._reply, self._most, self._starts = reply, most, starts
        self.all: list[Any] = []
        self.asked: list[Request | None] = []
        self.added = 0
        self.is_closed = False

    def most(self) -> int:
        return self._most

    def add(self) -> None:
        from ablate.execution.slots import Lost, Slot

        self.added += 1
        slot = Slot(handle=None)
        answer = Answer() if self._starts else Lost("no such node", with_slot=True)
        slot.asked.append((answer, None))
        self.all.append(slot)

    def remove(self, slot: Any) -> None:
        self.all.remove(slot)

    def retire(self) -> None:
        pass

    def begin(self, slot: Any, job: Job) -> None:
        slot.job = job
        slot.needs_new_worker = False
        self.asked.append(None)
        slot.asked.append((self._reply(job, None), job))

    def ask(self, slot: Any, request: Request) -> None:
        self.asked.append(request)
        slot.asked.append((self._reply(slot.job, request), slot.job))

    def answers(self, seconds: float) -> Iterator[tuple[Any, Job | None, Any]]:
        from ablate.execution.slots import Lost

        for slot in [slot for slot in self.all if slot.asked]:
            answer, job = slot.asked.popleft()
            if isinstance(answer, Lost) and answer.with_slot:
                self.remove(slot)
            elif job is None:
                slot.has_started = True
            yield slot, job, answer

    def failure(self) -> str:
        return ""

    def close(self) -> None:
        self.is_closed = True


def train(
    slots: PlayedSlots,
    jobs: list[Job | None],
    stop: Callable[[], bool] = lambda: False,
    emit: Callable[[Event], None] | None = None,
) -> list[Event]:
    from ablate.execution import driver

    events: list[Event] = []
    order = Order(
        jobs=jobs,
        metric="top1",
        direction="max",
        resources=Resources(),
        epochs=3,
    )
    driver.train(order, emit or events.append, stop, slots)  # type: ignore[arg-type]
    return events


def job_of(trial: Trial) -> Job:
    return Job(trial, "", Resources())


def completes(job: Job, request: Request | None) -> Answer:
    """A trial that starts, and is complete after its first step."""
    key = job.trial.hash
    if request is None:
        return Answer((Started(key, PLACE, 0),))
    if isinstance(request, Leave):
        return Answer((Ended(key, request.status),))
    return Answer((Ended(key, Status.COMPLETED),))


def test_each_job_runs_once_and_slots_are_used_again(
    trials: tuple[Trial, ...],
) -> None:
    slots = PlayedSlots(completes, most=2)
    events = train(slots, [job_of(trials[0]), None, *map(job_of, trials[1:])])
    ended = [event.trial for event in events if isinstance(event, Ended)]
    assert sorted(ended) == sorted(trial.hash for trial in trials)
    assert slots.added == 2
    assert slots.is_closed


@pytest.mark.parametrize("with_slot", [True, False])
def test_a_lost_job_is_handed_out_again_but_not_for_ever(
    with_slot: bool, trials: tuple[Trial, ...]
) -> None:
    from ablate.execution.driver import MAX_FAILURES
    from ablate.execution.slots import Lost

    lost = deque[str]()

    def reply(job: Job, request: Request | None) -> Any:
        if job.trial == trials[0] and request is None:
            lost.append(job.trial.hash)
        if job.trial == trials[0]:
            return Lost("it was killed", with_slot=with_slot)
        return completes(job, request)

    slots = PlayedSlots(reply)
    events = train(slots, [job_of(trials[0]), job_of(trials[1])])
    ended = {event.trial: event for event in events if isinstance(event, Ended)}
    assert len(lost) == MAX_FAILURES + 1
    assert ended[trials[0].hash].status == Status.FAILED
    assert f"{MAX_FAILURES + 1} in all" in ended[trials[0].hash].error
    assert "it was killed" in ended[trials[0].hash].error
    assert ended[trials[1].hash].status == Status.COMPLETED


def test_an_error_outside_the_trial_gets_a_new_worker(
    trials: tuple[Trial, ...],
) -> None:
    errors = ["Traceback: no space left"]

    def reply(job: Job, request: Request | None) -> Any:
        if isinstance(request, Step) and errors:
            return Answer(error=errors.pop())
        return completes(job, request)

    slots = PlayedSlots(reply)
    events = train(slots, [job_of(trials[0])])
    kinds = [type(event) for event in events]
    assert kinds == [Started, Started, Ended]
    assert slots.added == 1, "the slot stays"


def test_the_step_that_was_asked_for_in_advance_says_nothing(
    trials: tuple[Trial, ...],
) -> None:
    """A trial that is complete when it begins has its next step asked for already."""

    def reply(job: Job, request: Request | None) -> Any:
        if request is None:
            return Answer((Ended(job.trial.hash, Status.COMPLETED),))
        return Answer()

    events = train(PlayedSlots(reply), [job_of(one) for one in trials])
    assert [event.trial for event in events] == [trial.hash for trial in trials]


def test_a_stopped_run_has_its_workers_leave(trials: tuple[Trial, ...]) -> None:
    started: list[str] = []

    def reply(job: Job, request: Request | None) -> Any:
        if isinstance(request, Step):
            return Answer()
        if request is None:
            started.append(job.trial.hash)
        return completes(job, request)

    slots = PlayedSlots(reply, most=2)
    calls = iter(range(100))
    events = train(slots, [job_of(one) for one in trials], lambda: next(calls) > 5)
    ended = {event.trial: event.status for event in events if isinstance(event, Ended)}
    assert ended == dict.fromkeys(started, Status.RUNNING)
    assert [one for one in slots.asked if isinstance(one, Leave)] == [
        Leave(Status.RUNNING),
        Leave(Status.RUNNING),
    ]


def test_a_trial_that_hangs_is_handed_out_again(
    trials: tuple[Trial, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ablate.execution import driver

    silent = [trials[0].hash]

    def check(self: Any, running: list[str]) -> list[str]:
        return [silent.pop() for key in running if key in silent]

    monkeypatch.setattr(driver.Monitor, "check", check)

    def reply(job: Job, request: Request | None) -> Any:
        if isinstance(request, Step) and silent:
            return Answer()
        return completes(job, request)

    slots = PlayedSlots(reply)
    events = train(slots, [job_of(trials[0])])
    assert [type(event) for event in events] == [Started, Started, Ended]
    assert slots.added == 2, "its slot was replaced"


def test_slots_that_never_start_end_the_run(trials: tuple[Trial, ...]) -> None:
    slots = PlayedSlots(completes, starts=False)
    with pytest.raises(ExecutorError, match="no worker starts: no such node"):
        train(slots, [job_of(trials[0])])
    assert slots.is_closed


def test_a_store_that_fails_ends_the_run_after_workers_have_saved(
    trials: tuple[Trial, ...],
) -> None:
    def emit(event: Event) -> None:
        raise OSError("the disk is full")

    def reply(job: Job, request: Request | None) -> Any:
        if isinstance(request, Step):
            return Answer()
        return completes(job, request)

    slots = PlayedSlots(reply)
    with pytest.raises(OSError, match="the disk is full"):
        train(slots, [job_of(trials[0])], emit=emit)
    assert slots.asked[-1] == Leave(Status.RUNNING)
    assert slots.is_closed


def test_a_job_that_comes_back_after_the_last_one_is_handed_out_again(
    trials: tuple[Trial, ...],
) -> None:
    """A queue that had no more jobs has one again when a lease was lost."""
    jobs = [job_of(one) for one in trials]

    class Returning:
        def __init__(self) -> None:
            self.left = list(jobs)

        def __iter__(self) -> Returning:
            return self

        def __next__(self) -> Job:
            if not self.left:
                raise StopIteration
            return self.left.pop(0)

    queue = Returning()
    came_back: list[str] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, Ended) and not came_back and not queue.left:
            came_back.append(event.trial)
            queue.left.append(next(j for j in jobs if j.trial.hash == event.trial))

    events: list[Event] = []
    train(PlayedSlots(completes, most=3), queue, emit=emit)  # type: ignore[arg-type]
    ended = [event.trial for event in events if isinstance(event, Ended)]
    assert len(ended) == 4
    assert ended.count(came_back[0]) == 2


def test_the_rule_sees_the_last_epoch_of_a_trial(
    trials: tuple[Trial, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other trials are compared with it, as in the inline executor."""
    from ablate.execution import driver

    seen: list[int] = []

    class Rule:
        def add(
            self,
            key: str,
            history: tuple[Epoch, ...],
            *,
            early_stop: str,
            group: str,
        ) -> None:
            assert (early_stop, group) == ("allowed", "")

        def stops(self, key: str, epochs: tuple[Epoch, ...]) -> bool:
            seen.extend(epoch.number for epoch in epochs)
            return False

    monkeypatch.setattr(driver, "make_stopping_rule", lambda order: Rule())
    numbers = iter((1, 2))

    def reply(job: Job, request: Request | None) -> Any:
        key = job.trial.hash
        if request is None:
            return Answer((Started(key, PLACE, 0),))
        assert request == Step(0)
        number = next(numbers)
        epoch = Epoch(number=number, metrics={"top1": 1.0}, lr=0.1, seconds=0.1)
        progressed = Progressed(key, (epoch,))
        if number == 2:
            return Answer((progressed, Ended(key, Status.COMPLETED)))
        return Answer((progressed,))

    train(PlayedSlots(reply), [job_of(trials[0])])
    assert seen == [1, 2]


def test_a_second_signal_waits_for_no_worker(trials: tuple[Trial, ...]) -> None:
    class Hanging(PlayedSlots):
        """Its worker never answers that it leaves; then the second signal arrives."""

        def answers(self, seconds: float) -> Iterator[tuple[Any, Job | None, Any]]:
            if Leave(Status.RUNNING) in self.asked:
                raise KeyboardInterrupt
            return super().answers(seconds)

    slots = Hanging(lambda job, request: Answer())
    with pytest.raises(KeyboardInterrupt):
        train(slots, [job_of(trials[0])], stop=lambda: bool(slots.asked))
    assert slots.asked.count(Leave(Status.RUNNING)) == 1
    assert slots.is_closed
