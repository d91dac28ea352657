"""What changed between two declarations of a study."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from ablate.records import VARIED, Data, Design, Recipe, Scheduler, Strategy

# The parts of a space that decide which rows are compared, by what, and on what.
DECISIVE = (
    "metric",
    "direction",
    "objectives",
    "margin",
    "primary",
    "seeds",
    "vary",
    "looks",
    "adaptive",
    "final",
    "baseline",
    "full",
    "factors",
    "fixed",
    "design",
    "strategy",
    "rows",
    "together",
    "exclude",
    "control",
    "limits",
    "task",
    "head",
    "backbone",
    "pretrained",
    "trainer",
    "data",
    "recipe",
    "teacher",
    "scheduler",
    "code",
)
# The records of those parts that have fields.
RECORDS: Mapping[str, type] = {
    "data": Data,
    "design": Design,
    "recipe": Recipe,
    "scheduler": Scheduler,
    "strategy": Strategy,
}
# The versions of the user's parts. A search meets them one after the other.
CODE = "code "
# What does not change the results.
INDIFFERENT = ("data path", "data workers")
# Leaves whose names would say too little.
NAMES = {"data fingerprint": "the files of the data, or how they are read"}
# The most characters of a value that a sentence shows.
LONGEST = 40


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Returns the decisive differences of two spaces, as `margin: 0.5 → 3`.

    Args:
        before, after: resolved spaces as plain data (`ablate.store.space_data`).
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
        if name not in INDIFFERENT
        and first.get(name) != then.get(name)
        and (not name.startswith(CODE) or (name in first and name in then))
    ]


def _leaves(space: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of the decisive parts, by dotted names."""
    leaves: dict[str, Any] = {}
    for name in DECISIVE:
        value = space.get(name)
        if name == "objectives" and len(value or ()) < 2:
            # It repeats the metric and its direction.
            value = None
        elif name == "final":
            # Stores of older versions lack it.
            value = bool(value)
        elif name in ("together", "exclude"):
            value = list(value or ())
        elif name == "vary":
            # So do these.
            value = list(value or VARIED)
        elif name in RECORDS and isinstance(value, Mapping):
            value = _with_defaults(RECORDS[name], value)
        _add(leaves, name, value)
    return leaves


def _with_defaults(record: type, value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a part with the fields that the version that stored it did not have.

    A later version that has a new field changes nothing.
    """
    filled: dict[str, Any] = {}
    for field in fields(record):
        if field.default is not MISSING:
            default = field.default
            filled[field.name] = (
                list(default) if isinstance(default, tuple) else default
            )
    return {**filled, **value}


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
