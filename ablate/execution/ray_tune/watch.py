"""Looks after what nobody else tells of: a worker that hangs, and a part of Ray that
died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import ray

from ablate import advice
from ablate.environment import seconds
from ablate.errors import ExecutorError

if TYPE_CHECKING:
    from ray.tune.experiment import Trial as TuneTrial

# A running trial that gives no sign of life for so long has its worker killed, and goes
# on from its checkpoint; 0: never.
#
# A sign of life is each batch, not each epoch: an epoch may take as long as it likes.
HANG_SECONDS = seconds("ABLATE_HANG_SECONDS", 1800, or_never=True)
LOOK_SECONDS = 1.0
ESSENTIAL = ("raylet", "gcs_server")


class Watch:
    """Looks, once in a while, at the workers of the running trials and at Ray's own
    processes.

    Args:
        patience: seconds without a sign of life; 0 for workers on other machines, which
            cannot be seen from here.
    """

    def __init__(self, patience: float = HANG_SECONDS) -> None:
        self._patience = patience
        self._folders: dict[str, Path] = {}
        self._looked = 0.0
        # By trial: its last sign of life, and when it was first seen, by a clock that
        # nobody sets.
        self._signs: dict[str, tuple[int, float]] = {}

    def look(self, trials: list[TuneTrial]) -> None:
        """Kills hanging workers.

        Raises ExecutorError where Ray itself has lost a part.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        for name in dead_parts():
            raise ExecutorError(died(name))
        running = {
            str(trial.config["trial"]): trial
            for trial in trials
            if trial.status == "RUNNING"
        }
        for key in self.silent(list(running), now):
            _kill_worker(running[key])

    def follow(self, key: str, checkpoints: str) -> None:
        """Takes note of where a trial's worker touches a lock as a sign of life.

        At a URL it cannot, and is not watched.
        """
        if "://" not in checkpoints:
            self._folders[key] = Path(checkpoints, key)

    def told(self, key: str) -> None:
        """A trial told something: a sign of life as well."""
        self._signs.pop(key, None)

    def silent(self, running: list[str], now: float) -> list[str]:
        """Those of the running trials that have given no sign of life for too long."""
        self._signs = {key: seen for key, seen in self._signs.items() if key in running}
        found = []
        for key in filter(self._folders.__contains__, running):
            sign = self._sign(key)
            if self._signs.get(key, (None, 0.0))[0] != sign:
                self._signs[key] = (sign, now)
            elif self._patience and now - self._signs[key][1] > self._patience:
                found.append(key)
                # The next worker has its own time.
                del self._signs[key]
        return found

    def _sign(self, key: str) -> int:
        try:
            return (self._folders[key] / "lock").stat().st_mtime_ns
        except OSError:
            return 0


def died(name: str) -> str:
    """What to say where a process of Ray has died."""
    return (
        f"Ray's process {name} has died, by a kill or for want of memory; nothing"
        f" stored is lost. Go on with: {advice.command('resume')}"
    )


def dead_parts() -> list[str]:
    """Processes of this machine's Ray without which no worker can be started, and which
    have died.
    """
    node = getattr(ray._private.worker, "_global_node", None)
    if node is not None:
        return [name for name, _ in node.dead_processes() if name in ESSENTIAL]
    return []


def _kill_worker(trial: TuneTrial) -> None:
    """Kills the process in which a trial runs; Tune then starts the trial again."""
    actor = trial.temporary_state.ray_actor
    if actor is None:
        return
    # Ray's own way asks the process, and one that hangs does not answer.
    pid = ray._private.state.actors(actor._actor_id.hex()).get("Pid")
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
