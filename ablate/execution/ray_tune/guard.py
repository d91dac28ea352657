"""Ends the driver cleanly if a part of Ray dies without which Ray would abort it.

What it guarantees: the user sees one line that says which part died and how to resume,
and the driver exits with code 2.

How: Ray's C++ code ends the process a moment after one of its agents died, and a minute
after its GCS died, with its own messages and exit code 1. The kernel reports the death
of a process at once through a pidfd, so this thread acts first.

What would break it: missing a part that Ray starts (see PARTS), or not closing the
guard before Ray is shut down, as the guard would take that for a death.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
RAYLET = "raylet"
PARTS = ("gcs_server", RAYLET, *AGENTS)
# The program, in both versions of the autoscaler.
AUTOSCALER = re.compile(r"/ray/autoscaler/.*monitor\.py$")
FIND_SECONDS = 0.5
# How long a killed process may take to end.
END_SECONDS = 5.0
# How long the driver may take to end cleanly after its raylet died.
GRACE_SECONDS = 30
EXIT_CODE = 2


class Guard:
    """Watches the parts of a local Ray from a thread.

    It runs from before the parts start until `close`.

    Args:
        message: returns the message about the parts of these names.
        before_end: called before the process ends.
    """

    def __init__(
        self, message: Callable[[Sequence[str]], str], before_end: Callable[[], None]
    ) -> None:
        self._message, self._before_end = message, before_end
        self._ended, self._wake = os.pipe()
        self._files: dict[int, str] = {}
        self._known: set[int] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="ray-guard", daemon=True
        )
        self._thread.start()

    def started(self) -> None:
        """Notes that Ray has started, so all its parts exist."""
        self._started.set()

    def close(self) -> None:
        """Stops watching: processes that end from now on were ended on purpose."""
        os.write(self._wake, b"c")
        self._thread.join()
        for file in (*self._files, self._ended, self._wake):
            os.close(file)

    def _watch(self) -> None:
        dead: set[int] = set()
        complete = False
        while not dead:
            if not complete:
                # Read the flag before searching: if it is set, this search finds every
                # part, and no further one is needed.
                complete = self._started.is_set()
                self._find()
            dead = self._ready(-1 if complete else FIND_SECONDS)
        if self._ended in dead:
            return
        names = [self._files[file] for file in (dead | self._ready(0)) - {self._ended}]
        # In these cases Ray raises a Python error, and the driver can end cleanly by
        # itself.
        gentle = RAYLET in names or not self._started.is_set()
        if gentle and self._closes_within(GRACE_SECONDS):
            return
        self._before_end()
        if sys.stderr.isatty():
            # A progress bar may have hidden the cursor; show it again.
            print("\x1b[?25h", end="", file=sys.stderr)
        # A raylet takes the other parts with it, and an agent the other agent.
        dead_parts = [RAYLET] if RAYLET in names else sorted(names)
        print(f"\nerror: {self._message(dead_parts)}", file=sys.stderr, flush=True)
        os._exit(EXIT_CODE)

    def _find(self) -> None:
        for pid, name in ray_parts().items():
            if pid not in self._known:
                self._known.add(pid)
                with contextlib.suppress(OSError):
                    self._files[os.pidfd_open(pid)] = name

    def _ready(self, seconds: float) -> set[int]:
        """Returns the watched files that are readable.

        A pidfd becomes readable when its process dies.
        """
        poll = select.poll()
        for file in (*self._files, self._ended):
            poll.register(file, select.POLLIN)
        return {file for file, _ in poll.poll(1000 * seconds if seconds >= 0 else None)}

    def _closes_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        return bool(poll.poll(1000 * seconds))


def end_autoscaler() -> None:
    """Ends the process that would add machines: a local Ray has only this one.

    It takes a share of a core while the run starts, and Ray waits a second for its end.
    """
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(AUTOSCALER.search(part) for part in process.cmdline()):
                process.kill()
                # Reaped here: until Ray ends, it would be listed as defunct.
                process.wait(END_SECONDS)


def ray_parts() -> dict[int, str]:
    """Returns the parts of this Ray whose death ends the driver, by process ID."""
    parts = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            program = Path((process.cmdline() or [process.name()])[0].strip()).name
            name = next((part for part in PARTS if part == program), "")
            if name:
                parts[process.pid] = name.removeprefix("ray::")
    return parts
