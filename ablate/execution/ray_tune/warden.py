"""Cleans up after a local Ray whose driver died: a small process of its own, which
outlives the driver by a second.

Ray's agents outlive a driver that was killed, for a minute and longer. The warden holds
one end of a pipe. When the driver dies, however it dies, the kernel closes the other
end; the warden then kills every process that carries the driver's mark in its
environment, removes Ray's folder, and says what to type next. A driver that ends in
order says so first.

Run as a script, this file imports the standard library only, so that it starts in
milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Names Ray's folder in the environment of every process that a driver starts.
MARK = "ABLATE_RAY_FOLDER"
PREFIX = "ablate-ray-"
CLOSED, SAID = b"c", b"s"
DIED = (
    "The run ended without notice: it was killed, or memory ran out. Nothing stored is"
    " lost. Go on with: "
)
# Bytes of a Unix socket's path; Ray's own part of it takes about 65.
LONGEST_SOCKET = 107


class Warden:
    """Makes Ray's private folder and watches over the processes that use it.

    Args:
        advice: the command that goes on with the run.

    Attributes:
        folder: where Ray keeps its session; only this user can enter the folder above
            it.
    """

    def __init__(self, advice: str) -> None:
        self._private = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_short_folder()))
        # Ray gives everybody the right to enter the folder that it is given: this one
        # lies in a private one.
        self.folder = self._private / "r"
        os.environ[MARK] = str(self._private)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(self._private), DIED + advice],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def said(self) -> None:
        """Notes that the user has been told why the driver is about to end."""
        self._write(SAID)

    def close(self) -> None:
        """Ends the warden after Ray was shut down, and removes Ray's folder."""
        os.environ.pop(MARK, None)
        self._write(CLOSED)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _write(self, word: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(word)
            self._process.stdin.flush()


def _short_folder() -> str | None:
    """A folder for temporary files in which the path of a socket has room; None for the
    usual one.
    """
    usual = tempfile.gettempdir()
    if len(usual) + len(PREFIX) + 75 < LONGEST_SOCKET:
        return None
    return "/tmp"


def belonging(private: str) -> list[int]:
    """Processes of a driver's Ray, other than this one: they carry its mark, or have a
    file of its folder open.

    A process that has set its title, as Ray's agents do, has lost its environment to
    the title.
    """
    mark = f"{MARK}={private}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid != os.getpid() and (
            _has_mark(entry, mark) or _has_open(entry, f"{private}/")
        ):
            found.append(pid)
    return found


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


def _kill(private: str) -> None:
    """Kills what a driver left behind; again, because a dying process may still have
    started another.
    """
    for _ in range(20):
        left = belonging(private)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def main(private: str, message: str) -> None:
    """Waits for the driver's end, and says `message` where the driver could not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    words = b""
    while True:
        word = os.read(0, 1)
        if not word:
            break
        words += word
    if CLOSED not in words:
        _kill(private)
        if SAID not in words:
            with contextlib.suppress(OSError):
                os.write(2, f"{message}\n".encode())
    shutil.rmtree(private, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
