"""A disk that can be filled: a small file system of its own where that may be mounted,
else a limit on the size of files.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import psutil

MEGABYTES = 24
# Bytes that are left where checkpoints are not to fit any more, but rows of the
# database may.
CHECKPOINT_ROOM = 24 * 1024


@cache
def mountable() -> str:
    """Why no file system can be mounted here; nothing where it can."""
    if os.geteuid() != 0:
        return "not root"
    with tempfile.TemporaryDirectory(prefix="ablate-probe-") as probe:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", probe],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            return made.stderr.strip() or "mount failed"
        subprocess.run(["umount", probe], check=True)
    return ""


def how() -> str:
    """How a full disk is made here, for the report."""
    reason = mountable()
    if reason:
        return (
            "RLIMIT_FSIZE lowered from outside on the driver and its workers (no tmpfs"
            f" can be mounted here: {reason})"
        )
    return f"the run folders are on a tmpfs of {MEGABYTES} MB, which another file fills"


class Disk:
    """Where the run folders of one study stand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._mounted = not mountable()
        self._limited: list[psutil.Process] = []
        if self._mounted:
            size = f"size={MEGABYTES}m"
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)],
                check=True,
                capture_output=True,
            )

    def fill(self, left: int, processes: list[psutil.Process]) -> None:
        """Leaves so many bytes of room."""
        if not self._mounted:
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    process.rlimit(psutil.RLIMIT_FSIZE, (left, resource.RLIM_INFINITY))
                    self._limited.append(process)
            return
        # Without a buffer, which would hold what does not fit and try again.
        with (self.folder / "filler").open("wb", buffering=0) as filler:
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(64 * 1024))
            filler.truncate(max(0, filler.seek(0, os.SEEK_END) - left))

    def free(self) -> None:
        """There is room again."""
        (self.folder / "filler").unlink(missing_ok=True)
        for process in self._limited:
            with contextlib.suppress(psutil.Error):
                process.rlimit(
                    psutil.RLIMIT_FSIZE,
                    (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
                )
        self._limited = []

    def close(self) -> None:
        """Unmounts it."""
        if self._mounted:
            subprocess.run(
                ["umount", "-l", str(self.folder)], check=False, capture_output=True
            )
