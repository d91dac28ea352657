"""The contract that every factor keeps. A new factor file is tested by being there.

The checks are those of `ablate check`.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from ablate import factors
from ablate.contracts import factor as contract
from ablate.contracts.check import BrokenContract
from ablate.factors.factor import Factor, Parameter
from ablate.records import Level

LEVELS = [
    (factor, parameter, level)
    for factor in factors.catalogue().values()
    for parameter in factor.parameters
    for level in parameter.typical
    # The contract is kept on a ViT; tests/families holds it elsewhere, and the losses,
    # which leave the network as it is.
    if factor.full_name(parameter.name) != "size.window" and factor.kind != "loss"
]
IDS = [
    f"{factor.full_name(parameter.name)}={level}" for factor, parameter, level in LEVELS
]
FACTORS = pytest.mark.parametrize(
    "factor", factors.catalogue().values(), ids=lambda factor: factor.name
)
EACH_LEVEL = pytest.mark.parametrize(("factor", "parameter", "level"), LEVELS, ids=IDS)


@FACTORS
def test_a_factor_says_what_it_is(factor: Factor) -> None:
    contract.check_description(factor)
    assert factor.kind in (
        "replace",
        "edit",
        "path",
        "arrange",
        "head",
        "size",
        "remove",
        "recipe",
        "loss",
    )


@pytest.mark.parametrize(
    "name",
    [
        "deit_tiny_patch16_224",
        "deit_small_patch16_224",
        "deit_tiny_distilled_patch16_224",
    ],
)
def test_neutral_levels_are_bit_for_bit_timms_model(name: str) -> None:
    neutral: dict[str, Level] = {}
    for factor in factors.catalogue().values():
        for parameter in factor.parameters:
            if parameter.default is not None:
                neutral[factor.full_name(parameter.name)] = parameter.default
    own: dict[str, Level] = {
        "size.pool": "distilled" if "distilled" in name else "token",
        "size.depth": 12,
        "size.patch_size": 16,
    }
    contract.check_equal_to_timm({**neutral, **own}, name)


def test_a_declared_vit_is_timms_class() -> None:
    torch.manual_seed(0)
    theirs = VisionTransformer(
        img_size=16,
        patch_size=2,
        embed_dim=24,
        depth=3,
        num_heads=3,
        mlp_ratio=4.0,
        num_classes=10,
    ).state_dict()
    ours = contract.small({}).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@EACH_LEVEL
def test_every_level_changes_the_model(
    factor: Factor, parameter: Parameter, level: Level
) -> None:
    contract.check_changes(factor, parameter, level)


@EACH_LEVEL
def test_every_level_trains_costs_and_copies(
    factor: Factor, parameter: Parameter, level: Level
) -> None:
    contract.check_gradients(factor, parameter, level)
    contract.check_cost(factor, parameter, level)
    contract.check_copies(factor, parameter, level)
    contract.check_alone(factor, parameter, level)


@EACH_LEVEL
@pytest.mark.parametrize(
    "backbone",
    [
        contract.PREFIXED[0],
        pytest.param(contract.PREFIXED[1], marks=pytest.mark.proof),
    ],
)
def test_any_number_of_prefix_tokens(
    backbone: str, factor: Factor, parameter: Parameter, level: Level
) -> None:
    contract.check_prefix_tokens(factor, parameter, level, backbone)


@pytest.mark.proof
def test_all_pairs_build_or_give_a_reason() -> None:
    pairs = itertools.combinations(factors.parameters(), 2)
    assert sum(contract.check_pair(one, two) for one, two in pairs) > 100


def test_shared_weights_start_equal_for_equal_seeds() -> None:
    plain = contract.small({}).state_dict()
    modified = contract.small(
        {"shortcuts.count": 2, "ffn.agelu": 2, "ffn.kernel": 3, "layout": "parallel"}
    ).state_dict()
    shared = [k for k in plain if k in modified and plain[k].shape == modified[k].shape]
    assert len(shared) > 0.7 * len(plain)
    assert all(torch.equal(plain[k], modified[k]) for k in shared)


def test_what_needs_neighbours_is_tried_with_them() -> None:
    factor, parameter = factors.find("shortcuts.b")
    found = contract.with_companions(factor, parameter, 4)
    assert found["shortcuts.b"] == 4
    assert found["shortcuts.count"]


def test_what_nothing_reads_breaks_the_contract() -> None:
    from dataclasses import replace

    factor, parameter = factors.find("shortcuts.b")
    alone = replace(factor, parameters=(parameter,))
    with pytest.raises((BrokenContract, KeyError)):
        contract.with_companions(alone, parameter, 4)
