"""Factors under a head: those of blocks change the network, others give a reason."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from ablate import factors, families
from ablate.cost import count
from ablate.errors import Infeasible
from ablate.models import build
from ablate.records import Architecture, Level
from tests.families.test_families import LEVELS, SMALL, levels_on
from tests.heads.weights import quickly_built

FAMILIES = [
    family for family in families.families().values() if family.features is not None
]
# What a classifier has and other heads have not.
OF_CLASSIFIERS = ("patch", "representation")
# What cannot be seen in a pass without training.
IN_TRAINING = ("drop",)
SIZE = (64, 96)


def architecture(family: str, **settings: Level) -> Architecture:
    name, _, sizes = SMALL[family]
    height, width = SIZE
    return families.resolve(
        name,
        height,
        3,
        10,
        {**sizes, **settings},
        head="upernet-small",
        image_width=width,
    )


def maps_of(wanted: Architecture) -> torch.Tensor:
    # Parameters that start at zero, such as scales, would change nothing yet.
    model = quickly_built(wanted).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        maps: torch.Tensor = model(torch.randn(1, 3, *SIZE, generator=generator))
    return maps


@cache
def plain_maps_of(family: str) -> torch.Tensor:
    """The maps of the family's network without any factor."""
    return maps_of(architecture(family))


@pytest.mark.parametrize("factor", sorted(factors.catalogue()))
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(
            family,
            id=family.name,
            marks=() if family.name == "vit" else pytest.mark.proof,
        )
        for family in FAMILIES
    ],
)
def test_a_factor_of_blocks_changes_what_a_head_sees(
    family: families.Family, factor: str
) -> None:
    found = factors.catalogue()[factor]
    levels = levels_on(family, found)
    wanted = architecture(family.name, **levels)
    slots = set(found.needs) & set(family.lacks)
    if factor in OF_CLASSIFIERS or slots:
        with pytest.raises(Infeasible, match="is (not )?defined on"):
            build(wanted)
        return
    if not levels:
        with pytest.raises(Infeasible, match="cannot be changed on"):
            build(architecture(family.name, **LEVELS[factor]))
        return
    seen = maps_of(wanted)
    assert seen.isfinite().all()
    if factor not in IN_TRAINING:
        plain = plain_maps_of(family.name)
        assert plain.shape != seen.shape or not torch.equal(plain, seen)
    assert count(wanted).flops > 0
