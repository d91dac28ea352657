"""Levels, and bounds that all records share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from typing import Any, TypeAlias, TypeGuard

# Characters of a level that is a word. The column in the store has as many.
LONGEST_LEVEL = 200

# The largest side of an image, in pixels: such an image and the output of a first layer
# fit into memory.
MOST_SIDE = 4_096

# Classes: the largest labelled sets have tens of thousands.
MOST_CLASSES = 1_000_000

# The largest integer that the columns of sizes and epochs hold on every database.
MOST_WHOLE = 2**31 - 1

# Cells of a study. A table with more rows is unreadable, and planning it takes minutes.
MOST_CELLS = 100_000

# Cells in training at once, and CPUs, GPUs or processes of one trial: more than the
# largest clusters have.
MOST_AT_ONCE = 10_000

# Draws of an image per epoch, pixels of padding, and parts of a batch. Memory grows
# with the first two.
MOST_REPEATS = 1_000

# The value of one factor in one cell.
Level: TypeAlias = bool | int | float | str

# Levels by factor name, as in `{"shortcuts.count": 2}`.
Settings: TypeAlias = Mapping[str, Level]

# Metadata of a section whose fields stand beside the other keys of a space.
INLINE = "inline"
# Metadata of a field that does not decide which rows are compared, by what, and on what.
DESCRIPTIVE = "descriptive"


def key_of(field: Field[Any]) -> str:
    """Returns the key of a field in YAML and in stored spaces."""
    return str(field.metadata.get("key", field.name))


# Columns that stand beside the levels in tables, data and the views of the store.
COLUMNS = frozenset(
    "activations attempts cell control delta delta_high delta_low delta_sd done elementwise"
    " epoch epochs epochs_done error events flops flops_paper gain gain_sd joules known lr n"
    " note number outcome p p_adjusted paired params role row rows seconds seed status"
    " to_train train_loss trial weights".split()
)


def level_text(level: Level | None) -> str:
    """Returns a level as it is written in YAML; a dash if the factor is not read."""
    if level is None:
        return "-"
    if isinstance(level, bool):
        return str(level).lower()
    if isinstance(level, float):
        return f"{level:g}"
    return str(level)


def is_number(level: Level | None) -> TypeGuard[int | float]:
    """Returns whether a level is a number: true is none."""
    return isinstance(level, int | float) and not isinstance(level, bool)


def column_of(factor: str) -> str:
    """Returns the name of a factor's column in data and in SQL.

    It is the factor's own name unless another column has it.
    """
    if factor.lower() in COLUMNS:
        return f"factor.{factor}"
    return factor


def python_values(value: Any) -> Any:
    """Returns a value with numbers and arrays of numpy as numbers and lists of Python.

    `numpy.arange(3)` and `range(3)` thus declare the same levels.
    """
    if isinstance(value, Mapping):
        return {python_values(key): python_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [python_values(item) for item in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value
