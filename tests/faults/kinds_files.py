"""Faults of files: a full disk, damaged checkpoints, a locked database, a moved folder,
missing data.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Callable

import psutil

from tests.faults.disk import CHECKPOINT_ROOM
from tests.faults.fault import fault, on_sqlite, one_message
from tests.faults.kinds_processes import end_worker
from tests.faults.scene import BUSY_SECONDS, Scene, stopped

# What is left of a data set that no worker can read.
SPOILT_BYTES = 1000


@fault(
    "disk full: checkpoints",
    "training",
    sees=(
        "`failed: ... no checkpoint can be written ...: No space left on device`, exit"
        " code 1"
    ),
    keeps="all results, last checkpoints; `ablate resume` continues the failed trials",
    codes=(1, 2),
    says="no checkpoint can be written|No space|File too large|cannot be written",
)
def fill_for_checkpoints(scene: Scene) -> bool:
    return _fill(scene, CHECKPOINT_ROOM)


@fault(
    "disk full: database",
    "training",
    sees=(
        "one message: the store cannot be written to, why, and what to do; exit code 2"
    ),
    keeps="everything stored so far, last checkpoints",
    codes=(1, 2),
    says="cannot be written|No space|File too large",
    possible=on_sqlite,
)
def fill_for_database(scene: Scene) -> bool:
    return _fill(scene, 0)


@fault(
    "checkpoint truncated",
    "training",
    sees="nothing; only time is lost",
    keeps="all results; the file is set aside and the trial starts again",
)
def truncate(scene: Scene) -> bool:
    return _damage(
        scene, lambda content: content[: scene.rng.randrange(1, len(content))]
    )


@fault(
    "checkpoint empty",
    "training",
    sees="nothing; only time is lost",
    keeps="all results; the file is set aside and the trial starts again",
)
def empty(scene: Scene) -> bool:
    return _damage(scene, lambda content: b"")


@fault(
    "checkpoint with a flipped bit",
    "training",
    sees="nothing; only time is lost",
    keeps="all results; the file is set aside and the trial starts again",
)
def flip(scene: Scene) -> bool:
    def flipped(content: bytes) -> bytes:
        at = scene.rng.randrange(len(content))
        return (
            content[:at]
            + bytes([content[at] ^ 1 << scene.rng.randrange(8)])
            + content[at + 1 :]
        )

    return _damage(scene, flipped)


@fault(
    "database locked for a moment",
    "training",
    sees="nothing: the run waits",
    keeps="everything",
    possible=on_sqlite,
)
def lock_shortly(scene: Scene) -> bool:
    return _lock(scene, scene.rng.uniform(0.2, BUSY_SECONDS / 3))


@fault(
    "database locked for long",
    "training",
    sees="one message: the store is locked, and what to do; exit code 2",
    keeps="everything stored so far, last checkpoints",
    codes=(2,),
    says="locked",
    possible=on_sqlite,
)
def lock_long(scene: Scene) -> bool:
    return _lock(scene, 8 * BUSY_SECONDS)


@fault(
    "run folder moved between runs",
    "between",
    sees="nothing; continue with `ablate resume --runs NEW`",
    keeps="everything",
)
def move(scene: Scene) -> bool:
    if not scene.runs.is_dir():
        return False
    target = scene.disk.folder / f"runs-{len(list(scene.disk.folder.iterdir()))}"
    scene.runs = scene.runs.rename(target)
    return True


@fault(
    "run folder moved while in use",
    "training",
    sees=(
        "one message: the store was removed, moved or replaced, and what to do; exit"
        " code 2"
    ),
    keeps="everything stored so far, last checkpoints",
    codes=(1, 2),
    says="removed, moved or replaced|cannot be written|No such file",
)
def move_in_use(scene: Scene) -> bool:
    return bool(scene.workers()) and move(scene)


@fault(
    "data set unreadable for a worker",
    "training",
    sees="`failed: ... data: FILE is not a readable .npz`, exit code 1",
    keeps="all results, last checkpoints; `ablate resume` trains the failed trials",
    codes=(1,),
    says="failed: .*data",
)
def spoil_data(scene: Scene) -> bool:
    file = scene.folder / "digits.npz"
    content = file.read_bytes()
    if len(content) <= SPOILT_BYTES:
        # The same fault came shortly before, and what it spoilt is not put back yet.
        return False

    def spoilt(process: psutil.Process, trial: str) -> None:
        file.write_bytes(content[:SPOILT_BYTES])
        scene.later(60, lambda: _put_back(scene, content))
        process.kill()

    return end_worker(scene, spoilt)


@fault(
    "data set missing at the start",
    "between",
    sees="one message: data: no file ..., exit code 2",
    keeps="everything",
)
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
    one_message(scene, "data set missing at the start", tried, "no file")
    return True


def _damage(scene: Scene, damaged: Callable[[bytes], bytes]) -> bool:
    """Damages the checkpoint of a trial in training, and kills its worker, so that the
    next one reads it.
    """
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
    scene.disk.fill(
        left, [psutil.Process(scene.pid), *(process for process, _ in found)]
    )
    scene.later(scene.rng.uniform(2, 5), scene.disk.free)
    return True


def _lock(scene: Scene, seconds: float) -> bool:
    """Another program holds the database file."""
    if not scene.workers():
        return False
    connection = sqlite3.connect(scene.url, timeout=2, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        connection.close()
        return False
    scene.later(seconds, connection.close)
    return True


def _put_back(scene: Scene, content: bytes) -> None:
    (scene.folder / "digits.npz").write_bytes(content)
