"""The disk space of checkpoints, and how to free what no result needs.

From a checkpoint, an unfinished trial resumes, a longer training begins where a shorter
one ended, and `ablate diagnose` takes diagnostics. Results are in the store, so freeing
a checkpoint loses none.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ablate.errors import CheckpointError
from ablate.machine.filesystems import system_of
from ablate.pipeline import Options
from ablate.records import WITH_RESULT, Status
from ablate.store.reader import Reader
from ablate.text.advice import option
from ablate.text.masking import masked

Kind = Literal["unfinished", "finished", "unused", "other-stores"]
KINDS: tuple[Kind, ...] = ("unfinished", "finished", "unused", "other-stores")
FREEABLE: tuple[Kind, ...] = ("finished", "unused", "other-stores")
# The path of a file of a trial's checkpoint, below the root of all stores.
OURS = re.compile(
    r"(?P<store>[0-9a-f]{12})/(?P<trial>[0-9a-f]{16,})/(?:last\.pt(?:\.unreadable)?|last\.part|lock)"
)
NEEDED_FOR = {
    "unfinished": "going on: ablate resume",
    "finished": "ablate diagnose, and longer trainings that begin there",
    "unused": "nothing: no study has the trial",
    "other-stores": (
        "another store, if it still exists; if freed, its unfinished trials start from"
        " the beginning"
    ),
}


@dataclass(frozen=True)
class Place:
    """One trial's folder of checkpoints.

    Attributes:
        path: without a protocol, in the notation of fsspec's file system.
        kind: what it is needed for; see `NEEDED_FOR`.
        study: a study that has the trial, or the ID of the other store.
        size: in bytes.
    """

    path: str
    kind: Kind
    study: str
    size: int


@dataclass(frozen=True)
class Freed:
    """What was freed: folders and bytes.

    `busy` is the number of folders that were left, because a process holds them.
    """

    folders: int
    size: int
    busy: int


def usage(options: Options) -> list[Place]:
    """Returns all checkpoints below the folder or URL of checkpoints.

    Raises:
        StoreError: there is no store.
        CheckpointError: the URL's protocol is unknown, or it cannot be read.
    """
    with Reader(options.url) as reader:
        store = reader.store_id()
        trials = reader.trials.statuses()
    system, root = _files(options)
    sizes: dict[tuple[str, str], int] = {}
    for path, size in _found(system, root):
        match = OURS.fullmatch(path.removeprefix(root).strip("/"))
        if match is None:
            # Other files there do not belong to ablate.
            continue
        place = match["store"], match["trial"]
        sizes[place] = sizes.get(place, 0) + size
    return [
        _place(root, owner, trial, size, store, trials)
        for (owner, trial), size in sorted(sizes.items())
    ]


def _place(
    root: str,
    first: str,
    trial: str,
    size: int,
    store: str,
    trials: dict[str, tuple[Status, str]],
) -> Place:
    path = f"{root}/{first}/{trial}"
    if first != store:
        return Place(path=path, kind="other-stores", study=first, size=size)
    if trial not in trials:
        return Place(path=path, kind="unused", study="", size=size)
    status, study = trials[trial]
    return Place(
        path=path,
        kind="finished" if status in WITH_RESULT else "unfinished",
        study=study,
        size=size,
    )


def free(options: Options, kinds: Iterable[Kind]) -> Freed:
    """Removes the checkpoints of these kinds.

    Raises:
        StoreError: there is no store, or another process is writing to it.
        CheckpointError: the kinds include checkpoints of other stores at a URL, where
            nothing shows whether a trial is running.
    """
    from ablate.store.writer import Writer

    freed = set(kinds) & set(FREEABLE)
    if "other-stores" in freed and "://" in options.checkpoints_root:
        raise CheckpointError(
            "nothing shows whether the checkpoints of other stores at"
            f" {masked(options.checkpoints_root)} are in use, so they are not removed;"
            " make sure that no run uses them, then remove their folders by hand"
        )
    folders = 0
    size = 0
    busy = 0
    # Only the writer of the store may remove checkpoints: otherwise a trial that is
    # being trained could be taken for a finished one.
    with Writer(options.url):
        system, _ = _files(options)
        for place in usage(options):
            if place.kind not in freed:
                continue
            if _removed(system, place.path):
                folders += 1
                size += place.size
            else:
                busy += 1
    return Freed(folders, size, busy)


def _removed(system: Any, path: str) -> bool:
    """Removes a folder, unless a process holds the lock of a trial in it."""
    with ExitStack() as held:
        for lock in Path(path).rglob("lock") if Path(path).is_dir() else ():
            stream = held.enter_context(lock.open("a"))
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        # Still under the locks, so that no worker can start to use the folder
        # meanwhile.
        system.rm(path, recursive=True)
    return True


def _files(options: Options) -> tuple[Any, str]:
    """Returns the file system of the checkpoints, and their root in it."""
    return system_of(options.checkpoints_root)


def _found(system: Any, root: str) -> Iterator[tuple[str, int]]:
    """Yields every file below a folder, with its size in bytes."""
    try:
        files = system.find(root, detail=True)
    except FileNotFoundError:
        return
    except Exception as error:
        # Each protocol has its own exceptions.
        raise CheckpointError(
            f"{option('checkpoints')} {system.unstrip_protocol(root)} cannot be read:"
            f" {type(error).__name__}: {error}"
        ) from error
    for path, about in files.items():
        yield str(path), int(about["size"] or 0)
