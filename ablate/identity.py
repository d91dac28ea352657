"""Canonical form and content hash of what is trained.

Equal content has equal bytes and therefore an equal hash, on every machine and in every
version. Callers leave out values that equal their defaults before hashing. A new option
whose default is the old behaviour thus changes no hash.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

# Hex digits of a hash. With 80 bits, a million trials collide with probability 4e-13.
DIGITS = 20

Canonical: TypeAlias = (
    "bool | int | float | str | None | Sequence[Canonical] | Mapping[str, Canonical]"
)


def canonical(value: Canonical) -> Canonical:
    """Returns the canonical form of a value.

    Whole floats become integers, and mappings are sorted by key.

    Raises:
        ValueError: a number is not finite, or a type has no canonical form.
    """
    # A bool is an int in Python, but True must not become 1: they are different levels.
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no canonical form")
        # YAML's `1` and `1.0` are the same level, and must give the same hash.
        if value.is_integer():
            return int(value)
        return value
    if isinstance(value, Mapping):
        # The order in which a file lists its keys must not change a hash.
        return {key: canonical(value[key]) for key in sorted(value)}
    if isinstance(value, Sequence):
        return [canonical(item) for item in value]
    raise ValueError(f"{type(value).__name__} has no canonical form")


def canonical_json(value: Canonical) -> str:
    """Returns the canonical form as one line of JSON."""
    return json.dumps(
        canonical(value),
        sort_keys=True,
        separators=(",", ":"),
        # ASCII bytes do not depend on an encoding.
        ensure_ascii=True,
        allow_nan=False,
    )


def content_hash(value: Canonical) -> str:
    """Returns the first `DIGITS` hex digits of the SHA-256 of the canonical form."""
    return text_hash(canonical_json(value))


def text_hash(text: str) -> str:
    """Returns the first `DIGITS` hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def file_hash(file: Path) -> str:
    """Returns the first `DIGITS` hex digits of the SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:DIGITS]
