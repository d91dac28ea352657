"""Patch diversification: talking heads against the authors' block, and references of their losses
and mixing."""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.published_code import common
from tests.published_code import patch_diversification as published
from tests.published_code.package import DEPTH, HEADS, SIDE, agree, images, vit, weights_of

NAMES = {"attn.edits.logits.0.mix": "attn.proj_pre", "attn.edits.weights.0.mix": "attn.proj_post"}
CLASSES = 4


def doubles(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def test_talking_heads_are_the_published_ones() -> None:
    model = vit(talking_heads="both")
    x = images()
    block = partial(published.block, heads=HEADS)
    agree(lambda: model(x), lambda: common.vit(x, weights_of(model, NAMES), SIDE, DEPTH, block), model)


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
    gradients = [torch.autograd.grad(loss, h, retain_graph=True)[0] for loss in (found, expected)]
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
    head = {"patch_head.weight": doubles(CLASSES, width), "patch_head.bias": doubles(CLASSES)}
    mask = published.rectangle(side, 0.5, random.Random(0).randint)
    targets = [doubles(2, CLASSES).softmax(-1) for _ in range(2)]
    kept = [torch.bernoulli(torch.full((2, width), 0.8, dtype=torch.float64)) / 0.8 for _ in range(2)]
    expected = h.new_zeros(())
    for region, target, factor in zip((mask, 1 - mask), targets, kept, strict=True):
        mean = torch.einsum("bnw,n->bw", h, region) / (region.sum() + 1e-4)
        logits = F.linear(mean * factor, head["patch_head.weight"], head["patch_head.bias"])
        loss = F.kl_div(torch.log(logits.softmax(-1) + 1e-8), target, reduction="batchmean")
        expected = expected + region.mean() * loss
    found = published.mixing_loss(h, [mask, 1 - mask], targets, head, kept)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(loss, h, retain_graph=True)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_an_empty_region_has_no_part_in_the_loss() -> None:
    torch.manual_seed(2)
    h = doubles(2, 4, 3)
    head = {"patch_head.weight": doubles(CLASSES, 3), "patch_head.bias": doubles(CLASSES)}
    targets = [doubles(2, CLASSES).softmax(-1) for _ in range(2)]
    empty, full = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    both = published.mixing_loss(h, [empty, full], targets, head)
    torch.testing.assert_close(both, published.mixing_loss(h, [full], targets[1:], head), rtol=0, atol=0)


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
    pixels = mask.reshape(1, 1, side, side).repeat_interleave(2, 2).repeat_interleave(2, 3)
    expected = pixels * x + (1 - pixels) * x[partner]
    assert torch.equal(published.mixed_images(x, mask, partner), expected)
    mixed, targets, masks = published.mixed_targets(y, mask, partner)
    share = pixels.mean()
    torch.testing.assert_close(mixed, share * y + (1 - share) * y[partner], rtol=0, atol=1e-15)
    assert torch.equal(targets[0], y)
    assert torch.equal(targets[1], y[partner])
    assert torch.equal(masks[0] + masks[1], torch.ones(9, dtype=torch.float64))
    assert 0 < share < 1


def test_training_loss_is_the_sum_of_three_terms() -> None:
    torch.manual_seed(5)
    h, e, logits, partner = doubles(2, 4, 3), doubles(2, 4, 3), doubles(2, CLASSES), [1, 0]
    y = doubles(2, CLASSES).softmax(-1)
    head = {"patch_head.weight": doubles(CLASSES, 3), "patch_head.bias": doubles(CLASSES)}
    mask = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    mixed = y / 4 + y[partner] * 3 / 4
    expected = -(mixed * torch.log(logits.softmax(-1) + 1e-8)).sum(-1).mean()
    expected = expected + published.contrastive_loss(e, h)
    expected = expected + published.mixing_loss(h, [mask, 1 - mask], [y, y[partner]], head)
    found = published.training_loss(logits, y, e, h, mask, partner, head)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
