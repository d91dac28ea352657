"""Keeps what a trial prints: one file per trial, which `ablate logs` shows.

What it guarantees: what a trial printed before it was killed is in its log. A log that
cannot be written stops no training. Secrets are masked (`text.masking`).

How: in a worker, the file takes the place of standard output and standard error, so
libraries in C and processes that the trial starts write to it, too. What they write is
masked when the log is closed; what Python prints, at once.

What would break it: a process that truncates the file and does not append to it. Where
the disk is full, a process that a trial starts finds that its output cannot be written.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from ablate.records import Epoch
from ablate.text.masking import masked

# A log that is longer than MOST_BYTES keeps its last KEPT_BYTES. A thread looks at it
# every few seconds.
MOST_BYTES = 10_000_000
KEPT_BYTES = 5_000_000
LOOK_SECONDS = 2.0
_OUTPUTS = (1, 2)


class TrialLog:
    """The log of one trial.

    Args:
        path: the file; it is appended to. Empty: nothing is kept.
        captures: whether standard output and standard error of this process go to the
            file until the log is closed.
    """

    def __init__(self, path: str, *, captures: bool = False) -> None:
        self._file: int | None = None
        # A thread that reads a command's output may write while the log is closed. The
        # number of the file may then be that of another file.
        self._lock = threading.Lock()
        self._captures = captures
        self._closed = threading.Event()
        if not path:
            return
        # A log that cannot be written stops no training.
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
            # For reading, too: `trim` reads its end. A link could lead to any file.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            self._file = os.open(path, flags, 0o600)
        if self._file is not None and captures:
            _point_outputs_to(self._file)
            threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, host: str, device: str) -> None:
        """Writes a heading: where and when an attempt begins."""
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        self.write(
            f"--- {now} UTC: begins on {host} ({device}), process {os.getpid()} ---\n"
        )

    def write(self, text: str) -> None:
        """Appends text."""
        with self._lock, contextlib.suppress(OSError):
            if self._file is not None:
                os.write(self._file, masked(text).encode(errors="backslashreplace"))

    def _watch(self) -> None:
        """Trims the log until it is closed: an epoch may print without end."""
        while not self._closed.wait(LOOK_SECONDS):
            self.trim()

    def trim(self) -> None:
        """Removes the beginning of a log that has become too long."""
        with self._lock, contextlib.suppress(OSError):
            if self._file is None:
                return
            size = os.fstat(self._file).st_size
            if size <= MOST_BYTES:
                return
            kept = os.pread(self._file, KEPT_BYTES, size - KEPT_BYTES)
            removed = size - len(kept)
            # Another process that writes now appends, so at most some of its text is lost.
            os.ftruncate(self._file, 0)
            os.write(
                self._file, b"--- %d bytes before this are not kept ---\n" % removed
            )
            os.write(self._file, kept)

    def close(self) -> None:
        """Closes the file. What is printed afterwards is not kept."""
        with self._lock:
            if self._file is None:
                return
            if self._captures:
                self._closed.set()
                with contextlib.suppress(OSError):
                    _mask(self._file)
                nowhere = os.open(os.devnull, os.O_WRONLY)
                _point_outputs_to(nowhere)
                os.close(nowhere)
            os.close(self._file)
            self._file = None


def epoch_line(epoch: Epoch) -> str:
    """What is printed after an epoch: its metrics and its seconds."""
    return f"epoch {epoch.number}: {_text(epoch.metrics)} ({epoch.seconds:.1f} s)"


def _text(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())


def _mask(file: int) -> None:
    """Masks what a library in C or another process has written."""
    size = os.fstat(file).st_size
    if size > MOST_BYTES:
        return
    text = os.pread(file, size, 0)
    clean = _masked(text)
    if clean != text:
        os.ftruncate(file, 0)
        os.write(file, clean)


def _masked(text: bytes) -> bytes:
    return masked(text.decode(errors="surrogateescape")).encode(
        errors="surrogateescape"
    )


class _Output(io.FileIO):
    """Standard output or error of a trial, which a full disk does not end."""

    def write(self, text: Any) -> int:
        """Writes bytes without their secrets.

        Returns the number of bytes of the text, although fewer may be written.
        """
        with contextlib.suppress(OSError):
            super().write(_masked(bytes(text)))
        return len(text)


def _point_outputs_to(file: int) -> None:
    for output, name in zip(_OUTPUTS, ("stdout", "stderr"), strict=True):
        stream = getattr(sys, name)
        # A replaced stream, such as that of a test, is left as it is.
        if not isinstance(stream, io.TextIOWrapper):
            continue
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
        if not isinstance(getattr(stream.buffer, "raw", None), _Output):
            # What a killed process has printed must be in the file.
            patient = io.TextIOWrapper(
                io.BufferedWriter(_Output(output, "w", closefd=False)),
                encoding=stream.encoding,
                errors="backslashreplace",
                line_buffering=True,
            )
            setattr(sys, name, patient)
    for output in _OUTPUTS:
        os.dup2(file, output)
