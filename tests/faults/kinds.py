"""The faults: one function each, registered with what the user sees and what is kept.

A function does its fault to a running study and gives True, or False where that is not possible yet: no worker trains, no
checkpoint was written. It is then asked again, until the run has ended.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import psutil

from tests.faults.disk import CHECKPOINT_ROOM
from tests.faults.scene import BUSY_SECONDS, Scene, stopped

LOST_WORKER = "its worker was lost"


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        sees, keeps: for the table, in a few words.
        when: while a run trains, at any instant of a run (which it ends), or between two runs.
        codes: exit codes that the run may have for it, besides 0 where it came too late to matter.
        says: what standard error must hold where the run ended with such a code.
        share: how often it is drawn, in comparison.
    """

    name: str
    sees: str
    keeps: str
    inject: Callable[[Scene], bool]
    when: Literal["training", "any", "between"]
    codes: frozenset[int]
    says: str
    share: int

    @property
    def sigkill(self) -> bool:
        return self.name.startswith("SIGKILL")


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    when: Literal["training", "any", "between"],
    *,
    sees: str,
    keeps: str,
    codes: tuple[int, ...] = (),
    says: str = "",
    share: int = 3,
) -> Callable[[Callable[[Scene], bool]], Callable[[Scene], bool]]:
    """Registers a fault."""

    def register(inject: Callable[[Scene], bool]) -> Callable[[Scene], bool]:
        FAULTS[name] = Fault(name, sees, keeps, inject, when, frozenset(codes), says, share)
        return inject

    return register


@fault(
    "SIGKILL of the driver",
    "any",
    sees="the shell's word; then `ablate resume`",
    keeps="all results, each trial's last checkpoint",
    codes=(-9,),
    share=16,
)
def kill_driver(scene: Scene) -> bool:
    assert scene.driver is not None
    scene.driver.kill()
    return True


@fault(
    "SIGKILL of a worker",
    "training",
    sees="a line: its worker was lost, after which epoch it goes on; the run goes on",
    keeps="all results, the trial's last checkpoint",
    share=20,
)
def kill_worker(scene: Scene) -> bool:
    return _end_worker(scene, lambda process, trial: process.kill())


@fault(
    "SIGKILL of Ray's raylet",
    "any",
    sees="one message with the process's name, exit code 2",
    keeps="all results, last checkpoints",
    codes=(2,),
    says="raylet",
    share=9,
)
def kill_raylet(scene: Scene) -> bool:
    for process in scene.session():
        with contextlib.suppress(psutil.Error):
            if process.name() == "raylet":
                process.kill()
                return True
    return False


@fault(
    "SIGTERM",
    "any",
    sees="`Interrupted: n of m trials done. Go on with: ...`, exit code 130",
    keeps="every epoch told",
    codes=(130, -15),
    says="Go on with: ablate resume|interrupted",
    share=4,
)
def terminate(scene: Scene) -> bool:
    assert scene.driver is not None
    scene.driver.send_signal(signal.SIGTERM)
    return True


@fault(
    "Ctrl-C",
    "any",
    sees="`Interrupted: n of m trials done. Go on with: ...`, exit code 130",
    keeps="every epoch told",
    codes=(130, -2),
    says="Go on with: ablate resume|interrupted",
    share=4,
)
def interrupt(scene: Scene) -> bool:
    import os

    os.killpg(scene.pid, signal.SIGINT)
    return True


@fault(
    "disk full: checkpoints",
    "training",
    sees="`failed: ... no checkpoint can be written ...: No space left on device`, exit code 1",
    keeps="all results, last checkpoints; `ablate resume` trains the failed ones on",
    codes=(1, 2),
    says="no checkpoint can be written|No space|File too large|cannot be written",
)
def fill_for_checkpoints(scene: Scene) -> bool:
    return _fill(scene, CHECKPOINT_ROOM)


@fault(
    "disk full: database",
    "training",
    sees="one message: the store cannot be written to, why, what to do; exit code 2",
    keeps="all that was stored, last checkpoints",
    codes=(1, 2),
    says="cannot be written|No space|File too large",
)
def fill_for_database(scene: Scene) -> bool:
    return _fill(scene, 0)


@fault(
    "checkpoint truncated",
    "training",
    sees="nothing but time",
    keeps="all results; the file is set aside and the trial starts anew",
)
def truncate(scene: Scene) -> bool:
    return _damage(scene, lambda content: content[: scene.rng.randrange(1, len(content))])


@fault(
    "checkpoint empty", "training", sees="nothing but time", keeps="all results; the file is set aside and the trial starts anew"
)
def empty(scene: Scene) -> bool:
    return _damage(scene, lambda content: b"")


@fault(
    "checkpoint with a flipped bit",
    "training",
    sees="nothing but time",
    keeps="all results; the file is set aside and the trial starts anew",
)
def flip(scene: Scene) -> bool:
    def flipped(content: bytes) -> bytes:
        at = scene.rng.randrange(len(content))
        return content[:at] + bytes([content[at] ^ 1 << scene.rng.randrange(8)]) + content[at + 1 :]

    return _damage(scene, flipped)


@fault("database locked for a moment", "training", sees="nothing: the run waits", keeps="everything")
def lock_shortly(scene: Scene) -> bool:
    return _lock(scene, scene.rng.uniform(0.2, BUSY_SECONDS / 3))


@fault(
    "database locked for long",
    "training",
    sees="one message: the store cannot be written to, locked, what to do; exit code 2",
    keeps="all that was stored, last checkpoints",
    codes=(2,),
    says="locked",
)
def lock_long(scene: Scene) -> bool:
    return _lock(scene, 8 * BUSY_SECONDS)


@fault("run folder moved between runs", "between", sees="nothing: `ablate resume --runs NEW`", keeps="everything")
def move(scene: Scene) -> bool:
    if not scene.runs.is_dir():
        return False
    target = scene.disk.folder / f"runs-{len(list(scene.disk.folder.iterdir()))}"
    scene.runs = scene.runs.rename(target)
    return True


@fault(
    "run folder moved while in use",
    "training",
    sees="one message: the store is no longer there, `--runs` names its new place; exit code 2",
    keeps="all that was stored, last checkpoints",
    codes=(1, 2),
    says="no longer there|no store|cannot be written|No such file",
)
def move_in_use(scene: Scene) -> bool:
    return bool(scene.workers()) and move(scene)


@fault(
    "out of memory in a trial",
    "training",
    sees="`failed: ... MemoryError`, exit code 1, or a line that its worker was lost",
    keeps="all results, last checkpoints; `ablate resume` trains it on",
    codes=(1,),
    says="failed",
)
def exhaust(scene: Scene) -> bool:
    found = scene.workers()
    if not found:
        return False
    process, _ = scene.rng.choice(found)
    with contextlib.suppress(psutil.Error):
        process.rlimit(psutil.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
        scene.later(6, lambda: _lift(process))
        return True
    return False


@fault(
    "data set unreadable for a worker",
    "training",
    sees="`failed: ... data: FILE is not a readable .npz`, exit code 1",
    keeps="all results, last checkpoints; `ablate resume` trains the failed ones",
    codes=(1,),
    says="failed: .*data",
)
def spoil_data(scene: Scene) -> bool:
    file = scene.folder / "digits.npz"
    content = file.read_bytes()

    def spoilt(process: psutil.Process, trial: str) -> None:
        file.write_bytes(content[:1000])
        scene.later(60, lambda: _put_back(scene, content))
        process.kill()

    return _end_worker(scene, spoilt)


@fault("data set missing at the start", "between", sees="one message: data: no file ..., exit code 2", keeps="everything")
def miss_data(scene: Scene) -> bool:
    file = scene.folder / "digits.npz"
    aside = file.rename(scene.folder / "aside.npz")
    try:
        tried = subprocess.run(
            scene.command(*scene.words),
            cwd=scene.folder,
            env=scene.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        aside.rename(file)
    _one_message(scene, "data set missing at the start", tried, "no file")
    return True


@fault(
    "a worker hangs",
    "training",
    sees="a line: its worker was lost, after which epoch it goes on; the run goes on",
    keeps="all results, the trial's last checkpoint",
)
def hang(scene: Scene) -> bool:
    return _end_worker(scene, lambda process, trial: None)


@fault("the clock jumps", "training", sees="nothing", keeps="everything")
def jump(scene: Scene) -> bool:
    (scene.folder / "clock").write_text(str(scene.rng.choice((-1, 1)) * scene.rng.choice((40, 3600, 86_400, 40_000_000))))
    return True


@fault("two drivers on one study", "training", sees="the second: one message, exit code 2; the first goes on", keeps="everything")
def second_driver(scene: Scene) -> bool:
    if not scene.workers():
        return False
    words = scene.rng.choice((("run", "space.yaml"), ("resume",)))
    tried = subprocess.run(
        scene.command(*words), cwd=scene.folder, env=scene.environment(), capture_output=True, text=True, timeout=180, check=False
    )
    if not scene.alive:
        # The first had ended when the second came.
        return False
    _one_message(scene, "two drivers on one study", tried, "is writing to")
    return True


def _end_worker(scene: Scene, end: Callable[[psutil.Process, str], None]) -> bool:
    """Stops a worker, notes what its trial has on the disk, and ends it; a lost worker must be told."""
    found = scene.workers()
    if not found:
        return False
    process, trial = scene.rng.choice(found)
    with contextlib.suppress(psutil.Error), stopped(process):
        scene.note_floor(trial)
        open_ = scene.rows(
            "SELECT 1 FROM attempts JOIN trials ON hash = trial_hash WHERE trial_hash = ? AND pid = ? AND attempts.ended_at IS NULL"
            " AND trials.status = 'running'",
            trial,
            process.pid,
        )
        if open_:
            scene.ran.must_say.append(LOST_WORKER)
        end(process, trial)
        return True
    return False


def _damage(scene: Scene, damaged: Callable[[bytes], bytes]) -> bool:
    """Damages the checkpoint of a trial in training, and kills its worker, so that the next one reads it."""
    files = scene.checkpoints()
    found = [(process, trial) for process, trial in scene.workers() if trial in files]
    if not found:
        return False
    process, trial = scene.rng.choice(found)
    with contextlib.suppress(psutil.Error), stopped(process):
        file = files[trial]
        file.write_bytes(damaged(file.read_bytes()))
        scene.floors.pop(trial, None)
        process.kill()
        return True
    return False


def _fill(scene: Scene, left: int) -> bool:
    found = scene.workers()
    if not found:
        return False
    scene.disk.fill(left, [psutil.Process(scene.pid), *(process for process, _ in found)])
    scene.later(scene.rng.uniform(2, 5), scene.disk.free)
    return True


def _lock(scene: Scene, seconds: float) -> bool:
    """Another program holds the database file."""
    if not scene.workers():
        return False
    connection = sqlite3.connect(scene.runs / "ablate.db", timeout=2, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        connection.close()
        return False
    scene.later(seconds, connection.close)
    return True


def _lift(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.rlimit(psutil.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _put_back(scene: Scene, content: bytes) -> None:
    (scene.folder / "digits.npz").write_bytes(content)


def _one_message(scene: Scene, what: str, tried: subprocess.CompletedProcess[str], part: str) -> None:
    """A refused command ends with code 2 and one message."""
    lines = [line for line in tried.stderr.splitlines() if line.startswith("error: ")]
    if tried.returncode != 2 or len(lines) != 1 or part not in lines[0] or "Traceback" in tried.stderr:
        scene.problems.append(f"{what}: exit code {tried.returncode}, {tried.stderr[-1500:]}")
