"""The forms of the JSON values in the store."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, get_args

from ablate.records import SOURCES, Declared, Direction, Recipe
from ablate.store import space_data

DECLARED = frozenset(field.name for field in fields(Declared))
RECIPE = frozenset(field.name for field in fields(Recipe))


def is_level(value: Any) -> bool:
    """Whether a value is a level of a factor: a finite number, a text or a boolean."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool | int | str)


def is_settings(value: Any) -> bool:
    """Whether a value maps names to levels."""
    return isinstance(value, dict) and all(map(is_level, value.values()))


def is_recipe(value: Any) -> bool:
    """Whether a value maps fields of a recipe to their values."""
    return is_settings(value) and value.keys() <= RECIPE and "epochs" in value


def is_object(value: Any) -> bool:
    """Whether a value maps names to values."""
    return isinstance(value, dict)


def is_versions(value: Any) -> bool:
    """Whether a value maps names of parts to their versions."""
    return isinstance(value, dict) and all(
        isinstance(version, str) for version in value.values()
    )


def is_sources(value: Any) -> bool:
    """Whether a value lists what a seed decides."""
    return isinstance(value, list) and all(source in SOURCES for source in value)


def is_results(value: Any) -> bool:
    """Whether a value maps seeds to results."""
    return isinstance(value, dict) and all(
        seed.isdecimal() and isinstance(result, int | float | None)
        for seed, result in value.items()
    )


def is_declared(value: Any) -> bool:
    """Whether a value is empty, or what holds for a whole chain."""
    if not isinstance(value, dict):
        return False
    if not value:
        return True
    numbers = value.get("level"), value.get("most"), value.get("epochs", None)
    return (
        value.keys() == DECLARED
        and all(
            isinstance(value.get(name, ""), str)
            for name in ("metric", "trainer", "declaration", "space")
        )
        and value["direction"] in get_args(Direction)
        and isinstance(numbers[0], float)
        and type(numbers[1]) is int
        and (numbers[2] is None or type(numbers[2]) is int)
        and is_settings(value["settings"])
    )


def is_numbers(value: Any) -> bool:
    """Whether a value is a vector or a matrix."""
    if not isinstance(value, list):
        return False
    rows = value if all(isinstance(row, list) for row in value) else [value]
    return all(isinstance(number, int | float | None) for row in rows for number in row)


def is_space(value: Any) -> bool:
    """Whether a value describes a space."""
    return isinstance(value, dict) and space_data.is_valid(value)
