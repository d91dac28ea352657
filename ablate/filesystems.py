"""Folders and URLs of checkpoints as fsspec's file systems.

This module imports nothing heavy.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ablate.advice import option
from ablate.errors import CheckpointError


def system_of(place: str) -> tuple[Any, str]:
    """Returns fsspec's file system for a folder or URL, and the path in it.

    Raises:
        CheckpointError: the protocol is unknown, or its package is not installed.
    """
    import fsspec

    try:
        system: tuple[Any, str] = fsspec.core.url_to_fs(place)
    except (ValueError, ImportError) as error:
        raise CheckpointError(
            f"{option('checkpoints')} {place}: {error}; write a folder or a URL of fsspec such as"
            " s3://BUCKET/PATH"
        ) from error
    return system


def remove_checkpoint(place: str) -> None:
    """Removes a trial's checkpoints.

    What cannot be removed stays: it takes disk space, but no result depends on it.
    """
    system, path = system_of(place)
    # Each protocol has its own exceptions.
    with contextlib.suppress(Exception):
        system.rm(path, recursive=True)
