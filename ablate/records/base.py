"""Levels, and bounds that all records share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

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
