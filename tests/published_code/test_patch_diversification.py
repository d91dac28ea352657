"""Patch diversification: talking heads against the authors' block, and references of
their losses and mixing.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.errors import Infeasible
from ablate.families import resolve
from ablate.layers import patch_losses
from ablate.layers.patch_losses import Regions
from ablate.learning.patches import PatchTerms, mix_on_grid
from ablate.models import build
from ablate.records import Architecture, Level
from ablate.training import Training
from tests.published_code import common, oversmoothing, text
from tests.published_code import patch_diversification as published
from tests.published_code.package import (
    DEPTH,
    HEADS,
    IMAGE,
    SIDE,
    VIT,
    agree,
    images,
    randomise,
    vit,
    weights_of,
)
from tests.training.test_training import RECIPE, trial

NAMES = {
    "attn.edits.logits.0.mix": "attn.proj_pre",
    "attn.edits.weights.0.mix": "attn.proj_post",
}
CLASSES = 4


def doubles(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def test_talking_heads_are_the_published_ones() -> None:
    model = vit(talking_heads="both")
    x = images()
    block = partial(published.block, heads=HEADS)
    agree(
        lambda: model(x),
        lambda: common.vit(x, weights_of(model, NAMES), SIDE, DEPTH, block),
        model,
    )


@pytest.mark.parametrize("side", [2, 3, 8])
def test_contrastive_loss(side: int) -> None:
    """Against convolutions: the kernel of the neighbourhood has a hole in its middle."""
    torch.manual_seed(0)
    n = side * side
    e, h = doubles(2, n, 5), doubles(2, n, 5).requires_grad_()
    grid = h.transpose(1, 2).unflatten(2, (side, side))
    hole = torch.ones(5, 1, 7, 7, dtype=torch.float64) / 48
    hole[:, :, 3, 3] = 0.0
    near = F.conv2d(grid, hole, padding=3, groups=5).flatten(2).transpose(1, 2)
    far = (h.sum(1, keepdim=True) - h) / (n - 1)
    logits = torch.stack([(e * other).sum(-1) for other in (h, far, near)], dim=-1)
    expected = -torch.log(logits.softmax(-1)[..., 0] + 1e-8).mean()
    found = published.contrastive_loss(e, h)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [
        torch.autograd.grad(loss, h, retain_graph=True)[0] for loss in (found, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_contrastive_loss_gives_no_gradient_to_the_first_tokens() -> None:
    torch.manual_seed(0)
    e, h = doubles(1, 4, 3).requires_grad_(), doubles(1, 4, 3).requires_grad_()
    published.contrastive_loss(e, h).backward()
    assert e.grad is None
    assert h.grad is not None


def test_contrastive_loss_is_bounded_by_the_added_probability() -> None:
    """A positive pair that has no probability at all costs -log(1e-8)."""
    e = torch.tensor([[[1.0], [1.0], [1.0], [1.0]]], dtype=torch.float64)
    h = torch.tensor([[[-1e3], [1e3], [1e3], [1e3]]], dtype=torch.float64)
    least = -torch.log(torch.tensor(1e-8, dtype=torch.float64)) / 4
    assert published.contrastive_loss(e, h) > least - 1e-6


def test_mixing_loss() -> None:
    torch.manual_seed(1)
    side, width = 3, 5
    h = doubles(2, side * side, width).requires_grad_()
    head = {
        "patch_head.weight": doubles(CLASSES, width),
        "patch_head.bias": doubles(CLASSES),
    }
    mask = published.rectangle(side, 0.5, random.Random(0).randint)
    targets = [doubles(2, CLASSES).softmax(-1) for _ in range(2)]
    kept = [
        torch.bernoulli(torch.full((2, width), 0.8, dtype=torch.float64)) / 0.8
        for _ in range(2)
    ]
    expected = h.new_zeros(())
    for region, target, factor in zip((mask, 1 - mask), targets, kept, strict=True):
        mean = torch.einsum("bnw,n->bw", h, region) / (region.sum() + 1e-4)
        logits = F.linear(
            mean * factor, head["patch_head.weight"], head["patch_head.bias"]
        )
        loss = F.kl_div(
            torch.log(logits.softmax(-1) + 1e-8), target, reduction="batchmean"
        )
        expected = expected + region.mean() * loss
    found = published.mixing_loss(h, [mask, 1 - mask], targets, head, kept)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [
        torch.autograd.grad(loss, h, retain_graph=True)[0] for loss in (found, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_an_empty_region_has_no_part_in_the_loss() -> None:
    torch.manual_seed(2)
    h = doubles(2, 4, 3)
    head = {
        "patch_head.weight": doubles(CLASSES, 3),
        "patch_head.bias": doubles(CLASSES),
    }
    targets = [doubles(2, CLASSES).softmax(-1) for _ in range(2)]
    empty, full = (
        torch.zeros(4, dtype=torch.float64),
        torch.ones(4, dtype=torch.float64),
    )
    both = published.mixing_loss(h, [empty, full], targets, head)
    torch.testing.assert_close(
        both, published.mixing_loss(h, [full], targets[1:], head), rtol=0, atol=0
    )


@pytest.mark.parametrize("side", [1, 2, 7, 14])
def test_rectangles(side: int) -> None:
    """Each is one rectangle on the grid, of at most the area that the share asks for."""
    draw = random.Random(side)
    for share in (0.0, 0.01, 0.3, 0.5, 0.97, 1.0):
        for _ in range(20):
            mask = published.rectangle(side, share, draw.randint).reshape(side, side)
            rows, columns = mask.amax(1), mask.amax(0)
            assert torch.equal(mask, torch.outer(rows, columns))
            assert mask.sum() <= int(side * side * share)
            for line in (rows, columns):
                inside = line.nonzero().flatten()
                assert len(inside) == 0 or inside[-1] - inside[0] == len(inside) - 1


def test_mixing_of_two_images_and_its_targets() -> None:
    torch.manual_seed(3)
    side, partner = 3, [2, 0, 1]
    x, y = doubles(3, 2, 6, 6), doubles(3, CLASSES).softmax(-1)
    mask = published.rectangle(side, 0.5, random.Random(4).randint)
    pixels = (
        mask.reshape(1, 1, side, side).repeat_interleave(2, 2).repeat_interleave(2, 3)
    )
    expected = pixels * x + (1 - pixels) * x[partner]
    assert torch.equal(published.mixed_images(x, mask, partner), expected)
    mixed, targets, masks = published.mixed_targets(y, mask, partner)
    share = pixels.mean()
    torch.testing.assert_close(
        mixed, share * y + (1 - share) * y[partner], rtol=0, atol=1e-15
    )
    assert torch.equal(targets[0], y)
    assert torch.equal(targets[1], y[partner])
    assert torch.equal(masks[0] + masks[1], torch.ones(9, dtype=torch.float64))
    assert 0 < share < 1


def test_training_loss_is_the_sum_of_three_terms() -> None:
    torch.manual_seed(5)
    h, e, logits, partner = (
        doubles(2, 4, 3),
        doubles(2, 4, 3),
        doubles(2, CLASSES),
        [1, 0],
    )
    y = doubles(2, CLASSES).softmax(-1)
    head = {
        "patch_head.weight": doubles(CLASSES, 3),
        "patch_head.bias": doubles(CLASSES),
    }
    mask = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    mixed = y / 4 + y[partner] * 3 / 4
    expected = -(mixed * torch.log(logits.softmax(-1) + 1e-8)).sum(-1).mean()
    expected = expected + published.contrastive_loss(e, h)
    expected = expected + published.mixing_loss(
        h, [mask, 1 - mask], [y, y[partner]], head
    )
    found = published.training_loss(logits, y, e, h, mask, partner, head)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_loss_of_the_classes_is_that_of_the_code(tmp_path: Path) -> None:
    """It matters where the network is sure and wrong: the loss of one image ends at
    18.4, -log(1e-8).
    """
    recipe = replace(RECIPE, cutmix=1.0)
    training = Training(
        trial(recipe, **{"patch.variant": "code", "patch.mixing": 1.0}),
        tmp_path / "code",
    )
    plain = Training(trial(recipe, **{"patch.mixing": 1.0}), tmp_path / "text")
    logits = torch.tensor([[40.0, 0.0, -3.0], [0.5, 0.25, 0.0]], dtype=torch.float64)
    targets = torch.tensor([[0.0, 0.75, 0.25], [0.5, 0.5, 0.0]], dtype=torch.float64)
    softmax = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(axis=1, keepdims=True)
    expected = -(targets.numpy() * np.log(softmax + 1e-8)).sum(axis=1).mean()
    found = training._work.step.loss(logits, targets).item()
    without = plain._work.step.loss(logits, targets).item()
    with torch.autocast("cpu", dtype=torch.float16):
        half = training._work.step.loss(10 * logits.half(), targets.half()).item()
    training.close()
    plain.close()
    assert np.isfinite(half), "1e-8 is nothing in half precision"
    assert found == pytest.approx(expected, abs=1e-12)
    assert without > found + 1


PATCH_CLASSES = 5


@pytest.mark.parametrize(
    "loss", ["cosine", "contrastive"]
)  # 5e-9, 3e-8, and dtype float32
def test_losses_in_float64_stay_in_float64(loss: str) -> None:
    torch.manual_seed(0)
    e, h = (
        torch.randn(2, 9, 12, dtype=torch.float64),
        torch.randn(2, 9, 12, dtype=torch.float64),
    )
    found, expected = {
        "cosine": lambda: (patch_losses.cosine_loss(h), text.cosine_loss(h)),
        "contrastive": lambda: (
            patch_losses.contrastive_loss(e, h),
            text.contrastive_loss(e, h),
        ),
    }[loss]()
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_mixing_loss_in_float64_stays_in_float64() -> None:  # 4e-9
    torch.manual_seed(0)
    logits, labels = (
        torch.randn(2, 9, PATCH_CLASSES, dtype=torch.float64) for _ in range(2)
    )
    labels = labels.softmax(-1)
    found = patch_losses.mixing_loss(logits, labels)
    torch.testing.assert_close(
        found, text.mixing_loss(logits, labels), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize(
    "pool", ["token", "mean"]
)  # token passes; mean: 7.5, tokens of std 2.3 instead of normed ones
def test_last_tokens_are_normed_whatever_the_pooling(pool: str) -> None:
    settings = (
        VIT
        | {"patch.contrastive": 1.0}
        | ({"size.pool": "mean"} if pool == "mean" else {})
    )
    architecture: Architecture = resolve("vit", IMAGE, 3, PATCH_CLASSES, settings)
    torch.manual_seed(0)
    model = build(architecture).double()
    randomise(model)
    terms = PatchTerms(architecture, model)
    model.train()
    x = images()
    model(x)
    weights = weights_of(model, {"fc_norm": "norm"})
    tokens = common.patches(x, weights, SIDE)
    if pool == "token":
        tokens = torch.cat([weights["cls_token"].expand(len(x), 1, -1), tokens], dim=1)
    tokens = tokens + weights["pos_embed"]
    for index in range(DEPTH):
        tokens = oversmoothing.deit_block(
            tokens, common.under(weights, f"blocks.{index}."), HEADS
        )
    expected = common.norm(tokens, weights, "norm")[:, 1 if pool == "token" else 0 :]
    torch.testing.assert_close(terms._last, expected, rtol=0, atol=1e-10)


CODE: dict[str, Level] = {
    "patch.contrastive": 1.0,
    "patch.mixing": 1.0,
    "patch.variant": "code",
}


def test_the_published_losses_of_a_network() -> None:
    """Early tokens, last tokens, both losses and their gradients, from images to the
    sum.
    """
    architecture = resolve("vit", IMAGE, 3, PATCH_CLASSES, VIT | CODE)
    torch.manual_seed(0)
    model = build(architecture).double()
    randomise(model)
    terms = PatchTerms(architecture, model).double()
    randomise(terms)
    module: Any = terms.terms["patch"]
    model.train()
    kept = [
        torch.bernoulli(torch.full((2, 12), 0.8, dtype=torch.float64)) / 0.8
        for _ in range(2)
    ]
    draws = iter(kept)
    module.drop.register_forward_hook(lambda _, inputs, output: inputs[0] * next(draws))
    x = images()
    model(x)
    weights = weights_of(model)
    e = common.patches(x, weights, SIDE)
    tokens = (
        torch.cat([weights["cls_token"].expand(len(x), 1, -1), e], dim=1)
        + weights["pos_embed"]
    )
    for index in range(DEPTH):
        tokens = oversmoothing.deit_block(
            tokens, common.under(weights, f"blocks.{index}."), HEADS
        )
    h = common.norm(tokens, weights, "norm")[:, 1:]
    mask = torch.tensor([1.0, 1, 0, 1, 1, 0, 0, 0, 0], dtype=torch.float64)
    own, other = (
        torch.randn(2, PATCH_CLASSES, dtype=torch.float64).softmax(-1) for _ in range(2)
    )
    head = {
        f"patch_head.{name}": tensor for name, tensor in module.head.named_parameters()
    }
    mixing = published.mixing_loss(h, [mask, 1 - mask], [own, other], head, kept)
    expected = mixing + published.contrastive_loss(e, h)
    found = terms(Regions(mask, own, other))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    leaves = [
        *module.head.parameters(),
        model.get_submodule("blocks.0").get_parameter("attn.qkv.weight"),
    ]
    for ours, theirs in zip(
        torch.autograd.grad(found, leaves),
        torch.autograd.grad(expected, leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_two_images_are_mixed_on_the_patch_grid_as_published(seed: int) -> None:
    side = 4
    inputs = torch.randn(6, 3, 8, 8, dtype=torch.float64)
    labels = torch.randn(6, PATCH_CLASSES, dtype=torch.float64).softmax(-1)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    mixed, targets, regions = mix_on_grid(inputs, labels, (side, side))
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    mask = published.rectangle(side, float(np.random.beta(1.0, 1.0)), random.randint)
    partner = torch.randperm(6).tolist()
    expected, (own, other), _ = published.mixed_targets(labels, mask, partner)
    torch.testing.assert_close(
        mixed, published.mixed_images(inputs, mask, partner), rtol=0, atol=0
    )
    torch.testing.assert_close(targets, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(regions.mask, mask, rtol=0, atol=0)
    torch.testing.assert_close(regions.own, own, rtol=0, atol=0)
    torch.testing.assert_close(regions.other, other, rtol=0, atol=0)


def test_the_published_code_has_no_cosine_loss() -> None:
    architecture = resolve(
        "vit", IMAGE, 3, PATCH_CLASSES, VIT | CODE | {"patch.cosine": 1.0}
    )
    with pytest.raises(
        Infeasible, match="set patch.cosine to 0, or patch.variant to text"
    ):
        PatchTerms(architecture, build(architecture))
