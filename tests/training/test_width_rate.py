"""The learning rate of matrices by the width of their block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from ablate import space
from ablate.errors import SpaceError
from ablate.families import resolve
from ablate.learning.optimizers import make_optimizer
from ablate.models import build, places_of
from ablate.plan.plan import make_plan
from ablate.records import Cost, Recipe
from ablate.training import Training
from ablate.training.layer_order import layers_said
from ablate.training.width_rate import scale_by_width
from tests.training.test_training import LAYERED, RECIPE, train, trial

SCALED = replace(RECIPE, lr_width=64)
TEXT = """
question: q
backbone: {family: vit, patch_size: 4, width: 32, depth: 2, heads: 2}
factors: {layout: [serial, parallel]}
recipe: {lr_width: 16}
seeds: 1
"""


def scales_of(model: nn.Module, recipe: Recipe) -> dict[str, float]:
    """The factor of the rate of each parameter, by name."""
    with layers_said(model):
        optimizer = make_optimizer(model, recipe)
    scale_by_width(optimizer, model, recipe)
    by_id = {
        id(parameter): group["lr_scale"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    return {
        name: by_id[id(value)]
        for name, value in model.named_parameters()
        if value.requires_grad
    }


@pytest.mark.parametrize("backbone", LAYERED)
def test_linear_layers_of_blocks_have_the_rate_of_their_width(backbone: str) -> None:
    side, factors = LAYERED[backbone]
    model = build(resolve(backbone, side, 3, 5, factors))
    scales = scales_of(model, Recipe(lr_width=64))
    linear = {
        f"{place.name}.{name}.weight": 64 / place.site.width
        for place in places_of(model)
        for name, module in model.get_submodule(place.name).named_modules()
        if isinstance(module, nn.Linear)
        or (
            (
                isinstance(module, nn.Conv2d)
                and module.weight[0].numel() == module.in_channels
            )
            and module.groups == 1
        )
    }
    assert len(linear) >= 4
    assert scales == {name: linear.get(name, 1.0) for name in scales}
    decayed = scales_of(model, Recipe(layer_decay=0.5))
    both = scales_of(model, Recipe(layer_decay=0.5, lr_width=64))
    assert both == {name: decayed[name] * scales[name] for name in scales}


def test_the_schedule_and_the_reported_rate_are_those_of_the_recipe() -> None:
    training = Training(trial(replace(SCALED, warmup_epochs=0)), None)
    groups = training._optimizer.param_groups
    width = places_of(training._model)[0].site.width
    assert {group["lr"] for group in groups} == {RECIPE.lr, RECIPE.lr * (64 / width)}
    assert training.epoch().lr < RECIPE.lr
    plain = Training(trial(replace(RECIPE, warmup_epochs=0)), None)
    assert training.epochs[0].lr == plain.epoch().lr


def test_a_resumed_training_is_the_same(tmp_path: Path) -> None:
    straight, weights = train(trial(SCALED), tmp_path / "straight")
    resumed, others = train(trial(SCALED), tmp_path / "resumed", (1,))
    assert resumed == straight
    assert all(torch.equal(weights[key], others[key]) for key in weights)
    plain, _ = train(trial(RECIPE), tmp_path / "plain")
    assert plain != straight


def test_the_rate_of_a_network_of_that_width_is_unchanged(tmp_path: Path) -> None:
    width = places_of(Training(trial(RECIPE), None)._model)[0].site.width
    same, _ = train(trial(replace(RECIPE, lr_width=width)), tmp_path / "same")
    plain, _ = train(trial(RECIPE), tmp_path / "plain")
    assert same == plain


def test_a_backbone_without_known_blocks_is_refused() -> None:
    text = TEXT.replace(
        "{family: vit, patch_size: 4, width: 32, depth: 2, heads: 2}", "resnet18"
    ).replace("layout: [serial, parallel]", "recipe.lr: [1e-3, 2e-3]")
    plan = make_plan(space.load(text, "a.yaml"), lambda architecture: Cost(*[1] * 6))
    assert "does not know those of resnet18; leave it out" in plan.cells[0].note


def test_another_optimizer_does_not_read_it() -> None:
    text = TEXT.replace("lr_width: 16", "lr_width: 16, optimizer: sgd")
    with pytest.raises(SpaceError, match="optimizer is adamw"):
        space.load(text, "a.yaml")
