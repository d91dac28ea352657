"""Heads other than a classifier: for detection and for segmentation.

A file of this package, or of a task, has heads in its tuple `HEADS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ablate.errors import UnknownName, unknown
from ablate.heads.head import Head
from ablate.own import discovery


@cache
def heads() -> Mapping[str, Head]:
    """Returns every head by name."""
    every: list[Head] = []
    # By name: tasks may import heads.
    for package in ("ablate.heads", "ablate.tasks"):
        every += discovery.listed(package, "HEADS")
    return {head.name: head for head in every}


def find(name: str) -> Head:
    """Returns the head of that name. Raises UnknownName if there is none."""
    if name not in heads():
        raise UnknownName(unknown("head", name, tuple(heads())))
    return heads()[name]


__all__ = ["Head", "find", "heads"]
