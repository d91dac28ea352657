"""Token mixers of T2T-ViT and LVT, and blocks with augmented shortcuts, against the
papers' formulas, written again slowly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ablate.backbones.lvt import (
    AtrousQueries,
    ConvolutionalSelfAttention,
    RecursiveAtrousSelfAttention,
)
from ablate.backbones.t2t import TokenPerformer, TokenTransformer, sinusoids
from ablate.families import resolve
from ablate.models import build
from tests.layers.slowly import (
    Arrays,
    agree,
    block_circulant,
    gelu,
    layer_norm,
    parameters,
    randomise,
    silu,
    softmax,
)


def affine(x: np.ndarray, at: Arrays, key: str) -> np.ndarray:
    """x W^T + b of the linear layer of that name, which may have no bias."""
    return x @ at[f"{key}.weight"].T + at.get(f"{key}.bias", np.zeros(()))


def norm(x: np.ndarray, at: Arrays, key: str, epsilon: float = 1e-5) -> np.ndarray:
    return layer_norm(x, at[f"{key}.weight"], at[f"{key}.bias"], epsilon)


def heads_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int
) -> np.ndarray:
    """Attention of one image's queries, keys and values (n, width), (m, width), (m,
    width).
    """
    size = q.shape[1] // heads
    parts = []
    for head in range(heads):
        at = slice(head * size, (head + 1) * size)
        parts.append(softmax(q[:, at] @ k[:, at].T / math.sqrt(size)) @ v[:, at])
    return np.concatenate(parts, axis=1)


def test_token_performer() -> None:
    """y_i = sum_j A_ij v_j / (sum_j A_ij + 1e-8) with A_ij = phi(q_i) . phi(k_j),
    phi(x) = exp(w x - |x|^2 / 2) / sqrt(m).

    The 1e-8 is the published code's; where tokens are long, kernels are small and it
    counts.
    """
    torch.manual_seed(0)
    layer = TokenPerformer(3, 4).eval()
    randomise(layer)
    x = torch.randn(2, 5, 3)
    directions = layer.directions.double().numpy()
    assert directions.shape == (2, 4)
    np.testing.assert_allclose(directions @ directions.T, 2 * np.eye(2), atol=1e-6)

    def phi(token: np.ndarray) -> np.ndarray:
        return np.array(
            [math.exp(w @ token - token @ token / 2) for w in directions]
        ) / math.sqrt(len(directions))

    def reference(at: Arrays) -> np.ndarray:
        result = np.zeros((2, 5, 4))
        for image in range(2):
            kqv = affine(norm(at["x"][image], at, "norm1"), at, "kqv")
            k, q, v = kqv[:, :4], kqv[:, 4:8], kqv[:, 8:]
            attended = np.zeros((5, 4))
            for i in range(5):
                weights = np.array([phi(q[i]) @ phi(k[j]) for j in range(5)])
                attended[i] = sum(
                    weights[j] / (weights.sum() + 1e-8) * v[j] for j in range(5)
                )
            y = v + affine(attended, at, "proj")
            hidden = gelu(affine(norm(y, at, "norm2"), at, "mlp.0"))
            result[image] = y + affine(hidden, at, "mlp.2")
        return result

    agree(lambda: layer(x), {"x": x, **parameters(layer)}, reference, entries=10)


def test_token_transformer() -> None:
    """One head as wide as the output; logits are divided by the square root of the
    input's channels, as published.
    """
    torch.manual_seed(1)
    layer = TokenTransformer(3, 4).eval()
    randomise(layer)
    x = torch.randn(2, 5, 3)

    def reference(at: Arrays) -> np.ndarray:
        result = np.zeros((2, 5, 4))
        for image in range(2):
            qkv = affine(norm(at["x"][image], at, "norm1"), at, "qkv")
            q, k, v = qkv[:, :4], qkv[:, 4:8], qkv[:, 8:]
            y = v + affine(softmax(q @ k.T / math.sqrt(3)) @ v, at, "proj")
            result[image] = y + affine(
                gelu(affine(norm(y, at, "norm2"), at, "mlp.fc1")), at, "mlp.fc2"
            )
        return result

    agree(lambda: layer(x), {"x": x, **parameters(layer)}, reference, entries=10)


@pytest.mark.parametrize(("positions", "width"), [(5, 6), (197, 8), (3, 2)])
def test_sinusoids(positions: int, width: int) -> None:
    expected = np.zeros((1, positions, width))
    for position in range(positions):
        for pair in range(width // 2):
            angle = position / 10000 ** (2 * pair / width)
            expected[0, position, 2 * pair], expected[0, position, 2 * pair + 1] = (
                math.sin(angle),
                math.cos(angle),
            )
    found = sinusoids(positions, width)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("height", "across", "heads"), [(4, 4, 2), (5, 3, 1), (2, 5, 2)]
)
def test_convolutional_self_attention(height: int, across: int, heads: int) -> None:
    """Around every second pixel, a 3 x 3 neighbourhood: each place p of it gets sum_q
    softmax_q(logits[p, q]) W_q x_q, with logits from the mean of 2 x 2 pixels; what
    neighbourhoods give to one pixel is added up.
    """
    torch.manual_seed(2)
    width = 4
    size = width // heads
    layer = ConvolutionalSelfAttention(width, heads, 0.0)
    randomise(layer)
    x = torch.randn(2, height, across, width)

    def one(image: np.ndarray, at: Arrays) -> np.ndarray:
        total = np.zeros((height, across, width))
        for a in range(math.ceil(height / 2)):
            for b in range(math.ceil(across / 2)):
                block = image[2 * a : 2 * a + 2, 2 * b : 2 * b + 2].reshape(-1, width)
                logits = affine(block.sum(0) / len(block), at, "attn").reshape(
                    heads, 9, 9
                ) / math.sqrt(size)
                # Where each place of the neighbourhood lies, and its value: zero
                # outside of the image.
                places = [
                    (2 * a + u - 1, 2 * b + v - 1) for u in range(3) for v in range(3)
                ]
                inside = [0 <= i < height and 0 <= j < across for i, j in places]
                values = np.zeros((9, width))
                for q, (i, j) in enumerate(places):
                    if inside[q]:
                        values[q] = (
                            at["weight.weight"][q * width : (q + 1) * width, :, 0, 0]
                            @ image[i, j]
                        )
                for head in range(heads):
                    channels, weights = (
                        slice(head * size, (head + 1) * size),
                        softmax(logits[head]),
                    )
                    for p, (i, j) in enumerate(places):
                        if inside[p]:
                            total[i, j, channels] += sum(
                                weights[p, q] * values[q, channels] for q in range(9)
                            )
        return affine(total, at, "proj")

    def reference(at: Arrays) -> np.ndarray:
        return np.stack([one(image, at) for image in at["x"]])

    agree(lambda: layer(x), {"x": x, **parameters(layer)}, reference, entries=8)


def atrous(image: np.ndarray, kernels: np.ndarray) -> np.ndarray:
    """Sum over the rates 1, 3, 5 of SiLU of the depthwise convolution at that dilation,
    of an image (channels, height, width).
    """
    _, height, across = image.shape
    total = np.zeros_like(image)
    for rate in (1, 3, 5):
        convolved = np.zeros_like(image)
        for i in range(height):
            for j in range(across):
                for u in (-1, 0, 1):
                    for v in (-1, 0, 1):
                        y, z = i + rate * u, j + rate * v
                        if 0 <= y < height and 0 <= z < across:
                            convolved[:, i, j] += (
                                kernels[:, 0, u + 1, v + 1] * image[:, y, z]
                            )
        total += silu(convolved)
    return total


def test_atrous_queries() -> None:
    torch.manual_seed(3)
    layer = AtrousQueries(2)
    randomise(layer)
    x = torch.randn(2, 2, 6, 7)

    def reference(at: Arrays) -> np.ndarray:
        return np.stack([atrous(image, at["weight"]) for image in at["x"]])

    agree(lambda: layer(x), {"x": x, **parameters(layer)}, reference, entries=9)


@pytest.mark.parametrize(
    ("grid", "reduction", "recursions"),
    [((3, 4), 1, 1), ((3, 4), 1, 2), ((2, 6), 2, 1), ((2, 6), 2, 2), ((2, 4), 1, 3)],
)
def test_recursive_atrous_self_attention(
    grid: tuple[int, int], reduction: int, recursions: int
) -> None:
    """One recursion is attention with atrous queries; with more, h_t = SiLU(ASA(x_t))
    and x_(t+1) = x_t + h_t.
    """
    torch.manual_seed(4)
    width, heads, (height, across) = 4, 2, grid
    layer = RecursiveAtrousSelfAttention(width, heads, reduction, recursions, 0.0)
    randomise(layer)
    assert layer.q.bias is None
    assert layer.kv.bias is None
    x = torch.randn(2, height, across, width)

    def attention(image: np.ndarray, at: Arrays) -> np.ndarray:
        queries = atrous(np.moveaxis(affine(image, at, "q"), -1, 0), at["ds.weight"])
        q = np.stack([queries[:, i, j] for i in range(height) for j in range(across)])
        source = image.reshape(-1, width)
        if reduction > 1:
            rows = []
            for i in range(0, height, reduction):
                for j in range(0, across, reduction):
                    patch = image[i : i + reduction, j : j + reduction]
                    rows.append(
                        np.einsum("uvc,ocuv->o", patch, at["sr.weight"]) + at["sr.bias"]
                    )
            source = norm(np.stack(rows), at, "norm")
        kv = affine(source, at, "kv")
        return affine(
            heads_attention(q, kv[:, :width], kv[:, width:], heads), at, "proj"
        ).reshape(height, across, width)

    def reference(at: Arrays) -> np.ndarray:
        result = []
        for image in at["x"]:
            state, out = image, attention(image, at)
            if recursions > 1:
                out = silu(out)
            for _ in range(1, recursions):
                state = state + out
                out = silu(attention(state, at))
            result.append(out)
        return np.stack(result)

    agree(lambda: layer(x), {"x": x, **parameters(layer)}, reference, entries=2)


def vit_block(settings: dict[str, Any]) -> tuple[Any, Tensor, int]:
    """The only block of DeiT-Ti with those settings, all of its parameters drawn again;
    tokens; and its heads.
    """
    torch.manual_seed(5)
    block: Any = build(
        resolve("deit_tiny_patch16_224", 32, 3, 10, {"size.depth": 1, **settings})
    ).blocks[0]
    width = block.norm1.weight.numel()
    randomise(block, width**-0.5)
    with torch.no_grad():
        block.norm1.weight.add_(1)
        block.norm2.weight.add_(1)
    return block, torch.randn(2, 5, width), block.attn.num_heads


def projected(
    x: np.ndarray, at: Arrays, key: str, count: int, biased: bool
) -> list[np.ndarray]:
    """x Theta_t + b_t for each path, or x Theta_t; Theta_t is block-circulant or any
    matrix.
    """
    width = x.shape[-1]
    if f"{key}.c" in at:
        thetas, name = (
            [block_circulant(at[f"{key}.c"][t]) for t in range(count)],
            f"{key}.bias",
        )
    else:
        thetas, name = (
            [
                at[f"{key}.linear.weight"][t * width : (t + 1) * width].T
                for t in range(count)
            ],
            f"{key}.linear.bias",
        )
    assert (name in at) is biased
    biases = at[name].reshape(count, width) if biased else np.zeros((count, width))
    return [x @ thetas[t] + biases[t] for t in range(count)]


def branch(
    x: np.ndarray, at: Arrays, name: str, heads: int
) -> tuple[np.ndarray, np.ndarray]:
    """LN(x), and MSA or MLP of it."""
    normed = norm(x, at, "norm1" if name == "msa" else "norm2", 1e-6)
    if name == "mlp":
        return normed, affine(gelu(affine(normed, at, "mlp.fc1")), at, "mlp.fc2")
    width = x.shape[-1]
    qkv = affine(normed, at, "attn.qkv")
    parts = [
        (one[:, :width], one[:, width : 2 * width], one[:, 2 * width :]) for one in qkv
    ]
    return normed, affine(
        np.stack([heads_attention(*part, heads) for part in parts]), at, "attn.proj"
    )


def published(
    z: np.ndarray, at: Arrays, heads: int, count: int, placement: str
) -> np.ndarray:
    """Two paths: 3/4 (x + MSA(LN(x)) + sum_t gelu(LN(x) Theta_t + bias_t)), then the
    same with the MLP.

    One path: no activation and no factor. A branch that has no paths is as it was.
    """
    for name in ("msa", "mlp"):
        normed, mixed = branch(z, at, name, heads)
        z = z + mixed
        if placement in (name, "both"):
            paths = projected(
                normed, at, f"{name}_paths.0.projection", count, biased=True
            )
            z = (
                z + paths[0]
                if count == 1
                else 3 / 4 * (z + gelu(paths[0]) + gelu(paths[1]))
            )
    return z


SMALL = {"size.width": 12, "size.heads": 3}


@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        {**SMALL, "shortcuts.b": 2},
        {**SMALL, "shortcuts.projection": "dense"},
        {**SMALL, "shortcuts.placement": "msa"},
        {**SMALL, "shortcuts.placement": "mlp"},
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_shortcuts_of_the_published_code(settings: dict[str, Any], count: int) -> None:
    block, x, heads = vit_block(
        {"shortcuts.count": count, "shortcuts.variant": "code", **settings}
    )
    placement = settings.get("shortcuts.placement", "both")

    def reference(at: Arrays) -> np.ndarray:
        return published(at["x"], at, heads, count, placement)

    agree(lambda: block(x), {"x": x, **parameters(block)}, reference, entries=2)


@pytest.mark.parametrize("count", [1, 2])
def test_shortcuts_of_the_published_code_at_full_width(count: int) -> None:
    block, x, heads = vit_block({"shortcuts.count": count, "shortcuts.variant": "code"})
    assert x.shape[-1] == 192
    at = {
        name: parameter.detach().double().numpy()
        for name, parameter in block.named_parameters()
    }
    expected = published(x.double().numpy(), at, heads, count, "both")
    np.testing.assert_allclose(
        block(x).detach().numpy(), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("count", "projection"), [(1, "dense"), (2, "circulant"), (3, "circulant")]
)
def test_shortcuts_of_the_text(count: int, projection: str) -> None:
    """x + MSA(LN(x)) + sum_t gelu(x Theta_t), then the same with the MLP
    (augmented-shortcuts, eq. 8, 9 and 11).
    """
    block, x, heads = vit_block(
        {"shortcuts.count": count, "shortcuts.projection": projection, **SMALL}
    )

    def reference(at: Arrays) -> np.ndarray:
        z = at["x"]
        for name in ("msa", "mlp"):
            z = (
                z
                + branch(z, at, name, heads)[1]
                + sum(
                    gelu(path)
                    for path in projected(
                        z, at, f"{name}_paths.0.projection", count, biased=False
                    )
                )
            )
        return z

    agree(lambda: block(x), {"x": x, **parameters(block)}, reference, entries=2)
