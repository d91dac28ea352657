"""The lock of a SQLite store: one process writes, whatever name it opened the file by.

Two locks guard one store, both held by the kernel (`flock`) and freed when the process
ends, however it ends:

- `STORE.lock` beside the file that the path resolves to. It covers symbolic links, and several machines that share a
folder.
- a file named by device and inode in a folder of the user's own under the folder for temporary files. It covers hard
links and bind mounts, which resolve to different paths.

The database file itself is never opened here: closing any descriptor of it would drop
SQLite's own locks of this process, and another process could then take the log of a
store away under its writer.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import tempfile
from contextlib import closing
from pathlib import Path
from typing import IO
from urllib.parse import quote

from ablate.errors import StoreError


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
        raise StoreError(
            f"the store {file} cannot be made: {error.strerror}; use another --store or"
            " --runs"
        ) from None
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(
            f"{file} is not a regular file; name a store such as runs/ablate.db"
        )
    if not found.st_size:
        return
    # SQLite itself looks into the file: a descriptor of our own, when closed, would
    # drop SQLite's locks of this process.
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(file.resolve()))}?mode=ro", uri=True)
        ) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise StoreError(
                f"{file} is not a SQLite database; name a store such as runs/ablate.db"
            ) from None
        # Opening the store reports every other error.


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
            raise StoreError(
                f"the store {file} cannot be made: {error.strerror}; use another"
                " --store or --runs"
            ) from None
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
            raise StoreError(
                f"{holder} is writing to {file}; wait for it, end it, or use another"
                " --store"
            ) from None
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
    # Not TMPDIR, which two shells of one user may set differently.
    root = "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()
    folder = Path(root, f"ablate-locks-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise StoreError(
            f"{folder} belongs to another user, who must remove it: it keeps your"
            " stores from being locked"
        )
    identity = file.stat()
    return folder / f"{identity.st_dev:x}-{identity.st_ino:x}.lock"
