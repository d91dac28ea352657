"""The lock of a SQLite store: one process writes, whatever name it opened the file by.

Two locks guard one store, both held by the kernel (`flock`) and freed when the process ends, however it ends:

- `STORE.lock` beside the file that the path resolves to. It covers symbolic links, and several machines that share a
  folder.
- a file named by device and inode in a folder of the user's own under the folder for temporary files. It covers hard
  links and bind mounts, which resolve to different paths.

The database file itself is not locked: closing any descriptor of it would drop SQLite's own locks of this process.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import IO

from ablate.errors import StoreError

SQLITE_MAGIC = b"SQLite format 3\0"


def check_file(file: Path) -> None:
    """Refuses what cannot be a store before anything is created beside it.

    Raises:
        StoreError: the path is a device, a folder, a pipe, or a file of another kind.
    """
    try:
        found = file.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"the store {file} cannot be made: {error.strerror}; use another --store or --runs") from None
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{file} is not a regular file; name a store such as runs/ablate.db")
    if not found.st_size:
        return
    try:
        with file.open("rb") as stream:
            head = stream.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise StoreError(f"the store {file} cannot be opened: {error.strerror}; name another with --store") from None
    if head != SQLITE_MAGIC:
        raise StoreError(f"{file} is not a SQLite database; name a store such as runs/ablate.db")


class WriterLock:
    """Only one process writes to a SQLite store.

    Args:
        file: the database file, or None for a database server, which needs no lock.

    Raises:
        StoreError: another process holds the lock, or the lock cannot be made.
    """

    def __init__(self, file: Path | None) -> None:
        self._streams: list[IO[str]] = []
        if file is None:
            return
        try:
            resolved = file.resolve()
            check_file(resolved)
            # Private to the user: a folder that already exists keeps its mode.
            resolved.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take(resolved.with_name(resolved.name + ".lock"), file)
            resolved.touch()
            self._take(_identity_file(resolved), file)
        except OSError as error:
            self.release()
            raise StoreError(f"the store {file} cannot be made: {error.strerror}; use another --store or --runs") from None
        except StoreError:
            self.release()
            raise

    def _take(self, lock: Path, file: Path) -> None:
        stream = lock.open("a+")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.seek(0)
            holder = stream.read().strip() or "another process"
            stream.close()
            raise StoreError(f"{holder} is writing to {file}; wait for it, end it, or use another --store") from None
        stream.truncate(0)
        stream.write(f"process {os.getpid()}")
        stream.flush()
        self._streams.append(stream)

    def release(self) -> None:
        """Lets other processes write."""
        for stream in reversed(self._streams):
            stream.close()
        self._streams.clear()


def _identity_file(file: Path) -> Path:
    """The lock file of a device and inode, in a folder that only this user can enter."""
    folder = Path(tempfile.gettempdir(), f"ablate-locks-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise StoreError(f"{folder} belongs to another user; set TMPDIR to a folder of your own")
    identity = file.stat()
    return folder / f"{identity.st_dev:x}-{identity.st_ino:x}.lock"
