"""The lock of a SQLite store: one process writes, by whatever path it opened the file.

Two locks guard one store. The kernel holds both (`flock`) and frees them when the
process ends, for whatever reason:

- `STORE.lock` beside the file that the path resolves to. It covers symbolic links, and
  several machines that share a folder.
- A file named by device and inode, in a private folder of the user under the folder for
  temporary files. It covers hard links and bind mounts, which resolve to different
  paths.

This module never opens the database file itself. Closing any descriptor of it would
drop the locks that SQLite holds for this process, and another process could then remove
the log of the store while its writer still uses it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO
from urllib.parse import quote

from ablate.errors import StoreError
from ablate.text import advice
from ablate.text.advice import option

# How often, and after how long, a lock is tried again that a reader may be looking at.
LOOKS, LOOK_SECONDS = 4, 0.05


def check_file(file: Path) -> None:
    """Refuses a file that cannot be a store, before anything is created beside it.

    Raises:
        StoreError: the path is a device, a folder, a pipe, or a file of another kind.
    """
    try:
        state = file.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(
            f"the store {file} cannot be made: {error.strerror}; use another {option('store')} or"
            f" {option('runs')}"
        ) from None
    if not stat.S_ISREG(state.st_mode):
        raise StoreError(
            f"{file} is not a regular file; name a store such as runs/ablate.db"
        )
    if not state.st_size:
        return
    # SQLite checks the file itself: closing a descriptor of our own would drop the
    # locks that SQLite holds for this process.
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(file.resolve()))}?mode=ro", uri=True)
        ) as connection:
            connection.execute("PRAGMA schema_version")
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            tables = connection.execute(
                "SELECT 1 FROM sqlite_master LIMIT 1"
            ).fetchall()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise StoreError(
                f"{file} is not a SQLite database; name a store such as runs/ablate.db"
            ) from None
        # Opening the store reports every other error.
        return
    if mode == "wal" and not tables:
        raise StoreError(
            f"{file} has no tables: what was in it is in {file.name}-wal, and this file is"
            f" missing beside it; put it there, or remove {file} to begin with an empty"
            " store"
        )


class WriterLock:
    """Allows only one process to write to a SQLite store.

    Args:
        file: the database file, or None for a database server, which needs no lock.

    Raises:
        StoreError: another process holds the lock, or the lock cannot be made.
    """

    def __init__(self, file: Path | None) -> None:
        self._streams: list[IO[str]] = []
        self._file: Path | None = None
        self._identity = (0, 0)
        if file is None:
            return
        try:
            resolved = file.resolve()
            check_file(resolved)
            # The folder is private to the user; an existing folder keeps its mode.
            resolved.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take(resolved.with_name(resolved.name + ".lock"), file)
            # The second lock is named by the inode, which exists only with the file.
            # Two processes that create the store at once meet at the first lock.
            resolved.touch()
            _refuse_read_only(resolved)
            self._take(_identity_file(resolved), file)
            self._file = resolved
            self._identity = _identity(resolved)
        except OSError as error:
            self.release()
            done = "written to" if os.access(file, os.F_OK) else "made"
            raise StoreError(
                f"the store {file} cannot be {done}: {error.strerror}; use another"
                f" {option('store')} or {option('runs')}"
            ) from None
        except StoreError:
            self.release()
            raise

    def _take(self, lock: Path, file: Path) -> None:
        # Not "w", which would erase the holder's process ID before we know whether the
        # lock is ours.
        stream = lock.open("a+")
        try:
            _lock(stream)
        except BlockingIOError:
            stream.seek(0)
            holder = stream.read().strip() or "another process"
            stream.close()
            raise StoreError(
                f"{holder} is writing to {file}; wait until this process ends, stop"
                f" it, or use another {option('store')}"
            ) from None
        # The content is only for the message above; the kernel's lock decides.
        stream.truncate(0)
        stream.write(f"process {os.getpid()}")
        stream.flush()
        self._streams.append(stream)

    def check_place(self) -> None:
        """Raises StoreError if the file of the store is no longer where it was.

        What is written to a file that was removed ends with the process.
        """
        if self._file is None:
            return
        try:
            is_there = _identity(self._file) == self._identity
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise StoreError(
                f"the store {self._file} was removed, moved or replaced during the run,"
                " so the run stops; if you have it elsewhere, put it back, then go on"
                f" with: {advice.command('resume')}"
            )

    def release(self) -> None:
        """Lets other processes write."""
        # The lock files stay. If they were removed, a process that has opened one and a
        # process that creates a new one would each lock a file of their own.
        for stream in reversed(self._streams):
            stream.close()
        self._streams.clear()


def _lock(stream: IO[str]) -> None:
    """Takes the lock of an open file.

    Raises:
        BlockingIOError: another process holds it, and not only looks (`is_held`).
    """
    for _ in range(LOOKS):
        with suppress(BlockingIOError):
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(LOOK_SECONDS)
    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(file: Path) -> bool:
    """Whether a process writes to a store now."""
    resolved = file.resolve()
    try:
        stream = resolved.with_name(resolved.name + ".lock").open()
    except OSError:
        return False
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _refuse_read_only(file: Path) -> None:
    """Raises PermissionError for a file that SQLite would open for reading only."""
    if not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _identity(file: Path) -> tuple[int, int]:
    state = file.stat()
    return state.st_dev, state.st_ino


def _identity_file(file: Path) -> Path:
    """Returns the lock file of a device and inode, in a private folder of the user."""
    # TMPDIR is not used, because two shells of one user may set it differently and
    # would not see each other's locks.
    root = "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()
    folder = Path(root, f"ablate-locks-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    # `lstat`, as another user may have put a symbolic link in this place.
    state = folder.lstat()
    if state.st_uid != os.getuid() or not stat.S_ISDIR(state.st_mode):
        raise StoreError(
            f"{folder} is not a folder of yours, so no store can be locked; remove it,"
            " or ask its owner to remove it"
        )
    device, inode = _identity(file)
    return folder / f"{device:x}-{inode:x}.lock"
