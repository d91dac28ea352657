"""Designs: which combinations of levels are cells.

Each design yields the reference first, with which the other cells are compared.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator
from string import ascii_lowercase
from typing import Any

from ablate.errors import AblateError
from ablate.records import MOST_CELLS, Factors, Level, Settings, Space

# At this resolution, no two main effects are confounded.
LEAST_RESOLUTION = 3


def combinations(space: Space) -> list[Settings]:
    """Returns the cells of a space's design, the reference first.

    Each cell has the levels of the varying factors. The reference is the baseline; for
    leave-one-out it is the full model, for rows it is row 0.

    Raises:
        AblateError: the design has more than `MOST_CELLS` cells.
    """
    design, factors = space.design.name, space.factors
    if design == "random":
        return list(_random(space))
    if design == "fractional":
        return list(_fractional(space))
    if design == "grid" and _size(factors) > MOST_CELLS:
        raise AblateError(
            f"the grid has {_size(factors):,} cells, more than {MOST_CELLS:,}; use"
            " design: {name: random, cells: N}"
        )
    makers = {
        "grid": _grid,
        "one-at-a-time": _one_at_a_time,
        "leave-one-out": _leave_one_out,
        "add-one-in": _add_one_in,
        "plackett-burman": _plackett_burman,
        "rows": _rows,
    }
    return list(makers[design](factors))


def _size(factors: Factors) -> int:
    return math.prod(map(len, factors.axes))


def _grid(factors: Factors) -> Iterator[Settings]:
    """Yields the baseline, then all other combinations.

    The last factor varies fastest.
    """
    yield factors.baseline
    for options in itertools.product(*factors.axes):
        cell = _joined(factors, options)
        if cell != factors.baseline:
            yield cell


def _joined(factors: Factors, options: Iterable[Settings]) -> Settings:
    """Returns one option of each axis as a cell, with its factors in their order."""
    cell: dict[str, Level] = {}
    for option in options:
        cell |= option
    return {name: cell[name] for name in factors.levels}


def _one_at_a_time(factors: Factors) -> Iterator[Settings]:
    """Yields the baseline, then the baseline with one factor at another level."""
    yield factors.baseline
    for axis in factors.axes:
        for option in axis:
            cell = {**factors.baseline, **option}
            if cell != factors.baseline:
                yield cell


def _leave_one_out(factors: Factors) -> Iterator[Settings]:
    """Yields the full model, then the full model with one factor at baseline.

    Each part that can be removed is a row of its own.
    """
    yield factors.full
    for axis in factors.axes:
        options: list[Settings] = [{name: factors.baseline[name] for name in axis[0]}]
        if factors.removes_parts and "remove" in axis[0]:
            options = list(axis)
        for option in options:
            cell = {**factors.full, **option}
            if cell != factors.full:
                yield cell


def _add_one_in(factors: Factors) -> Iterator[Settings]:
    """Yields the baseline, then the baseline with one factor at its full level."""
    yield factors.baseline
    yield from _switched(factors, factors.baseline, factors.full)


def _switched(factors: Factors, start: Settings, other: Settings) -> Iterator[Settings]:
    for axis in factors.axes:
        cell = {**start, **{name: other[name] for name in axis[0]}}
        if cell != start:
            yield cell


def _fractional(space: Space) -> Iterator[Settings]:
    """Yields the smallest two-level fraction of the wanted resolution.

    The baseline comes first.
    """
    from pyDOE3 import fracfact

    names = _switches(space.factors)
    resolution = space.design.resolution
    words = generators(len(names), resolution)
    if words is None:
        lower = ""
        if resolution > LEAST_RESOLUTION:
            lower = (
                ", or a lower resolution: design: {name: fractional, resolution:"
                f" {LEAST_RESOLUTION}}}"
            )
        raise AblateError(
            f"design: with {len(names)} factors, no fraction of resolution {resolution}"
            f" has fewer cells than the full design; use design: grid{lower}"
        )
    yield from _on_and_off(space.factors, names, fracfact(" ".join(words)))


def generators(factors: int, resolution: int) -> list[str] | None:
    """Writes each factor as a product of base factors (letters).

    It uses as few base factors as the resolution allows, and returns None if that takes
    all factors. A word is taken if it is not a product of fewer than `resolution` - 1
    earlier words. The shortest word of the defining relation then has `resolution`
    letters (Conway and Sloane's lexicodes, 1986). pyDOE3's own choice does not always
    keep its promise: its 32 runs of 8 factors at resolution 5 have resolution 4.
    """
    for base in range(1, factors):
        words = _words(base, factors, resolution)
        if len(words) == factors:
            return [_letters(word) for word in words]
    return None


def _words(base: int, most: int, resolution: int) -> list[int]:
    """Returns at most `most` words of `base` factors, as bit sets of base factors."""
    # products[n] has the products of n of the words taken so far.
    products: list[set[int]] = [{0}]
    products += [set() for _ in range(resolution - 2)]
    taken: list[int] = []
    # Short words first; among equally short ones, in alphabetical order.
    for word in sorted(range(1, 2**base), key=lambda bits: (bits.bit_count(), bits)):
        if len(taken) == most:
            break
        if any(word in words for words in products):
            continue
        taken.append(word)
        # From large to small, so that the new word enters each product once.
        for size in range(resolution - 2, 0, -1):
            products[size] |= {other ^ word for other in products[size - 1]}
    return taken


def _letters(word: int) -> str:
    """Returns a word in pyDOE3's notation: bits 0 and 2 are `ac`."""
    places = range(word.bit_length())
    return "".join(ascii_lowercase[bit] for bit in places if word >> bit & 1)


def _plackett_burman(factors: Factors) -> Iterator[Settings]:
    """Yields the baseline and the other cells of a Plackett-Burman design.

    It estimates main effects from as few cells as possible.
    """
    from pyDOE3 import pbdesign

    names = _switches(factors)
    if len(names) < 2:
        raise AblateError(
            "design: plackett-burman is for two factors and more; use design: grid"
        )
    # Some sizes have no known design. Then the next size is used, without some of its
    # columns.
    for size in itertools.count(len(names)):
        try:
            signs = pbdesign(size)[:, : len(names)]
        except AssertionError:
            continue
        break
    yield from _on_and_off(factors, names, signs)


def _switches(factors: Factors) -> list[str]:
    """Returns the factors whose full level differs from the baseline's.

    Of factors that change together, the first one stands for all.
    """
    leads = [next(iter(axis[0])) for axis in factors.axes]
    return [name for name in leads if factors.full[name] != factors.baseline[name]]


def _on_and_off(factors: Factors, names: list[str], signs: Any) -> Iterator[Settings]:
    """Turns rows of signs into cells, with the baseline first.

    The signs of a column may be flipped freely. They are chosen so that the row with
    most low signs is the baseline.
    """
    first = min(range(len(signs)), key=lambda row: signs[row].sum())
    order = [first, *(row for row in range(len(signs)) if row != first)]
    together = {group[0]: group for group in factors.together}
    for row in order:
        on: dict[str, Level] = {}
        for bit, name in enumerate(names):
            if signs[row][bit] != signs[first][bit]:
                members = together.get(name, (name,))
                on |= {member: factors.full[member] for member in members}
        yield {**factors.baseline, **on}


def aliases(space: Space) -> list[str]:
    """Returns the effects that a fractional design cannot separate.

    These are effects of one or two factors, one line each, as `a = b x c`.
    """
    columns = _sign_columns(space)
    groups: dict[tuple[int, ...], list[str]] = {}
    for names, column in columns.items():
        # A column and its negative are the same effect up to the sign.
        key = tuple(sign * column[0] for sign in column)
        groups.setdefault(key, []).append(" x ".join(names))
    lines = [" = ".join(effects) for effects in groups.values() if len(effects) > 1]
    if any(
        _overlap_in_part(first, other)
        for first, other in itertools.combinations(columns.values(), 2)
    ):
        lines.append(
            "each main effect holds a part of every interaction of other factors"
        )
    return lines


def _sign_columns(space: Space) -> dict[tuple[str, ...], list[int]]:
    """Returns the signs over all cells, for each factor and each pair of factors."""
    factors = space.factors
    names = _switches(factors)
    cells = combinations(space)
    columns: dict[tuple[str, ...], list[int]] = {}
    for name in names:
        baseline = factors.baseline[name]
        columns[name,] = [_sign(cell[name], baseline) for cell in cells]
    for first, other in itertools.combinations(names, 2):
        pairs = zip(columns[first,], columns[other,], strict=True)
        columns[first, other] = [a * b for a, b in pairs]
    return columns


def _sign(level: Level, baseline: Level) -> int:
    return -1 if level == baseline else 1


def _overlap_in_part(column: list[int], other: list[int]) -> bool:
    """Whether two effects are neither independent nor the same."""
    product = abs(sum(a * b for a, b in zip(column, other, strict=True)))
    return 0 < product < len(column)


def _rows(factors: Factors) -> Iterator[Settings]:
    """Yields the cells that the space lists; row 0 is the reference."""
    yield from factors.rows


def _random(space: Space) -> Iterator[Settings]:
    """Yields the baseline, then other distinct cells of the grid, drawn uniformly.

    A larger number of cells includes the cells of a smaller one.
    """
    assert space.design.cells is not None
    factors = space.factors
    generator = random.Random(space.design.seed)
    number = min(space.design.cells, _size(factors))
    seen: dict[tuple[Level, ...], None] = {tuple(factors.baseline.values()): None}
    yield factors.baseline
    while len(seen) < number:
        cell = _joined(factors, [generator.choice(axis) for axis in factors.axes])
        drawn = tuple(cell.values())
        if drawn not in seen:
            seen[drawn] = None
            yield cell
