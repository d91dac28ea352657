"""The slots of a run, with a Ray that answers at once."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
from ray.exceptions import RayError

from ablate.execution.ray_tune import slots as module
from ablate.execution.ray_tune.slots import (
    COUNT_SECONDS,
    EARLY,
    IDLE_SECONDS,
    RaySlots,
)
from ablate.execution.slots import Lost, Slot
from ablate.execution.worker import Answer, Begin, Step
from ablate.records import Job, Resources, Trial
from tests.execution.test_driver import trials

__all__ = ["trials"]


class Method:
    """A method of an actor: a call returns a reference to its answer."""

    def __init__(self, fake: FakeRay, name: str) -> None:
        self._fake = fake
        self._name = name

    def remote(self, *arguments: Any) -> str:
        reference = f"{self._name}-{len(self._fake.calls)}"
        self._fake.calls.append((self._name, arguments))
        return reference


class Actor:
    def __init__(self, fake: FakeRay) -> None:
        self.ready = Method(fake, "ready")
        self.begin = Method(fake, "begin")
        self.ask = Method(fake, "ask")


class FakeRay:
    """What `slots` needs of Ray.

    Attributes:
        machines: the machines, as `ray.nodes` lists them.
        answers: what has come: a content, or an error.
        calls: the methods that were called, with their arguments.
        options_of_actors: what each actor holds.
        killed: the actors that were ended.
    """

    def __init__(self) -> None:
        self.machines = [machine(CPU=4)]
        self.answers: dict[str, Any] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.options_of_actors: dict[str, Any] = {}
        self.killed: list[Actor] = []
        self.times_counted = 0

    def remote(self, _: type) -> FakeRay:
        return self

    def options(self, **options: Any) -> FakeRay:
        self.options_of_actors = options
        return self

    # The class of actors, on which `remote` starts one.
    @property
    def maker(self) -> Callable[..., Actor]:
        return lambda *_, **__: Actor(self)

    def nodes(self) -> list[dict[str, Any]]:
        self.times_counted += 1
        return self.machines

    def wait(
        self, references: list[str], num_returns: int, timeout: float
    ) -> tuple[list[str], list[str]]:
        came = [one for one in references if one in self.answers][:num_returns]
        return came, [one for one in references if one not in came]

    def get(self, reference: str) -> Any:
        answer = self.answers[reference]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor)
        if len(self.killed) == 1:
            raise RayError("it has died already")


def machine(*, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    made = FakeRay()
    monkeypatch.setattr(module, "ray", made)
    return made


def slots_of(
    fake: FakeRay, resources: Resources | None = None, *, local: bool = True
) -> RaySlots:
    made = RaySlots(resources or Resources(), local=local, data=None)
    made._maker = type("Maker", (), {"remote": staticmethod(fake.maker)})()
    return made


def started(fake: FakeRay, made: RaySlots) -> Slot:
    """A slot that has found its place."""
    made.add()
    slot = made.all[-1]
    fake.answers[slot.asked[0][0]] = None
    assert [one for one, _, _ in made.answers(0)] == [slot]
    return slot


def answer_to(fake: FakeRay, slot: Slot, content: Any) -> None:
    fake.answers[slot.asked[0][0]] = content


@pytest.fixture
def job(trials: tuple[Trial, ...]) -> Job:
    return Job(trials[0], "none", Resources())


@pytest.mark.parametrize(
    ("resources", "node", "places"),
    [
        (Resources(cpus=1), {"CPU": 4}, 4),
        (Resources(cpus=3), {"CPU": 4}, 1),
        (Resources(cpus=0.07), {"CPU": 7}, 100),
        (Resources(cpus=1), {}, 0),
        (Resources(cpus=1, gpus=1), {"CPU": 8, "GPU": 2}, 2),
        (Resources(cpus=1, gpus=2), {"CPU": 8, "GPU": 3}, 1),
        # Each share is of one GPU: 0.4 fits twice into each.
        (Resources(cpus=1, gpus=0.4), {"CPU": 8, "GPU": 2}, 4),
        (Resources(cpus=4, gpus=0.25), {"CPU": 8, "GPU": 2}, 2),
        (Resources(cpus=1, gpus=1), {"CPU": 8}, 0),
    ],
)
def test_how_many_trials_fit_into_a_machine(
    fake: FakeRay, resources: Resources, node: dict[str, float], places: int
) -> None:
    fake.machines = [machine(**node)]
    assert slots_of(fake, resources).most() == places


def test_a_slot_holds_what_one_trial_uses(fake: FakeRay) -> None:
    slots_of(fake, Resources(cpus=2, gpus=0.5))
    assert fake.options_of_actors == {
        "num_cpus": 2,
        "num_gpus": 0.5,
        "max_restarts": 0,
    }


def test_one_machine_is_counted_once(fake: FakeRay) -> None:
    made = slots_of(fake)
    assert made.most() == 4
    fake.machines = [machine(CPU=8)]
    made._counted_at -= 2 * COUNT_SECONDS
    assert made.most() == 4
    assert fake.times_counted == 1


def test_a_cluster_is_counted_again_without_its_dead_machines(fake: FakeRay) -> None:
    made = slots_of(fake, local=False)
    # One more than there are places, so that an autoscaler adds a machine.
    assert made.most() == 4 + 1
    fake.machines = [machine(CPU=4), machine(CPU=2), machine(CPU=64, alive=False)]
    assert made.most() == 4 + 1, "not again within a second"
    made._counted_at -= 2 * COUNT_SECONDS
    assert made.most() == 6 + 1


@pytest.mark.parametrize(("cpus", "early"), [(3, 3), (64, EARLY)])
def test_the_first_slots_start_before_there_are_jobs(
    fake: FakeRay, cpus: int, early: int
) -> None:
    fake.machines = [machine(CPU=cpus)]
    made = slots_of(fake)
    made.start_early()
    assert len(made.all) == early
    assert not any(slot.is_idle for slot in made.all), "they have not started yet"


def test_a_slot_is_idle_when_it_has_started_and_owes_no_answer(
    fake: FakeRay, job: Job
) -> None:
    made = slots_of(fake)
    slot = started(fake, made)
    assert slot.is_idle
    made.begin(slot, job)
    assert not slot.is_idle
    answer_to(fake, slot, pickle.dumps(Answer()))
    assert len(list(made.answers(0))) == 1
    assert slot.is_idle


def test_a_job_is_sent_and_a_failed_worker_is_replaced_once(
    fake: FakeRay, job: Job
) -> None:
    made = slots_of(fake)
    slot = started(fake, made)
    slot.needs_new_worker = True
    made.begin(slot, job)
    name, (request, replace) = fake.calls[-1]
    assert name == "begin"
    assert pickle.loads(request) == Begin(job, "ray", last=True)
    assert replace
    assert not slot.needs_new_worker
    made.begin(slot, job)
    assert fake.calls[-1][1][1] is False


def test_on_a_gpu_a_job_is_not_the_last_of_its_process(fake: FakeRay, job: Job) -> None:
    made = slots_of(fake, Resources(gpus=1))
    fake.machines = [machine(CPU=1, GPU=1)]
    slot = started(fake, made)
    made.begin(slot, job)
    assert not pickle.loads(fake.calls[-1][1][0]).last


def test_answers_belong_to_the_jobs_that_they_were_asked_for(
    fake: FakeRay, trials: tuple[Trial, ...]
) -> None:
    made = slots_of(fake)
    slot = started(fake, made)
    first = Job(trials[0], "none", Resources())
    second = Job(trials[1], "none", Resources())
    made.begin(slot, first)
    made.ask(slot, Step(1.0))
    made.begin(slot, second)
    for text in ("begun", "stepped", "begun again"):
        answer_to(fake, slot, pickle.dumps(Answer(error=text)))
        ((where, job, answer),) = made.answers(0)
        assert where is slot
        assert answer.error == text
        assert job is (second if text == "begun again" else first)


def test_an_answer_that_has_not_come_is_waited_for(fake: FakeRay, job: Job) -> None:
    made = slots_of(fake)
    slot = started(fake, made)
    made.begin(slot, job)
    assert list(made.answers(0)) == []
    assert len(slot.asked) == 1


def test_without_slots_it_waits(fake: FakeRay) -> None:
    began = time.monotonic()
    assert list(slots_of(fake).answers(0.05)) == []
    assert time.monotonic() - began >= 0.05


def test_a_killed_worker_leaves_its_slot(fake: FakeRay, job: Job) -> None:
    made = slots_of(fake)
    slot = started(fake, made)
    made.begin(slot, job)
    answer_to(fake, slot, b"")
    ((_, about, lost),) = made.answers(0)
    assert about is job
    assert lost == Lost("its process was killed, or memory ran out", with_slot=False)
    assert made.all == [slot]


def test_a_dead_slot_is_removed_and_owes_nothing(fake: FakeRay, job: Job) -> None:
    made = slots_of(fake)
    slot = started(fake, made)
    made.begin(slot, job)
    made.ask(slot, Step(1.0))
    answer_to(fake, slot, RayError("\n  The actor died.\nmore"))
    ((_, about, lost),) = made.answers(0)
    assert about is job
    assert lost == Lost("The actor died.", with_slot=True)
    assert made.all == []
    assert not slot.asked
    assert fake.killed == [slot.handle]
    made.remove(slot)
    assert len(fake.killed) == 1, "once"


def test_an_error_without_a_text_has_its_name(fake: FakeRay, job: Job) -> None:
    made = slots_of(fake)
    slot = started(fake, made)
    made.begin(slot, job)
    answer_to(fake, slot, RayError(" "))
    ((_, _, lost),) = made.answers(0)
    assert lost.reason == "RayError"


@pytest.mark.parametrize("local", [True, False])
def test_idle_slots_give_their_places_back_on_a_cluster_only(
    fake: FakeRay, job: Job, local: bool
) -> None:
    made = slots_of(fake, local=local)
    idle = started(fake, made)
    busy = started(fake, made)
    recent = started(fake, made)
    made.begin(busy, job)
    for slot in (idle, busy):
        slot.last_used -= 2 * IDLE_SECONDS
    made.retire()
    assert made.all == ([idle, busy, recent] if local else [busy, recent])


def test_closing_ends_all(fake: FakeRay) -> None:
    made = slots_of(fake)
    made.start_early()
    actors = [slot.handle for slot in made.all]
    made.close()
    assert made.all == []
    assert fake.killed == actors


def test_a_dead_part_of_ray_is_named(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    class Node:
        def dead_processes(self) -> list[tuple[str, Any]]:
            return [("dashboard", None), ("raylet", None)]

    slots = slots_of(fake)
    assert slots.failure() == ""
    monkeypatch.setattr(ray._private.worker, "_global_node", Node())
    assert "process raylet died" in slots.failure()
