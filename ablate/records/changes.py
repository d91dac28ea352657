"""What changed between two declarations of a study."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ablate.records.plain import decisive
from ablate.records.space import Space

# The versions of the user's parts. A search meets them one after the other.
CODE = "code "
# Leaves whose names would say too little.
NAMES = {"data fingerprint": "the files of the data, or how they are read"}
# The most characters of a value that a sentence shows.
LONGEST = 40


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Returns the decisive differences of two spaces, as `margin: 0.5 → 3`.

    Args:
        before, after: resolved spaces as plain data (`ablate.records.plain`).
    """
    first, then = _leaves(before), _leaves(after)
    return [
        f"{NAMES.get(name, name)}: {_text(first.get(name))} → {_text(then.get(name))}"
        for name in _differing(first, then)
    ]


def _differing(first: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Returns the names of leaves whose values differ."""
    return [
        name
        for name in dict.fromkeys([*first, *then])
        if first.get(name) != then.get(name)
        and (not name.startswith(CODE) or (name in first and name in then))
    ]


def _leaves(space: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what decides the results, by dotted names."""
    parts = decisive(Space, space)
    if len(parts["objectives"]) < 2:
        # It repeats the metric and its direction.
        del parts["objectives"]
    leaves: dict[str, Any] = {}
    for name, value in {**parts, "code": space.get("code")}.items():
        _add(leaves, name, value)
    return leaves


def _add(leaves: dict[str, Any], name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        leaves[name] = value
        return
    for key, item in value.items():
        _add(leaves, f"{name} {key}", item)


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        text = value or "none"
    elif _is_range(value):
        text = f"{len(value)}"
    else:
        text = json.dumps(value)
    if len(text) > LONGEST:
        return text[: LONGEST - 3] + "..."
    return text


def _is_range(value: Any) -> bool:
    """Whether these are the seeds 0, 1, 2, ..., which a number declares."""
    return (
        isinstance(value, Sequence)
        and len(value) > 0
        and list(value) == list(range(len(value)))
    )
