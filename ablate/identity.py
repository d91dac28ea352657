"""Canonical form and content hash of what is trained.

Equal content has equal bytes and so an equal hash, on every machine and in every
version. What equals its default is left out by the callers before hashing, so that a
new option whose default is the old behaviour changes no hash.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

# Hex digits of a hash: 80 bits, so that a million trials collide with probability
# 4e-13.
DIGITS = 20

Canonical: TypeAlias = (
    "bool | int | float | str | None | Sequence[Canonical] | Mapping[str, Canonical]"
)


def canonical(value: Canonical) -> Canonical:
    """The one form of a value: whole floats become integers, mappings lose their order.

    Raises:
        ValueError: a number is not finite, or a type has no canonical form.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no canonical form")
        if value.is_integer():
            return int(value)
        return value
    if isinstance(value, Mapping):
        return {key: canonical(value[key]) for key in sorted(value)}
    if isinstance(value, Sequence):
        return [canonical(item) for item in value]
    raise ValueError(f"{type(value).__name__} has no canonical form")


def canonical_json(value: Canonical) -> str:
    """Canonical form as one line of JSON."""
    return json.dumps(
        canonical(value),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )


def content_hash(value: Canonical) -> str:
    """The first `DIGITS` hex digits of the SHA-256 of the canonical form."""
    return text_hash(canonical_json(value))


def text_hash(text: str) -> str:
    """The same of a text that is canonical JSON already."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
