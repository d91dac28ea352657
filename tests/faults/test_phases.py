"""What processes write of their phases is where a kill landed, whatever was aimed at."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import TINY
from tests.faults.inject import ablate_test_phases as injected
from tests.faults.inject.ablate_test_phases import (
    ENTRIES,
    POINTS,
    Entry,
    Missing,
    Record,
    read_entries,
)
from tests.faults.phases import (
    AIMS,
    ELSEWHERE,
    Moment,
    PhaseFolder,
    Place,
    Point,
    check_names,
    environment,
    is_alive,
    killed,
    place_of_driver,
    place_of_worker,
    running,
)
from tests.faults.scene import INJECTED

MOMENT = Moment(before=100, after=110)
ROOT = Path(__file__).parents[2]


def entry(at: int, phase: int, epochs: int = 0) -> Entry:
    return Entry(at=at, phase=phase, epochs=epochs, trial="abc")


def test_a_record_keeps_the_last_changes(tmp_path: Path) -> None:
    record = Record(tmp_path / "1.phases")
    for number in range(ENTRIES + 3):
        record.note(injected.EPOCH, "abc", number)
    found = read_entries(tmp_path / "1.phases")
    assert [one.epochs for one in found] == list(range(3, ENTRIES + 3))
    assert {one.trial for one in found} == {"abc"}
    assert [one.at for one in found] == sorted(one.at for one in found)


def test_a_trial_with_anything_on_the_disk_does_not_start_from_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "lock").touch()
    assert injected._holds_nothing(tmp_path)
    assert injected._holds_nothing(tmp_path / "none")
    (tmp_path / "last.pt").write_bytes(b"0")
    assert not injected._holds_nothing(tmp_path)
    assert not injected._holds_nothing("memory://folder")


def test_a_record_outlives_a_sigkill(tmp_path: Path) -> None:
    program = (
        "import os, signal, ablate_test_phases as phases, pathlib\n"
        f"record = phases.Record(pathlib.Path({str(tmp_path / '1.phases')!r}))\n"
        "record.note(phases.BUILT, 'abc', 0)\n"
        "record.note(phases.CHECKPOINT, 'abc', 7)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(INJECTED)}, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    last = read_entries(tmp_path / "1.phases")[-1]
    assert (last.phase, last.epochs, last.trial) == (injected.CHECKPOINT, 7, "abc")


@pytest.mark.parametrize(
    ("phase", "epochs", "place"),
    [
        (injected.BUILDING, 0, Place.FIRST),
        (injected.CONTINUING, 0, ELSEWHERE),
        (injected.BUILT, 0, Place.FIRST),
        (injected.BUILT, 3, ELSEWHERE),
        (injected.EPOCH, 0, Place.EPOCH),
        (injected.BETWEEN, 1, ELSEWHERE),
        (injected.CHECKPOINT, 1, Place.CHECKPOINT),
        (injected.RESULT, 1, Place.RESULT),
        (injected.OUTSIDE, 1, ELSEWHERE),
    ],
)
def test_a_phase_lies_in_a_place(phase: int, epochs: int, place: str) -> None:
    worker = [entry(10, injected.BUILDING), entry(20, phase, epochs)]
    for died in (True, False):
        found = place_of_worker(worker, [], MOMENT, died=died)
        assert found == place


def test_the_last_phase_of_the_dead_counts() -> None:
    worker = [entry(20, injected.EPOCH), entry(105, injected.CHECKPOINT, 1)]
    found = place_of_worker(worker, [], MOMENT, died=True)
    assert found == Place.CHECKPOINT


def test_who_lives_on_must_have_stayed_in_its_place_until_the_other_was_dead() -> None:
    worker = [entry(20, injected.EPOCH), entry(105, injected.BETWEEN, 1)]
    assert place_of_worker(worker, [], MOMENT, died=False) == ELSEWHERE
    later = [entry(20, injected.EPOCH), entry(111, injected.BETWEEN, 1)]
    assert place_of_worker(later, [], MOMENT, died=False) == Place.EPOCH


def test_a_process_that_trained_nothing_was_nowhere() -> None:
    assert place_of_worker([], [], MOMENT, died=True) == ELSEWHERE
    assert place_of_driver([], MOMENT, died=True) == ELSEWHERE


@pytest.mark.parametrize(
    ("committing", "place"),
    [(5, Place.RESULT), (50, ELSEWHERE), (110, ELSEWHERE), (111, Place.RESULT)],
)
def test_a_result_lies_before_its_commit(committing: int, place: str) -> None:
    # One before the result is the commit of an earlier attempt.
    worker, driver = (
        [entry(20, injected.RESULT, 3)],
        [entry(committing, injected.COMMITTING)],
    )
    assert place_of_worker(worker, driver, MOMENT, died=True) == place


def test_a_commit_of_another_trial_changes_nothing() -> None:
    worker, driver = (
        [entry(20, injected.RESULT, 3)],
        [Entry(at=50, phase=injected.COMMITTING, epochs=0, trial="other")],
    )
    found = place_of_worker(worker, driver, MOMENT, died=True)
    assert found == Place.RESULT


@pytest.mark.parametrize(
    ("phase", "place"),
    [
        (injected.STORING, Place.RESULT),
        (injected.COMMITTING, ELSEWHERE),
        (injected.OUTSIDE, ELSEWHERE),
    ],
)
def test_a_driver_is_hit_before_the_commit_or_elsewhere(phase: int, place: str) -> None:
    assert place_of_driver([entry(20, phase)], MOMENT, died=True) == place


def test_all_wrapped_functions_are_there() -> None:
    check_names()


def test_a_function_that_is_gone_is_missed() -> None:
    module = ModuleType("ablate.store.writer")
    with pytest.raises(
        Missing, match=r"ablate\.store\.writer\.Writer\.write is not there"
    ):
        injected.check_names(module)


def test_a_process_misses_a_function_aloud(tmp_path: Path) -> None:
    package = tmp_path / "ablate" / "training"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "checkpoint.py").write_text("class CheckpointFolder: pass")
    phases = PhaseFolder(tmp_path / "phases")
    paths = os.pathsep.join([str(INJECTED), str(tmp_path)])
    tried = subprocess.run(
        [sys.executable, "-c", "import ablate.training.checkpoint"],
        cwd=tmp_path,
        env={**environment(phases), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode == 1
    assert "CheckpointFolder.save is not there" in tried.stderr
    assert "CheckpointFolder.save is not there" in phases.missing()


def test_every_point_is_one_that_a_kill_aims_at() -> None:
    numbers = [point.number for points in AIMS.values() for point in points]
    assert sorted(numbers) == list(range(len(POINTS)))


def test_a_killed_process_is_dead_before_the_moment_ends() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert is_alive(process.pid)
    moment = killed(process.kill, [process.pid])
    assert not is_alive(process.pid)
    assert moment.before < moment.after
    process.wait()


# Points in the order in which a trial of one process passes them.
ORDER = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
PLACE_AT = {
    **dict.fromkeys((0, 1), Place.FIRST),
    2: Place.EPOCH,
    **dict.fromkeys((3, 4, 5, 6), Place.CHECKPOINT),
    **dict.fromkeys((7, 8, 9), Place.RESULT),
}


@pytest.mark.proof
def test_a_real_run_is_held_at_every_point_and_killed_at_the_last(
    tmp_path: Path,
) -> None:
    """The inline executor trains and stores in one process, which passes all points."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    phases = PhaseFolder(tmp_path / "phases")
    paths = os.pathsep.join([str(INJECTED), str(ROOT)])
    words = "run tiny.yaml --executor inline --runs runs".split()
    command = [sys.executable, "-m", "ablate", *words]
    phases.hold(Point(ORDER[0]))
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, **environment(phases), "PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for number, following in itertools.zip_longest(ORDER, ORDER[1:]):
            wait_for_hold(phases, process)
            assert place_now(phases, process.pid) == PLACE_AT[number], POINTS[number]
            parts = list(tmp_path.glob("runs/checkpoints/*/*/*.part"))
            assert bool(parts) == (number == 5), POINTS[number]
            if following is not None:
                phases.hold(Point(following))
        assert running(phases) == [process.pid]
        moment = killed(process.kill, [process.pid])
    finally:
        process.kill()
        process.wait()
    entries = phases.entries(process.pid)
    assert place_of_driver(entries, moment, died=True) == Place.RESULT
    phases_of_worker = [one.phase for one in entries]
    assert phases_of_worker[:3] == [injected.BUILDING, injected.BUILT, injected.EPOCH]
    assert phases_of_worker[-3:] == [
        injected.BETWEEN,
        injected.RESULT,
        injected.STORING,
    ]
    # Each point is held in the first trial: no other one had begun.
    assert len({one.trial for one in entries}) == 1


def wait_for_hold(phases: PhaseFolder, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not phases.held():
        assert process.poll() is None, (
            "the run ended before the process came to the point"
        )
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert phases.held() == process.pid


def place_now(phases: PhaseFolder, process: int) -> str:
    """The place in which a process is that trains and stores."""
    entries = phases.entries(process)
    moment = Moment(time.monotonic_ns(), time.monotonic_ns())
    place = place_of_driver(entries, moment, died=False)
    if place != ELSEWHERE:
        return place
    return place_of_worker(
        entries,
        entries,
        moment,
        died=False,
    )
