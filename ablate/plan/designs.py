"""Designs: which combinations of levels are cells. Each gives the reference cell first, against which effects are taken."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

from ablate.errors import AblateError
from ablate.records import Level, Settings, Space

MOST_CELLS = 100_000


def combinations(space: Space) -> list[Settings]:
    """The cells of a space's design, the reference first, each as levels of the varying factors.

    The reference is the baseline; for leave-one-out it is the full model, for rows the first of them.

    Raises:
        AblateError: the design has more than `MOST_CELLS` cells.
    """
    makers = {
        "grid": _grid,
        "one-at-a-time": _one_at_a_time,
        "leave-one-out": _leave_one_out,
        "add-one-in": _add_one_in,
        "random": _random,
        "rows": _rows,
    }
    if space.design.name == "grid" and _size(space) > MOST_CELLS:
        raise AblateError(
            f"the grid has {_size(space):,} cells, more than {MOST_CELLS:,}; use design: {{name: random, cells: N}}"
        )
    return list(makers[space.design.name](space))


def _size(space: Space) -> int:
    return math.prod(len(levels) for levels in space.factors.values())


def _grid(space: Space) -> Iterator[Settings]:
    """Every combination, the last factor varying fastest; the baseline comes first."""
    yield space.baseline
    for levels in itertools.product(*space.factors.values()):
        cell = dict(zip(space.factors, levels, strict=True))
        if cell != space.baseline:
            yield cell


def _one_at_a_time(space: Space) -> Iterator[Settings]:
    """The baseline, and each other level of each factor with the rest at the baseline."""
    yield space.baseline
    for name, levels in space.factors.items():
        for level in levels:
            if level != space.baseline[name]:
                yield {**space.baseline, name: level}


def _leave_one_out(space: Space) -> Iterator[Settings]:
    """The full model, and the full model with one factor at a time back at its baseline level."""
    yield space.full
    yield from _switched(space, space.full, space.baseline)


def _add_one_in(space: Space) -> Iterator[Settings]:
    """The baseline, and the baseline with one factor at a time at its full level."""
    yield space.baseline
    yield from _switched(space, space.baseline, space.full)


def _switched(space: Space, start: Settings, other: Settings) -> Iterator[Settings]:
    for name in space.factors:
        if start[name] != other[name]:
            yield {**start, name: other[name]}


def _rows(space: Space) -> Iterator[Settings]:
    """The cells that the space lists; the first is the reference."""
    yield from space.rows


def _random(space: Space) -> Iterator[Settings]:
    """The baseline, and other distinct cells of the grid drawn evenly; a larger number keeps the cells of a smaller one."""
    assert space.design.cells is not None
    generator = random.Random(space.design.seed)
    wanted = min(space.design.cells, _size(space))
    seen: dict[tuple[Level, ...], None] = {tuple(space.baseline.values()): None}
    yield space.baseline
    while len(seen) < wanted:
        drawn = tuple(generator.choice(levels) for levels in space.factors.values())
        if drawn not in seen:
            seen[drawn] = None
            yield dict(zip(space.factors, drawn, strict=True))
