"""Which parameters have weight decay, by the rule and as in the authors' code."""

from __future__ import annotations

import pytest
from timm.optim import create_optimizer_v2
from torch import nn

from ablate.records import Recipe
from ablate.training.decay import apply_exceptions
from tests.published_code.package import vit


def decayed(model: nn.Module, recipe: Recipe) -> set[str]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizer = create_optimizer_v2(
        model, opt="adamw", lr=1e-3, weight_decay=recipe.weight_decay
    )
    apply_exceptions(optimizer, model, recipe)
    every = [
        names[id(parameter)]
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    assert sorted(every) == sorted(names.values())
    groups = (group for group in optimizer.param_groups if group["weight_decay"])
    return {names[id(parameter)] for group in groups for parameter in group["params"]}


@pytest.mark.parametrize(("rule", "decays"), [("rule", True), ("code", False)])
def test_circulant_weights(rule: str, decays: bool) -> None:
    model = vit(shortcuts__count=2, shortcuts__b=2, shortcuts__variant="code")
    found = decayed(model, Recipe(factor_decay=rule))
    assert any("projection.c" in name for name in found) == decays
    assert "blocks.0.attn.qkv.weight" in found


@pytest.mark.parametrize(
    ("rule", "names"), [("rule", set()), ("code", {"alpha", "beta"})]
)
def test_agelus(rule: str, names: set[str]) -> None:
    found = decayed(vit(ffn__agelu=2, ffn__kernel=3), Recipe(factor_decay=rule))
    assert {name.rpartition(".")[2] for name in found if ".act." in name} == names


@pytest.mark.parametrize("rule", ["rule", "code"])
def test_scales_and_biases_of_summed_activations_do_not_decay(rule: str) -> None:
    found = decayed(vit(ffn__agelu=1, ffn__form="sum"), Recipe(factor_decay=rule))
    assert not [name for name in found if ".mlp." in name]


def test_without_weight_decay_nothing_decays() -> None:
    assert (
        decayed(vit(ffn__agelu=2), Recipe(factor_decay="code", weight_decay=0.0))
        == set()
    )
