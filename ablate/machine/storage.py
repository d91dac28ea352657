"""The place of a checkpoint: a folder, or any URL of fsspec that a cluster shares."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from ablate.errors import CheckpointError, TrialBusy
from ablate.machine.filesystems import OBJECT_STORES, system_of
from ablate.text.advice import option

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

NAME = "last.pt"


class Storage(Protocol):
    """A file that is replaced in one step.

    `name` is the file's path or URL. `beat` gives a sign of life, if another process
    can see it. `writing` gives a local path to write to, and replaces the file with it
    if the block ends without an error. `reading` gives a local path to read, or None if
    there is no file.
    """

    name: str

    def hold(self, trial: str, seconds: float) -> None: ...

    def release(self) -> None: ...

    def beat(self) -> None: ...

    def exists(self) -> bool: ...

    def writing(self) -> contextlib.AbstractContextManager[Path]: ...

    def reading(self) -> contextlib.AbstractContextManager[Path | None]: ...

    def set_aside(self) -> None: ...


class Folder:
    """A folder on this machine, or one that it mounts."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / NAME
        self._lock: TextIO | None = None
        self.name = str(self._file)

    def hold(self, trial: str, seconds: float) -> None:
        """Waits for the kernel's lock, which ends with the process that holds it.

        Raises:
            TrialBusy: another process holds it for that long.
            CheckpointError: the folder of all checkpoints is missing.
        """
        folder = self._file.parent
        try:
            # Only this folder is created. If the folder of all checkpoints has gone,
            # creating it would make the trial start again without its old checkpoint.
            folder.mkdir(exist_ok=True)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"no checkpoint can be written to {folder}: {error.strerror}; was it"
                " moved, or is it not mounted on this machine?"
            ) from error
        self._lock = (folder / "lock").open("w")
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self.release()
                    raise TrialBusy(
                        f"another process has been training {trial} for {seconds:.0f}"
                        f" s and holds {folder}/lock; wait for it, or end it"
                    ) from None
                time.sleep(0.05)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def beat(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.utime(self._lock.fileno())

    def exists(self) -> bool:
        return self._file.is_file()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Path]:
        """Raises CheckpointError if there is no space or no permission to write."""
        partial = self._file.with_suffix(".part")
        try:
            yield partial
            with partial.open("rb+") as stream:
                os.fsync(stream.fileno())
            partial.replace(self._file)
        except OSError as error:
            # The partial file would take the last space on the disk from the database.
            with contextlib.suppress(OSError):
                partial.unlink()
            kept = "; the previous checkpoint is kept" if self.exists() else ""
            raise CheckpointError(
                f"no checkpoint can be written to {partial.parent}: {error.strerror}{kept}"
            ) from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[Path | None]:
        yield self._file if self._file.is_file() else None

    def set_aside(self) -> None:
        self._file.replace(self._file.with_suffix(".pt.unreadable"))


class Remote:
    """A URL of fsspec.

    There is no lock: the store has to ensure that no two drivers train the same trial.
    A worker that its cluster has lost may still write checkpoints of the same trial.
    Whichever is written last is complete, so this costs only time.
    """

    def __init__(self, system: AbstractFileSystem, folder: str) -> None:
        self._system = system
        self._folder = folder
        self._file = f"{folder}/{NAME}"
        if isinstance(system.protocol, str):
            protocols = {system.protocol}
        else:
            protocols = set(system.protocol)
        self._one_step = bool(protocols & OBJECT_STORES)
        self.name = str(system.unstrip_protocol(self._file))

    def hold(self, trial: str, seconds: float) -> None:
        pass

    def release(self) -> None:
        pass

    def beat(self) -> None:
        pass

    def exists(self) -> bool:
        """Raises CheckpointError if the service cannot be asked."""
        self._system.invalidate_cache()
        try:
            return bool(self._system.exists(self._file))
        except Exception as error:
            # Each protocol has its own exceptions.
            raise CheckpointError(
                f"{option('checkpoints')} {self.name} cannot be read:"
                f" {type(error).__name__}: {error}"
            ) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[Path]:
        with _staged() as path:
            yield path
            self._system.makedirs(self._folder, exist_ok=True)
            if self._one_step:
                self._system.put_file(str(path), self._file)
            else:
                self._system.put_file(str(path), f"{self._file}.part")
                self._system.mv(f"{self._file}.part", self._file)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Path | None]:
        if not self.exists():
            yield None
            return
        with _staged() as path:
            self._system.get_file(self._file, str(path))
            yield path

    def set_aside(self) -> None:
        self._system.mv(self._file, f"{self._file}.unreadable")

    def remove(self) -> None:
        self._system.rm(self._folder, recursive=True)


@contextlib.contextmanager
def _staged() -> Iterator[Path]:
    """Gives a local path for a file in transit.

    A whole file is sent, never a stream that may break off.
    """
    with tempfile.TemporaryDirectory(prefix="ablate-") as folder:
        yield Path(folder, NAME)


def is_url(location: str) -> bool:
    return "://" in location


def storage(location: str | Path) -> Storage:
    """Returns the storage of a trial's checkpoint by folder or URL.

    A `file://` URL is a folder.

    Raises:
        CheckpointError: the protocol is unknown, or its package is not installed.
    """
    if not is_url(str(location)):
        return Folder(Path(location))
    from fsspec.implementations.local import LocalFileSystem

    system, path = system_of(str(location))
    if type(system) is LocalFileSystem:
        return Folder(Path(path))
    return Remote(system, path.rstrip("/"))


def try_out(location: str) -> None:
    """Writes to a URL, reads it back and removes it.

    A wrong URL is thus reported before anything is trained. A folder needs no test.

    Raises:
        CheckpointError: it cannot be written, or does not return what was written.
    """
    tried = storage(f"{location}/try-{uuid.uuid4().hex}")
    if isinstance(tried, Folder):
        return
    assert isinstance(tried, Remote)
    try:
        with tried.writing() as path:
            path.write_bytes(b"ablate")
        with tried.reading() as back:
            whole = back is not None and back.read_bytes() == b"ablate"
        tried.remove()
    except Exception as error:
        # Each protocol has its own exceptions.
        raise CheckpointError(
            f"{option('checkpoints')} {location} cannot be written: {type(error).__name__}: {error}"
        ) from error
    if not whole:
        raise CheckpointError(
            f"{option('checkpoints')} {location} does not return what was written there;"
            " use another folder or URL"
        )
