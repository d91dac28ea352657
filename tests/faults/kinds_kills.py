"""SIGKILLs of a worker, of the driver, of both, of the nursery, and of parts of Ray.

They come at any instant, or aim at a place in a trial's life. A kill that is aimed has
a process held at the place, and kills then. What counts is where the kill landed: what
the processes wrote of their phases before they died.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import psutil

from tests.faults.fault import fault
from tests.faults.phases import (
    AIMS,
    ELSEWHERE,
    Moment,
    Place,
    Point,
    killed,
    place_of_driver,
    place_of_worker,
    running,
)
from tests.faults.scene import Scene, stopped

# How long an aimed kill waits for a process to come to its place.
WAIT_SECONDS = 20.0
POLL_SECONDS = 0.02
# Trials that may come to a place yet.
TO_TRAIN = {
    Place.FIRST: "SELECT 1 FROM trials WHERE status = 'planned' AND epochs_done = 0",
    Place.EPOCH: "SELECT 1 FROM trials WHERE status IN ('planned', 'running')",
    Place.CHECKPOINT: "SELECT 1 FROM trials WHERE status IN ('planned', 'running')",
    Place.RESULT: "SELECT 1 FROM trials WHERE status IN ('planned', 'running')",
}


def kill_worker(scene: Scene, worker: int) -> Moment | None:
    """Stops a worker, notes what its trial has on the disk, and kills the worker."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(worker)
        with stopped(process):
            entries = scene.phases.entries(worker)
            if entries:
                scene.note_floor(entries[-1].trial, worker)
            return killed(process.kill, [worker])
    return None


def kill_driver(scene: Scene, worker: int) -> Moment | None:
    """Kills the driver; what becomes of the workers is Ray's to see to."""
    assert scene.driver is not None
    return killed(scene.driver.kill, [scene.pid])


def kill_group(scene: Scene, worker: int) -> Moment | None:
    """Kills the driver, its workers and all processes of Ray at once."""
    processes = scene.session()

    def kill() -> None:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()

    return killed(kill, [process.pid for process in processes])


def kill_raylet(scene: Scene, worker: int) -> Moment | None:
    """Kills the part of Ray that starts actors and ends with them."""
    return _kill_one(scene, "raylet", [])


def kill_nursery(scene: Scene, worker: int) -> Moment | None:
    """Kills the process that forks workers; they all die with it."""
    return _kill_one(scene, "ablate-nursery", [worker] if worker else [])


def kill_relay(scene: Scene, worker: int) -> Moment | None:
    """Kills an actor that passes requests to a worker, which dies with it."""
    return _kill_one(scene, "ray::Relay", [])


def _kill_one(scene: Scene, name: str, others: list[int]) -> Moment | None:
    """Kills a process by the begin of its name, and waits for others that die with it."""
    found = []
    for process in scene.session():
        with contextlib.suppress(psutil.Error):
            if process.name().startswith(name):
                found.append(process)
    if not found:
        return None
    process = scene.rng.choice(sorted(found, key=lambda one: one.pid))
    with contextlib.suppress(psutil.Error):
        return killed(process.kill, [process.pid, *others])
    return None


@dataclass(frozen=True)
class Victim:
    """Who is killed.

    Attributes:
        kill: kills, and says when; None where there was no such process. Its second
            argument is the worker at hand, or 0.
        share: how often it is killed at any instant, in comparison.
        aimed: how often it is killed at each place, in comparison.
    """

    row: str
    sees: str
    keeps: str
    kill: Callable[[Scene, int], Moment | None]
    share: int
    aimed: int
    codes: tuple[int, ...] = ()
    says: str = ""
    ends_worker: bool = False
    ends_driver: bool = False


WORKER = Victim(
    row="SIGKILL of a worker",
    sees=(
        "one line: the worker was lost, and the epoch to continue from; the run"
        " continues"
    ),
    keeps="all results, the trial's last checkpoint",
    kill=kill_worker,
    share=5,
    aimed=9,
    ends_worker=True,
)
DRIVER = Victim(
    row="SIGKILL of the driver",
    sees="the message of the shell; continue with `ablate resume`",
    keeps="all results, each trial's last checkpoint",
    kill=kill_driver,
    share=3,
    aimed=2,
    codes=(-9,),
    ends_driver=True,
)
GROUP = Victim(
    row="SIGKILL of the whole process group",
    sees="the message of the shell; continue with `ablate resume`",
    keeps="all results, each trial's last checkpoint",
    kill=kill_group,
    share=2,
    aimed=1,
    codes=(-9,),
    ends_worker=True,
    ends_driver=True,
)
RAYLET = Victim(
    row="SIGKILL of Ray's raylet",
    sees=(
        "one message that names the process, exit code 2; while Ray is starting, exit"
        " code 1, and Ray's own message or none"
    ),
    keeps="all results, last checkpoints",
    kill=kill_raylet,
    share=3,
    aimed=0,
    codes=(1, 2),
    says="raylet",
)
NURSERY = Victim(
    row="SIGKILL of the nursery",
    sees="for each running trial, the line of a lost worker; the run continues",
    keeps="all results, last checkpoints",
    kill=kill_nursery,
    share=4,
    aimed=2,
    ends_worker=True,
)
RELAY = Victim(
    row="SIGKILL of an actor of Ray",
    sees="the line of a lost worker; the run continues",
    keeps="all results, the trial's last checkpoint",
    kill=kill_relay,
    share=4,
    aimed=0,
)
VICTIMS = (WORKER, DRIVER, GROUP, RAYLET, NURSERY, RELAY)
# Their kill needs a worker that trains.
OF_WORKERS = (WORKER, NURSERY, RELAY)


def kill_at_any_instant(scene: Scene, victim: Victim) -> bool:
    """Kills now, whatever is under way."""
    workers = [process.pid for process, _ in scene.workers()] or [
        process for process in running(scene.phases) if process != scene.pid
    ]
    if victim in OF_WORKERS and not workers:
        return False
    worker = scene.rng.choice(workers) if workers else 0
    return _kill(scene, victim, worker)


def kill_at(scene: Scene, victim: Victim, place: Place) -> bool:
    """Has a process held at a place, and kills then; False where none comes there in
    time.
    """
    point = scene.rng.choice(points_for(victim, place))
    scene.phases.hold(point, scene.rng.randint(0, point.most_passes))
    try:
        held = _wait_for_hold(scene, place)
        return bool(held) and _kill(scene, victim, 0 if point.driver else held)
    finally:
        scene.phases.release()


def points_for(victim: Victim, place: Place) -> list[Point]:
    """The points at which a victim can be hit: a worker is none that the driver passes."""
    return [point for point in AIMS[place] if victim.ends_driver or not point.driver]


def may_come_to(place: Place, scene: Scene) -> bool:
    """Whether some trial may come to a place in this run; also before the study is
    stored.
    """
    return bool(scene.rows(TO_TRAIN[place])) or not scene.rows("SELECT 1 FROM trials")


def _wait_for_hold(scene: Scene, place: Place) -> int:
    deadline = time.monotonic() + WAIT_SECONDS
    while scene.alive and time.monotonic() < deadline:
        held = scene.phases.held()
        if held:
            return held
        scene.tick()
        if not may_come_to(place, scene):
            return 0
        time.sleep(POLL_SECONDS)
    return 0


def _kill(scene: Scene, victim: Victim, worker: int) -> bool:
    """Kills, and notes where the kill landed.

    `worker` is 0 where only the driver is looked at.
    """
    moment = victim.kill(scene, worker)
    if moment is None:
        return False
    scene.landed = _place(scene, victim, worker, moment)
    return True


def _place(scene: Scene, victim: Victim, worker: int, moment: Moment) -> str:
    """Where the worker at hand was; if elsewhere, or if there is none, where the driver
    was.
    """
    driver = scene.phases.entries(scene.pid)
    entries = scene.phases.entries(worker) if worker else []
    place = place_of_worker(entries, driver, moment, died=victim.ends_worker)
    if place == ELSEWHERE and victim not in OF_WORKERS:
        return place_of_driver(driver, moment, died=victim.ends_driver)
    return place


for _victim in VICTIMS:
    fault(
        _victim.row,
        "training" if _victim in OF_WORKERS else "any",
        sees=_victim.sees,
        keeps=_victim.keeps,
        codes=_victim.codes,
        says=_victim.says,
        share=_victim.share,
    )(partial(kill_at_any_instant, victim=_victim))
    for _place_aimed in Place if _victim.aimed else ():
        fault(
            f"{_victim.row}, {_place_aimed}",
            "training",
            sees=_victim.sees,
            keeps=_victim.keeps,
            codes=_victim.codes,
            says=_victim.says,
            share=_victim.aimed,
            row=_victim.row,
            aim=_place_aimed,
            possible=partial(may_come_to, _place_aimed),
        )(partial(kill_at, victim=_victim, place=_place_aimed))
