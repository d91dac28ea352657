"""Folders and URLs of checkpoints as fsspec's file systems, without importing anything
heavy.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ablate.errors import CheckpointError


def system_of(place: str) -> tuple[Any, str]:
    """The file system of fsspec for a folder or URL, and the path in it.

    Raises:
        CheckpointError: the protocol is unknown, or its package is not installed.
    """
    import fsspec

    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(place)
    except (ValueError, ImportError) as error:
        raise CheckpointError(
            f"--checkpoints {place}: {error}; write a folder or a URL of fsspec such as"
            " s3://BUCKET/PATH"
        ) from error
    return found


def remove_checkpoint(place: str) -> None:
    """Removes a trial's checkpoints.

    What cannot be removed stays: it costs room, and no result.
    """
    system, path = system_of(place)
    # Each protocol has exceptions of its own.
    with contextlib.suppress(Exception):
        system.rm(path, recursive=True)
