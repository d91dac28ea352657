"""Folders and URLs of checkpoints as fsspec's file systems.

This module imports nothing heavy.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ablate.errors import CheckpointError
from ablate.text.advice import option
from ablate.text.masking import masked

# Protocols that write an object in one step. With others, the new file is moved over
# the old one.
OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss"}
)


def system_of(location: str) -> tuple[Any, str]:
    """Returns fsspec's file system for a folder or URL, and the path in it.

    Raises:
        CheckpointError: the protocol is unknown, its package is not installed, or the
            URL has keys that the protocol does not take from there.
    """
    import fsspec

    protocol, _, rest = location.partition("://")
    bucket = rest.partition("/")[0]
    user = bucket.rpartition("@")[0]
    if ":" in user and protocol in OBJECT_STORES:
        # Its package would take them as part of the name, and repeat them in messages.
        raise CheckpointError(
            f"{option('checkpoints')} {masked(f'{protocol}://{bucket}')} has keys in it,"
            f" which {protocol} does not read there; put them into the variables of its"
            " package, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and write"
            f" {protocol}://BUCKET/PATH"
        )
    try:
        system: tuple[Any, str] = fsspec.core.url_to_fs(location)
    except (ValueError, ImportError) as error:
        raise CheckpointError(
            f"{option('checkpoints')} {location}: {error}; write a folder or a URL of fsspec"
            " such as s3://BUCKET/PATH"
        ) from error
    return system


def remove_checkpoint(location: str) -> None:
    """Removes a trial's checkpoints.

    What cannot be removed stays: it takes disk space, but no result depends on it.
    """
    system, path = system_of(location)
    # Each protocol has its own exceptions.
    with contextlib.suppress(Exception):
        system.rm(path, recursive=True)


def make_private(folder: str) -> None:
    """Makes a local folder that only this user can read."""
    path = folder.removeprefix("file://")
    if "://" not in path:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
