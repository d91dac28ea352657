"""Two-level fractions: balanced, orthogonal, the baseline first, and what they cannot
tell apart.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from ablate import space
from ablate.errors import AblateError, SpaceError
from ablate.plan.designs import aliases, combinations, generators
from ablate.records import Factors, Space

TEXT = """
question: Which of six matter?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors:
  layout: [serial, parallel]
  recipe.lr: [2e-3, 1e-3, 5e-4]
  recipe.weight_decay: [0.0, 0.1]
  recipe.ema: [0.0, 0.9]
  recipe.label_smoothing: [0.0, 0.1]
  recipe.clip_grad: [0.0, 1.0]
design: DESIGN
"""


def loaded(design: str, text: str = TEXT) -> Space:
    return space.load(text.replace("DESIGN", design), "x.yaml")


@pytest.mark.parametrize(
    ("design", "cells"),
    [
        ("{name: fractional, resolution: 3}", 8),
        ("fractional", 16),
        ("{name: fractional, resolution: 5}", 32),
        ("plackett-burman", 8),
    ],
)
def test_fractions_are_balanced_and_orthogonal(design: str, cells: int) -> None:
    declared = loaded(design)
    found = combinations(declared)
    assert found[0] == declared.factors.baseline
    assert len({tuple(cell.items()) for cell in found}) == len(found) == cells
    signs = {
        name: [
            1 if cell[name] == declared.factors.baseline[name] else -1 for cell in found
        ]
        for name in declared.factors.levels
    }
    assert all(sum(column) == 0 for column in signs.values())
    assert all(
        sum(a * b for a, b in zip(x, y, strict=True)) == 0
        for x, y in itertools.combinations(signs.values(), 2)
    )
    assert {cell["recipe.lr"] for cell in found} == {
        2e-3,
        5e-4,
    }, "the baseline and the full level, by default the last"


@pytest.mark.parametrize(
    ("factors", "resolution", "base"),
    [
        (3, 3, 2),
        (7, 3, 3),
        (15, 3, 4),
        (4, 4, 3),
        (8, 4, 4),
        (16, 4, 5),
        (5, 5, 4),
        (6, 5, 5),
        (8, 5, 6),
        (3, 4, None),
        (4, 5, None),
    ],
)
def test_fractions_are_the_smallest_of_their_resolution(
    factors: int, resolution: int, base: int | None
) -> None:
    """Table 8.14 of Montgomery, Design and Analysis of Experiments."""
    words = generators(factors, resolution)
    assert (words and len({letter for word in words for letter in word})) == base
    if words is None:
        return
    shortest = next(
        size
        for size in range(1, factors + 1)
        for some in itertools.combinations(words, size)
        if all(
            sum(word.count(letter) for word in some) % 2 == 0 for letter in "abcdefgh"
        )
    )
    assert shortest >= resolution


def test_what_cannot_be_distinguished_is_said() -> None:
    three, four, five = (
        aliases(loaded(f"{{name: fractional, resolution: {number}}}"))
        for number in (3, 4, 5)
    )
    assert any(" x " not in line.split(" = ")[0] for line in three), (
        "main effects with interactions"
    )
    assert four
    assert all(" x " in part for line in four for part in line.split(" = ")), (
        "interactions with each other only"
    )
    assert not five
    more = TEXT.replace(
        "design:",
        "  recipe.mixup: [0.0, 0.2]\n  recipe.random_erasing: [0.0, 0.1]\ndesign:",
    )
    assert (
        "each main effect holds a part of every interaction of other factors"
        in aliases(loaded("plackett-burman", more))
    )


@pytest.mark.parametrize("factors", [2, 11, 24, 27])
def test_plackett_burman_of_any_number_of_factors(factors: int) -> None:
    """Some sizes have no known design; then the next one has columns to spare."""
    names = {f"f{number}": (0, 1) for number in range(factors)}
    declared = replace(
        loaded("plackett-burman"),
        factors=Factors(
            levels=names,
            fixed={},
            baseline=dict.fromkeys(names, 0),
            full=dict.fromkeys(names, 1),
        ),
    )
    found = combinations(declared)
    assert len(found) <= 4 * (factors // 4 + 2)
    for a, b in itertools.combinations(names, 2):
        assert sum((-1) ** (cell[a] + cell[b]) for cell in found) == 0


def test_what_cannot_be_a_fraction_is_refused() -> None:
    few = TEXT.split("  recipe.ema", maxsplit=1)[0] + "design: DESIGN\n"
    with pytest.raises(
        AblateError,
        match="with 3 factors, no fraction of resolution 4 .*resolution: 3}",
    ):
        combinations(loaded("fractional", few))
    assert len(combinations(loaded("{name: fractional, resolution: 3}", few))) == 4
    with pytest.raises(
        SpaceError, match="resolution is read by design fractional, not by grid"
    ):
        loaded("{name: grid, resolution: 3}")
    with pytest.raises(SpaceError, match="full is read by"):
        loaded("grid\nfull: {layout: parallel}")
