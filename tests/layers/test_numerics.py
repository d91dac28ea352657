"""Layers against the papers' formulas, written again here slowly, in float64, with
explicit matrices and loops.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from ablate.layers.circulant import CirculantProjection
from ablate.layers.ffn import ArbitraryActivations, DepthwiseBlock, FeedForward, narrow
from ablate.layers.shortcuts import (
    ActivationOnly,
    ActivationProjection,
    DenseProjection,
    ProjectionActivation,
    ProjectionOnly,
)


def gelu(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))))(x)


def dense_theta(c: np.ndarray) -> np.ndarray:
    """Theta of one projection from its generating vectors (b, b, w), entry by entry
    (eq. 12 and 13).
    """
    b, _, w = c.shape
    theta = np.zeros((b * w, b * w))
    for i in range(b):
        for j in range(b):
            for r in range(w):
                for s in range(w):
                    theta[i * w + r, j * w + s] = c[i, j, (r - s) % w]
    return theta


@pytest.mark.parametrize(
    ("width", "blocks", "count"),
    [(8, 1, 1), (8, 2, 3), (12, 4, 2), (15, 3, 2), (6, 6, 1), (7, 1, 2)],
)
@pytest.mark.parametrize("matrices", [False, True])
def test_circulant_projection_is_a_product_with_theta(
    width: int, blocks: int, count: int, *, matrices: bool
) -> None:
    """Also as on a GPU, by matrices that are written out."""
    torch.manual_seed(0)
    layer = CirculantProjection(width, blocks, count)
    assert sum(p.numel() for p in layer.parameters()) == count * blocks * width
    z = torch.randn(2, 5, width, requires_grad=True)
    weight = torch.randn(2, 5, count, width)
    if matrices:
        out = (z @ layer.matrices()).unflatten(-1, (count, width))
    else:
        out = layer(z)
    (out * weight).sum().backward()

    thetas = [dense_theta(layer.c[t].detach().double().numpy()) for t in range(count)]
    z64 = z.detach().double().numpy()
    expected = np.stack([z64 @ theta for theta in thetas], axis=-2)
    np.testing.assert_allclose(out.detach().numpy(), expected, atol=1e-5)
    expected_z = sum(
        weight.double().numpy()[..., t, :] @ thetas[t].T for t in range(count)
    )
    np.testing.assert_allclose(z.grad.numpy(), expected_z, atol=1e-5)
    w = width // blocks
    expected_c = np.zeros((count, blocks, blocks, w))
    for t in range(count):
        full = np.einsum("bni,bnj->ij", z64, weight.double().numpy()[..., t, :])
        for r in range(width):
            for s in range(width):
                expected_c[t, r // w, s // w, (r % w - s % w) % w] += full[r, s]
    np.testing.assert_allclose(layer.c.grad.numpy(), expected_c, atol=1e-4)


def test_circulant_projection_in_half_precision_keeps_its_dtype() -> None:
    layer = CirculantProjection(8, 2)
    z = torch.randn(3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = layer(z.bfloat16())
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), layer(z), atol=0.02, rtol=0.05)


def test_circulant_blocks_must_divide() -> None:
    with pytest.raises(ValueError, match="the width 8 is not a multiple of 3"):
        CirculantProjection(8, 3)


def test_orders_of_a_shortcut() -> None:
    torch.manual_seed(1)
    projection = CirculantProjection(8, 2, 3)
    z = torch.randn(2, 4, 8)
    z64, thetas = (
        z.double().numpy(),
        [dense_theta(c.detach().double().numpy()) for c in projection.c],
    )
    expected = {
        ProjectionActivation: sum(gelu(z64 @ theta) for theta in thetas),
        ActivationProjection: sum(gelu(z64) @ theta for theta in thetas),
        ProjectionOnly: sum(z64 @ theta for theta in thetas),
    }
    for order, value in expected.items():
        np.testing.assert_allclose(
            order(projection)(z).detach().numpy(), value, atol=1e-5
        )
    np.testing.assert_allclose(ActivationOnly(3)(z).numpy(), 3 * gelu(z64), atol=1e-5)


def test_dense_projection_is_one_matrix_a_path() -> None:
    layer = DenseProjection(4, 2)
    z = torch.randn(3, 4)
    weights = layer.linear.weight.detach().double().numpy().reshape(2, 4, 4)
    expected = np.stack([z.double().numpy() @ w.T for w in weights], axis=1)
    np.testing.assert_allclose(layer(z).detach().numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_agelus_are_concatenated(count: int) -> None:
    torch.manual_seed(2)
    layer = ArbitraryActivations(5, count, torch.nn.GELU())
    x = torch.randn(2, 3, 5)
    np.testing.assert_allclose(
        layer(x).detach().numpy(),
        np.concatenate([gelu(x.double().numpy())] * count, axis=-1),
        atol=1e-6,
    )
    for p in layer.parameters():
        torch.nn.init.normal_(p)
    a, b, g, t = (
        p.detach().double().numpy().reshape(count, 5)
        for p in (layer.alpha, layer.beta, layer.gamma, layer.theta)
    )
    expected = np.concatenate(
        [b[k] * gelu(a[k] * x.double().numpy() + g[k]) + t[k] for k in range(count)],
        axis=-1,
    )
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, atol=1e-5)
    assert sum(p.numel() for p in layer.parameters()) == 4 * 5 * count


@pytest.mark.parametrize(("kernel", "prefix"), [(1, 0), (3, 1), (5, 2), (7, 0)])
def test_depthwise_block_over_the_grid(kernel: int, prefix: int) -> None:
    torch.manual_seed(3)
    height, width, channels = 3, 4, 2
    layer = DepthwiseBlock(channels, kernel, (height, width), prefix).eval()
    layer.norm.running_mean.normal_()
    layer.norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, prefix + height * width, channels)
    x64 = x.double().numpy()
    w, bias = (
        layer.conv.weight.detach().double().numpy(),
        layer.conv.bias.detach().double().numpy(),
    )
    mean, var = (
        layer.norm.running_mean.double().numpy(),
        layer.norm.running_var.double().numpy(),
    )
    expected, half = x64.copy(), kernel // 2
    for n in range(2):
        for i in range(height):
            for j in range(width):
                for c in range(channels):
                    total = bias[c]
                    for u in range(kernel):
                        for v in range(kernel):
                            y, k = i + u - half, j + v - half
                            if 0 <= y < height and 0 <= k < width:
                                total += (
                                    w[c, 0, u, v] * x64[n, prefix + y * width + k, c]
                                )
                    normed = (total - mean[c]) / math.sqrt(var[c] + layer.norm.eps)
                    expected[n, prefix + i * width + j, c] += gelu(np.array([normed]))[
                        0
                    ]
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, atol=1e-5)
    assert torch.equal(layer(x)[:, :prefix], x[:, :prefix])


def test_feed_forward_structure() -> None:
    torch.manual_seed(4)
    parts = (
        torch.nn.Linear(4, 6),
        ArbitraryActivations(6, 2, torch.nn.GELU()),
        torch.nn.LayerNorm(12),
    )
    fc2, norm2 = torch.nn.Linear(12, 4), torch.nn.LayerNorm(4)
    layer = FeedForward(*parts, torch.nn.Identity(), fc2, norm2, dropout=0.0)
    x = torch.randn(1, 3, 4)
    y: Tensor = x
    for part in (*parts, fc2, norm2):
        y = part(y)
    assert torch.equal(layer(x), y)


def test_narrow_keeps_the_first_rows() -> None:
    linear = torch.nn.Linear(3, 8)
    small = narrow(linear, 2)
    assert torch.equal(small.weight, linear.weight[:2])
    assert torch.equal(small.bias, linear.bias[:2])
