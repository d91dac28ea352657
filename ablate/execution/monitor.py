"""Detects workers that hang.

What it guarantees: a trial without a sign of life for HANG_SECONDS is found, so that
its worker can be killed and the trial starts again from the checkpoint.

How: a worker touches the lock file of its trial after a batch (at most once a second),
and the driver compares the file's modification time with its own monotonic clock.

What would break it: comparing the modification time with a wall clock (the clocks of
two machines differ), or a training step that takes longer than HANG_SECONDS without
touching the lock.
"""

from __future__ import annotations

import time
from pathlib import Path

from ablate.machine.environment import seconds

# If a running trial gives no sign of life for this long, its worker is killed and the
# trial resumes from its checkpoint; 0 means never.
#
# Each batch is a sign of life, so an epoch may take any time.
HANG_SECONDS = seconds("ABLATE_HANG_SECONDS", 1800, or_never=True)
# How long a worker may take to begin: on a busy machine, a new nursery imports torch for
# minutes.
BEGIN_SECONDS = seconds("ABLATE_RAY_START_SECONDS", 600)
CHECK_SECONDS = 1.0


class Monitor:
    """Checks the workers of running trials at intervals.

    Args:
        patience: seconds without a sign of life; 0 for workers on other machines, whose
            lock files may not be visible here.
    """

    def __init__(self, patience: float = HANG_SECONDS) -> None:
        self._patience = patience
        self._folders: dict[str, Path] = {}
        self._checked_at = 0.0
        # By trial: its last sign of life, and when it was first seen, by a monotonic
        # clock.
        self._signs: dict[str, tuple[int, float]] = {}
        # Trials whose worker has given no sign of life since they were handed out.
        self._begins: set[str] = set()

    def check(self, running: list[str]) -> list[str]:
        """Returns the running trials that hang; nothing if it looked a moment ago."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_SECONDS:
            return []
        self._checked_at = now
        return self.silent(running, now)

    def follow(self, key: str, checkpoints: str) -> None:
        """Records where the worker of a trial touches its lock as a sign of life.

        A worker cannot touch a lock at a URL, so such trials are not watched.
        """
        self._signs.pop(key, None)
        self._begins.add(key)
        if "://" not in checkpoints:
            self._folders[key] = Path(checkpoints, key)

    def told(self, key: str) -> None:
        """Records that a trial sent an event, which is a sign of life too."""
        self._signs.pop(key, None)
        self._begins.discard(key)

    def silent(self, running: list[str], now: float) -> list[str]:
        """Returns the running trials that have given no sign of life for too long."""
        self._signs = {key: seen for key, seen in self._signs.items() if key in running}
        keys = []
        for key in filter(self._folders.__contains__, running):
            sign = self._sign(key)
            if key not in self._signs:
                self._signs[key] = (sign, now)
            elif self._signs[key][0] != sign:
                self._signs[key] = (sign, now)
                self._begins.discard(key)
            elif self._patience and now - self._signs[key][1] > self._patience_for(key):
                keys.append(key)
                # The next worker of this trial gets the full time again.
                del self._signs[key]
        return keys

    def _patience_for(self, key: str) -> float:
        if key in self._begins:
            return max(self._patience, BEGIN_SECONDS)
        return self._patience

    def _sign(self, key: str) -> int:
        try:
            return (self._folders[key] / "lock").stat().st_mtime_ns
        except OSError:
            return 0
