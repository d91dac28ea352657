"""Where a kill landed: read from what processes wrote of their phases, never from the
aim.
"""

from __future__ import annotations

import importlib
import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.faults.inject import ablate_test_phases as injected
from tests.faults.inject.ablate_test_phases import ORDER, POINTS, Entry, read_entries


class Place(StrEnum):
    """Where in a trial's life a kill landed."""

    FIRST = "before the first epoch"
    EPOCH = "inside an epoch"
    CHECKPOINT = "while a checkpoint is written"
    RESULT = "between result and commit"


# Between two epochs, while a trial goes on from its checkpoint, or while no trial runs.
ELSEWHERE = "elsewhere"
PLACES = (*Place, ELSEWHERE)

MEANING = {
    Place.FIRST: (
        "a worker is building or has built a trial without a checkpoint, and its first"
        " epoch has not begun"
    ),
    Place.EPOCH: "a worker trains an epoch, or evaluates at the end of it",
    Place.CHECKPOINT: (
        "a worker writes a checkpoint (from the call of the save function to its"
        " return)"
    ),
    Place.RESULT: (
        "a worker has finished a trial, and the driver has not yet asked the database to"
        " commit the result"
    ),
    ELSEWHERE: (
        "between two epochs, while a trial resumes from its checkpoint, or while no"
        " trial runs"
    ),
}


# Where a worker is by its phase, unless what it wrote besides says that it is
# elsewhere.
BY_PHASE = {
    injected.BUILDING: Place.FIRST,
    injected.BUILT: Place.FIRST,
    injected.EPOCH: Place.EPOCH,
    injected.CHECKPOINT: Place.CHECKPOINT,
    injected.RESULT: Place.RESULT,
}


@dataclass(frozen=True)
class Point:
    """A point at which a process can be held.

    Attributes:
        number: index in `POINTS`.
        driver: the driver passes the point, not a worker.
        most_passes: how often the point may be passed by before the hold, at most.
    """

    number: int
    driver: bool = False
    most_passes: int = 0

    @property
    def name(self) -> str:
        return POINTS[self.number]


# By place: the points at which a process can be held for a kill there.
AIMS: dict[Place, tuple[Point, ...]] = {
    Place.FIRST: (Point(0), Point(1)),
    Place.EPOCH: (Point(2, most_passes=40),),
    Place.CHECKPOINT: (Point(3), Point(4), Point(5), Point(6)),
    Place.RESULT: (Point(7), Point(8, driver=True), Point(9, driver=True)),
}


def check_names() -> None:
    """Looks for each function that the injected module wraps.

    Raises:
        Missing: one of them is not there.
    """
    for name in injected.WRAPPED:
        injected.check_names(importlib.import_module(name))


class PhaseFolder:
    """The folder to which the processes of one study write their phases."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        order = folder / "hold"
        order.write_bytes(bytes(ORDER.size))
        with order.open("r+b") as stream:
            self._order = mmap.mmap(stream.fileno(), ORDER.size)
        self._token = 0

    def missing(self) -> str:
        """Which wrapped function some process did not find; nothing where all are
        there.
        """
        file = self.folder / "missing"
        return file.read_text() if file.is_file() else ""

    def hold(self, point: Point, passes: int = 0) -> None:
        """Asks that the next process that comes to a point is held there."""
        self._token += 1
        ORDER.pack_into(self._order, 0, 0, 0, 0)
        ORDER.pack_into(self._order, 0, 0, point.number, passes)
        ORDER.pack_into(self._order, 0, self._token, point.number, passes)

    def held(self) -> int:
        """The process that is held; 0 while none is."""
        file = self.folder / f"held-{self._token}"
        text = file.read_text() if file.is_file() else ""
        return int(text or 0)

    def release(self) -> None:
        """Lets the held process go on, and asks for no hold any more."""
        ORDER.pack_into(self._order, 0, 0, 0, 0)

    def entries(self, process: int) -> list[Entry]:
        """The changes of phase of a process; none of one that never trained or stored."""
        file = self.folder / f"{process}.phases"
        return read_entries(file) if file.is_file() else []


@dataclass(frozen=True)
class Moment:
    """The time in which a process died.

    Attributes:
        before: the signal was not sent yet.
        after: the process was dead.
    """

    before: int
    after: int


def killed(
    kill: Callable[[], None], processes: list[int], seconds: float = 10.0
) -> Moment:
    """Kills, and waits until the processes are dead."""
    before = time.monotonic_ns()
    kill()
    deadline = time.monotonic() + seconds
    while (
        any(is_alive(process) for process in processes) and time.monotonic() < deadline
    ):
        time.sleep(0.002)
    return Moment(before, time.monotonic_ns())


def is_alive(process: int) -> bool:
    """Whether a process still runs code: a zombie does not."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in ("Z", "X")


def place_of_worker(
    worker: list[Entry],
    driver: list[Entry],
    moment: Moment,
    *,
    died: bool,
) -> str:
    """Where a worker was in the moment of a kill.

    Args:
        worker: what the worker wrote of its phases.
        driver: what its driver wrote.
        died: the worker itself was killed; else it must have stayed in one phase for
            the moment.
    """
    last = _phase_of(worker, moment, died=died)
    if last is None:
        return ELSEWHERE
    if last.phase == injected.BUILT and last.epochs:
        return ELSEWHERE
    if last.phase == injected.RESULT and _committed(driver, last, moment):
        return ELSEWHERE
    return BY_PHASE.get(last.phase, ELSEWHERE)


def place_of_driver(driver: list[Entry], moment: Moment, *, died: bool) -> str:
    """Where a driver was in the moment of a kill: it may have been storing a result."""
    last = _phase_of(driver, moment, died=died)
    return (
        Place.RESULT
        if last is not None and last.phase == injected.STORING
        else ELSEWHERE
    )


def _phase_of(entries: list[Entry], moment: Moment, *, died: bool) -> Entry | None:
    """The phase of a process in a moment; None where it had none, or went on to another
    one.
    """
    if died:
        return entries[-1] if entries else None
    before = [entry for entry in entries if entry.at <= moment.before]
    during = [entry for entry in entries if moment.before < entry.at <= moment.after]
    return before[-1] if before and not during else None


def _committed(driver: list[Entry], result: Entry, moment: Moment) -> bool:
    """Whether the driver asked the database to commit a result before the moment ended."""
    return any(
        entry.phase == injected.COMMITTING
        and entry.trial == result.trial
        and result.at <= entry.at <= moment.after
        for entry in driver
    )


def environment(folder: PhaseFolder) -> dict[str, str]:
    """What a process needs in its environment to write its phases to a folder."""
    return {injected.VARIABLE: str(folder.folder)}


def running(folder: PhaseFolder) -> list[int]:
    """The processes that are alive and wrote phases."""
    found = [int(file.stem) for file in folder.folder.glob("*.phases")]
    return sorted(
        process for process in found if is_alive(process) and process != os.getpid()
    )
