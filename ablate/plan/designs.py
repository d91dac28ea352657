"""Designs: which combinations of levels are cells.

Each gives the reference cell first, against which effects are taken.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from string import ascii_lowercase
from typing import Any

from ablate.errors import AblateError
from ablate.records import MOST_CELLS, Level, Settings, Space


def combinations(space: Space) -> list[Settings]:
    """The cells of a space's design, the reference first, each as levels of the varying
    factors.

    The reference is the baseline; for leave-one-out it is the full model, for rows the
    first of them.

    Raises:
        AblateError: the design has more than `MOST_CELLS` cells.
    """
    makers = {
        "grid": _grid,
        "one-at-a-time": _one_at_a_time,
        "leave-one-out": _leave_one_out,
        "add-one-in": _add_one_in,
        "fractional": _fractional,
        "plackett-burman": _plackett_burman,
        "random": _random,
        "rows": _rows,
    }
    if space.design.name == "grid" and _size(space) > MOST_CELLS:
        raise AblateError(
            f"the grid has {_size(space):,} cells, more than {MOST_CELLS:,}; use"
            " design: {name: random, cells: N}"
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
    """The full model, and the full model with one factor at a time back at its baseline
    level.
    """
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


def _fractional(space: Space) -> Iterator[Settings]:
    """The baseline and the other cells of the smallest two-level fraction of the wanted
    resolution.
    """
    from pyDOE3 import fracfact

    factors = switches(space)
    resolution = space.design.resolution
    words = generators(len(factors), resolution)
    if words is None:
        raise AblateError(
            f"design: there is no fraction of resolution {resolution} of {len(factors)}"
            " factors that is smaller than the whole; use design: grid, or a lower"
            " resolution: design: {name: fractional, resolution: 3}"
        )
    yield from _on_and_off(space, factors, fracfact(" ".join(words)))


def generators(factors: int, resolution: int) -> list[str] | None:
    """Each factor as a product of base factors (letters), of as few base factors as the
    resolution allows; None where it takes all.

    A word is taken if it is no product of fewer than `resolution` - 1 words before: so
    the shortest word of the defining relation has `resolution` letters (Conway and
    Sloane's lexicodes, 1986). pyDOE3's own choice promises more than it keeps: its 32
    runs of 8 factors at resolution 5 have resolution 4.
    """
    for base in range(1, factors):
        words = _words(base, factors, resolution)
        if len(words) == factors:
            return [_letters(word) for word in words]
    return None


def _words(base: int, most: int, resolution: int) -> list[int]:
    """At most `most` words of `base` factors, each a set of base factors in bits."""
    # products[n]: the products of n words taken so far.
    products: list[set[int]] = [{0}]
    products += [set() for _ in range(resolution - 2)]
    taken: list[int] = []
    # Short words first; among equally short ones, in alphabetical order.
    for word in sorted(range(1, 2**base), key=lambda bits: (bits.bit_count(), bits)):
        if len(taken) == most:
            break
        if any(word in found for found in products):
            continue
        taken.append(word)
        for size in range(resolution - 2, 0, -1):
            products[size] |= {other ^ word for other in products[size - 1]}
    return taken


def _letters(word: int) -> str:
    """A word as pyDOE3 writes it: bits 0 and 2 are `ac`."""
    places = range(word.bit_length())
    return "".join(ascii_lowercase[place] for place in places if word >> place & 1)


def _plackett_burman(space: Space) -> Iterator[Settings]:
    """The baseline and the other cells of a Plackett-Burman design: main effects from
    as few cells as can tell them.
    """
    from pyDOE3 import pbdesign

    factors = switches(space)
    if len(factors) < 2:
        raise AblateError(
            "design: plackett-burman is for two factors and more; use design: grid"
        )
    # Some sizes have no known design: then the next one, of which some columns are left
    # out.
    for size in itertools.count(len(factors)):
        try:
            signs = pbdesign(size)[:, : len(factors)]
        except AssertionError:
            continue
        break
    yield from _on_and_off(space, factors, signs)


def switches(space: Space) -> list[str]:
    """The factors whose full level is not that of the baseline."""
    return [name for name in space.factors if space.full[name] != space.baseline[name]]


def _on_and_off(space: Space, factors: list[str], signs: Any) -> Iterator[Settings]:
    """Rows of signs to cells, each sign taken so that the row with most low ones is the
    baseline: signs of columns are free.
    """
    first = min(range(len(signs)), key=lambda row: signs[row].sum())
    order = [first, *(row for row in range(len(signs)) if row != first)]
    for row in order:
        on = {
            name: space.full[name]
            for place, name in enumerate(factors)
            if signs[row][place] != signs[first][place]
        }
        yield {**space.baseline, **on}


def aliases(space: Space) -> list[str]:
    """Which effects of one or two factors a fractional design cannot tell apart, one
    line each, as `a = b x c`.
    """
    columns = _sign_columns(space)
    groups: dict[tuple[int, ...], list[str]] = {}
    for names, column in columns.items():
        # A column and its negative are one effect but for the sign.
        key = tuple(sign * column[0] for sign in column)
        groups.setdefault(key, []).append(" x ".join(names))
    found = [" = ".join(effects) for effects in groups.values() if len(effects) > 1]
    if any(
        _overlap_in_part(one, other)
        for one, other in itertools.combinations(columns.values(), 2)
    ):
        found.append(
            "each main effect holds a part of every interaction of other factors"
        )
    return found


def _sign_columns(space: Space) -> dict[tuple[str, ...], list[int]]:
    """The signs over all cells, by each factor and each pair of factors."""
    factors = switches(space)
    cells = combinations(space)
    columns: dict[tuple[str, ...], list[int]] = {}
    for name in factors:
        baseline = space.baseline[name]
        columns[name,] = [_sign(cell[name], baseline) for cell in cells]
    for one, other in itertools.combinations(factors, 2):
        pairs = zip(columns[one,], columns[other,], strict=True)
        columns[one, other] = [a * b for a, b in pairs]
    return columns


def _sign(level: Level, baseline: Level) -> int:
    return -1 if level == baseline else 1


def _overlap_in_part(one: list[int], other: list[int]) -> bool:
    """Whether two effects are neither independent nor one and the same."""
    product = abs(sum(a * b for a, b in zip(one, other, strict=True)))
    return 0 < product < len(one)


def _rows(space: Space) -> Iterator[Settings]:
    """The cells that the space lists; the first is the reference."""
    yield from space.rows


def _random(space: Space) -> Iterator[Settings]:
    """The baseline, and other distinct cells of the grid drawn evenly; a larger number
    keeps the cells of a smaller one.
    """
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
