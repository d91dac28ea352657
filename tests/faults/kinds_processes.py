"""Faults of processes: killed, interrupted, hanging, started twice, out of memory, with
a wrong clock.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Callable

import psutil

from tests.faults.fault import fault, on_postgresql, on_sqlite, one_message
from tests.faults.scene import HANG_SECONDS, Scene, stopped
from tests.store.postgres import restart


@fault(
    "SIGTERM",
    "any",
    sees="`Interrupted: n of m trials done. Go on with: ...`, exit code 130; if"
    " `ablate` is still loading, no message and exit code 143",
    keeps="every reported epoch",
    codes=(130, -15),
    says="Go on with: ablate resume|interrupted",
)
def terminate(scene: Scene) -> bool:
    assert scene.driver is not None
    scene.driver.send_signal(signal.SIGTERM)
    return True


@fault(
    "SIGTERM to all processes",
    "any",
    sees="as after SIGTERM to the driver alone",
    keeps="every reported epoch",
    codes=(130, -15),
    says="Go on with: ablate resume|interrupted",
)
def terminate_all(scene: Scene) -> bool:
    """As SLURM signals a job: the group first, then every process below the driver."""
    assert scene.driver is not None
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(scene.pid).children(recursive=True)
        os.killpg(scene.pid, signal.SIGTERM)
        for process in below:
            with contextlib.suppress(psutil.Error):
                # A second signal to the driver's group would end it at once.
                if os.getpgid(process.pid) != scene.pid:
                    process.send_signal(signal.SIGTERM)
    return True


@fault(
    "database restarted",
    "training",
    sees="nothing: the run waits",
    keeps="everything",
    possible=on_postgresql,
)
def restart_database(scene: Scene) -> bool:
    restart(scene.store.url(scene.folder), scene.rng.choice(("fast", "immediate")), 0.2)
    return True


@fault(
    "Ctrl-C",
    "any",
    sees="`Interrupted: n of m trials done. Go on with: ...`, exit code 130; if"
    " `ablate` is still loading, only `interrupted`",
    keeps="every reported epoch",
    codes=(130, -2),
    says="Go on with: ablate resume|interrupted",
)
def interrupt(scene: Scene) -> bool:
    os.killpg(scene.pid, signal.SIGINT)
    return True


@fault(
    "out of memory in a trial",
    "training",
    sees="either `failed: ... MemoryError` and exit code 1, or one line: the worker"
    " was lost",
    keeps="all results, last checkpoints; `ablate resume` continues the trial",
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
    "a worker hangs",
    "training",
    sees=(
        "one line: the worker was lost, and the epoch to continue from; the run"
        " continues"
    ),
    keeps="all results, the trial's last checkpoint",
    possible=lambda scene: scene.patience == HANG_SECONDS,
)
def hang(scene: Scene) -> bool:
    return end_worker(scene, lambda process, trial: None)


@fault("the clock jumps", "training", sees="nothing", keeps="everything")
def jump(scene: Scene) -> bool:
    (scene.folder / "clock").write_text(
        str(
            scene.rng.choice((-1, 1)) * scene.rng.choice((40, 3600, 86_400, 40_000_000))
        )
    )
    return True


@fault(
    "two drivers on one study",
    "training",
    sees="the second driver: one message, exit code 2; the first continues",
    keeps="everything",
    possible=on_sqlite,
)
def second_driver(scene: Scene) -> bool:
    if not scene.workers():
        return False
    words = scene.rng.choice((("run", "space.yaml"), ("resume",)))
    tried = subprocess.run(
        scene.command(*words),
        cwd=scene.folder,
        env=scene.environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if not scene.alive:
        # The first had ended when the second came.
        return False
    if tried.returncode == 0 and ", 0 to train" in tried.stderr:
        # The first had stored its last result and released the store; its process was
        # about to end.
        return False
    # Or it is told of the data first, if those are spoilt just then.
    one_message(
        scene, "two drivers on one study", tried, "is writing to|is not a readable"
    )
    return True


def end_worker(scene: Scene, end: Callable[[psutil.Process, str], None]) -> bool:
    """Stops a worker, notes what its trial has on the disk, and ends it."""
    found = scene.workers()
    if not found:
        return False
    process, trial = scene.rng.choice(found)
    with contextlib.suppress(psutil.Error), stopped(process):
        scene.note_floor(trial, process.pid)
        end(process, trial)
        return True
    return False


def _lift(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.rlimit(
            psutil.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
