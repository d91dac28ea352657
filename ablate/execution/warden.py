"""Cleans up after a driver that died: a small separate process.

What it guarantees: after a driver was killed, no process and no temporary file of its
run is left, and the user reads how to resume. Without it, Ray's agents outlive a killed
driver for a minute or longer.

How: the warden holds one end of a pipe. When the driver dies, for whatever reason, the
kernel closes the other end. The warden then kills every process that carries the
run's mark in its environment, removes the run's folder, and prints the next command. A
driver that ends cleanly writes to the pipe first.

What would break it: a child of the driver that inherits the write end of the pipe and
outlives it. Run as a script, this file imports only the standard library, so that it
starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# This variable names the run's folder in the environment of every process of a run. The
# driver itself does not have it: a user's notebook starts programs of its own.
MARK = "ABLATE_RUN_FOLDER"
PREFIX = "ablate-run-"
# The file in the folder that its driver keeps locked.
OWNED = "owned"
CLOSED, SAID = b"c", b"s"
DIED = (
    "The run ended without notice: it was killed, or memory ran out. Nothing stored is"
    " lost. Go on with: "
)
# The longest path of a Unix socket, in bytes; Ray's own part of it takes about 65.
LONGEST_SOCKET = 107


class Warden:
    """Makes the private folder of a run and watches over the processes that use it.

    Args:
        advice: the command that resumes the run.

    Attributes:
        folder: where Ray keeps its session; only this user can enter the folder above
            it.
        mark: what the environment of the run's processes must have.
    """

    def __init__(self, advice: str) -> None:
        remove_dead_folders()
        self._private = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_short_folder()))
        # Held as long as this process lives, however it ends.
        self._owned = (self._private / OWNED).open("w")
        fcntl.flock(self._owned, fcntl.LOCK_EX)
        # Ray makes the folder that it receives accessible to every user, so this one
        # lies in a private folder.
        self.folder = self._private / "r"
        self.mark = {MARK: str(self._private)}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(self._private), DIED + advice],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    @contextlib.contextmanager
    def marking(self) -> Iterator[None]:
        """Marks the processes that this one starts meanwhile."""
        os.environ.update(self.mark)
        try:
            yield
        finally:
            os.environ.pop(MARK, None)

    def said(self) -> None:
        """Notes that the user already knows why the driver is about to end."""
        self._write(SAID)

    def close(self) -> None:
        """Ends the warden after the run has ended, and removes its folder."""
        self._write(CLOSED)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        # If the warden was killed.
        shutil.rmtree(self._private, ignore_errors=True)
        self._owned.close()

    def _write(self, word: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(word)
            self._process.stdin.flush()


def _short_folder() -> str | None:
    """Returns a temporary folder with a short path; None for the default.

    The path of a socket in it must fit into LONGEST_SOCKET bytes.
    """
    usual = tempfile.gettempdir()
    if len(usual) + len(PREFIX) + 75 < LONGEST_SOCKET:
        return None
    return "/tmp"


def remove_dead_folders() -> None:
    """Ends and removes what earlier runs of this user have left.

    A driver and its warden may both have been killed.
    """
    for parent in {tempfile.gettempdir(), "/tmp"}:
        for folder in Path(parent).glob(f"{PREFIX}*"):
            # Another user's, or one that its driver still owns.
            with contextlib.suppress(OSError):
                _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    status = folder.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
        return
    with (folder / OWNED).open("r+") as owned:
        fcntl.flock(owned, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _kill(str(folder), spared=0)
        shutil.rmtree(folder, ignore_errors=True)


def belonging(private: str) -> list[int]:
    """Returns the other processes of a driver's run.

    They carry its mark, or have a file of its folder open. The second test finds
    processes that have set their title, as Ray's agents do: the title overwrites the
    environment.
    """
    mark = f"{MARK}={private}".encode()
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid != os.getpid() and (
            _has_mark(entry, mark) or _has_open(entry, f"{private}/")
        ):
            processes.append(pid)
    return processes


def _has_mark(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _has_open(entry: Path, private: str) -> bool:
    try:
        return any(
            os.readlink(file).startswith(private) for file in (entry / "fd").iterdir()
        )
    except OSError:
        return False


def _kill(private: str, spared: int) -> None:
    """Kills what a driver left behind, except one process.

    It repeats, because a dying process may still have started another one.
    """
    for _ in range(20):
        left = [pid for pid in belonging(private) if pid != spared]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def main(private: str, message: str) -> None:
    """Waits for the end of the driver, and prints `message` if the driver could not."""
    # It ends with the driver, and not before it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    words = b""
    while True:
        word = os.read(0, 1)
        if not word:
            break
        words += word
    # Also after a clean end, when a program that a trial has started may still run. The
    # driver lives then: it is the parent of this process, and may hold a file of Ray.
    _kill(private, spared=os.getppid() if CLOSED in words else 0)
    if not {*CLOSED, *SAID} & {*words}:
        with contextlib.suppress(OSError):
            os.write(2, f"{message}\n".encode())
    shutil.rmtree(private, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
