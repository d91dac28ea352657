"""Arrays that take long to compute, kept between commands.

They are in the user's cache folder, or in the folder that ABLATE_CACHE names. The cache
only saves time: an array that is missing, damaged or cannot be written is computed.
Nothing in it can run code.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# The folder of the cache; set it to a folder in which nothing can be written to have
# none.
VARIABLE = "ABLATE_CACHE"
# The most bytes of all files together. The oldest ones are removed first.
MOST_BYTES = 100_000_000
# One write in so many looks for old files to remove.
TIDY = 16
# The names of the cache's own files; the folder may hold others.
_OURS = re.compile(r"[0-9a-f]{64}\.npy")


def array(key: str, make: Callable[[], Array]) -> Array:
    """Returns the array of a key; computes it if it is not in the cache.

    Args:
        key: all that the array depends on, including the revision of the code.
    """
    try:
        file = _file(key)
    except RuntimeError:
        # A user without a home has no cache.
        return make()
    kept = _read(file)
    if kept is not None:
        return kept
    made = make()
    # A cache that cannot be written, as on a full disk, is none.
    with contextlib.suppress(OSError):
        _write(file, made)
        if int(file.name[:8], 16) % TIDY == 0:
            _tidy(file.parent)
    return made


def has(key: str) -> bool:
    """Whether there is a file for a key."""
    try:
        return _file(key).exists()
    except RuntimeError:
        return False


def _file(key: str) -> Path:
    return folder() / f"{hashlib.sha256(key.encode()).hexdigest()}.npy"


def folder() -> Path:
    """Returns the folder of the cache, which may not exist yet.

    Raises RuntimeError if the user has no home.
    """
    import platformdirs

    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    return platformdirs.user_cache_path("ablate", appauthor=False)


def _read(file: Path) -> Array | None:
    """Returns the array of a file; None if it is missing or damaged."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, body = content[:32], content[32:]
    if hashlib.sha256(body).digest() != digest:
        return None
    try:
        # Without pickle, an array file holds numbers only.
        stored: Array = np.load(io.BytesIO(body), allow_pickle=False)
    except (ValueError, EOFError):
        return None
    return stored


def _write(file: Path, made: Array) -> None:
    """Writes an array, in one step for those who read."""
    buffer = io.BytesIO()
    np.save(buffer, made, allow_pickle=False)
    body = buffer.getvalue()
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as part:
            part.write(hashlib.sha256(body).digest() + body)
        Path(name).replace(file)
    except BaseException:
        # Also after Ctrl-C: half a file must not stay.
        Path(name).unlink(missing_ok=True)
        raise


def _tidy(folder: Path) -> None:
    """Removes the oldest files if all together take too much space."""
    files = []
    for file in folder.glob("*.npy"):
        if not _OURS.fullmatch(file.name):
            continue
        # Another process may have removed it.
        with contextlib.suppress(FileNotFoundError):
            stat = file.stat()
            files.append((stat.st_mtime, stat.st_size, file))
    total = sum(size for _, size, _ in files)
    for _, size, file in sorted(files):
        if total <= MOST_BYTES:
            return
        file.unlink(missing_ok=True)
        total -= size
