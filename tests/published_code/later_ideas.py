"""The equations of LayerScale, RMS norm, QK-norm, rotary positions, registers and value
residuals, token by token and head by head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.published_code.common import (
    VIT_EPS,
    Weights,
    affine,
    layer_norm,
    mlp,
    on_tokens,
    patches,
    softmax,
    split,
    under,
)
from tests.published_code.common import norm as layer_norms


@dataclass(frozen=True)
class Idea:
    """What differs from a plain ViT."""

    rms: bool = False
    qk_norm: str = "none"
    rotary: bool = False
    registers: int = 0
    scaled: bool = False
    value_residual: float = 0.0


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """`x_i / sqrt(mean_j x_j^2 + eps) g_i` of a vector."""
    squares = sum(float(1) * entry * entry for entry in x) / len(x)
    return torch.stack(
        [
            entry / torch.sqrt(squares + VIT_EPS) * g
            for entry, g in zip(x, weight, strict=True)
        ]
    )


def rotated(vector: Tensor, row: int, column: int) -> Tensor:
    """A vector of d channels as d / 2 complex numbers: the first d / 4 are turned by
    `row 100^(-4t / d)`, the others by `column 100^(-4t / d)`.
    """
    quarter = len(vector) // 4
    turned = []
    for axis, position in enumerate((row, column)):
        for t in range(quarter):
            at = 2 * (axis * quarter + t)
            angle = position * 100 ** (-t / quarter)
            number = torch.complex(vector[at], vector[at + 1])
            turn = complex(math.cos(angle), math.sin(angle))
            product = number * turn
            turned += [product.real, product.imag]
    return torch.stack(turned)


def normed(vector: Tensor, weights: Weights, kind: str) -> Tensor:
    if kind == "rms":
        return rms_norm(vector, weights["weight"])
    return layer_norm(vector, weights["weight"], weights["bias"], VIT_EPS)


def attention(
    tokens: Tensor,
    weights: Weights,
    heads: int,
    idea: Idea,
    side: int,
    prefix: int,
    first: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Attention of one image, (n, width), and its values, (heads, n, size)."""
    width = tokens.shape[1]
    projected = torch.stack(
        [affine(token, weights["qkv.weight"], weights["qkv.bias"]) for token in tokens]
    )
    q, k, v = (split(part, heads) for part in projected.split(width, dim=1))
    size = q.shape[-1]
    results = []
    for head in range(heads):
        sides = []
        for name, vectors in (("query", q[head]), ("key", k[head])):
            seen = []
            for index, vector in enumerate(vectors):
                if idea.qk_norm != "none":
                    vector = normed(
                        vector, under(weights, f"edits.{name}.0."), idea.qk_norm
                    )
                patch = index - prefix
                if idea.rotary and patch >= 0:
                    vector = rotated(vector, patch // side, patch % side)
                seen.append(vector)
            sides.append(torch.stack(seen))
        logits = sides[0] @ sides[1].T / math.sqrt(size)
        result = torch.stack([softmax(row) for row in logits]) @ v[head]
        if first is not None:
            result = result + idea.value_residual * (first[head] - v[head])
        results.append(result)
    merged = torch.cat(results, dim=1)
    output = [
        affine(token, weights["proj.weight"], weights["proj.bias"]) for token in merged
    ]
    return torch.stack(output), v


def network(
    images: Tensor,
    weights: Mapping[str, Tensor],
    patch: int,
    depth: int,
    heads: int,
    idea: Idea,
) -> Tensor:
    """The logits of a ViT with the idea. (batch, 3, side, side) to (batch, classes)."""

    def norm(x: Tensor, of: Weights, name: str) -> Tensor:
        if idea.rms:
            return on_tokens(lambda token: rms_norm(token, of[f"{name}.weight"]), x)
        return layer_norms(x, of, name)

    embedded = patches(images, weights, patch)
    starts = weights["cls_token"].expand(len(images), 1, -1)
    x = torch.cat([starts, embedded], dim=1) + weights["pos_embed"]
    if idea.registers:
        registers = weights["pos_drop.1.tokens"].expand(len(images), -1, -1)
        x = torch.cat([x[:, :1], registers, x[:, 1:]], dim=1)
    side = images.shape[-1] // patch
    first: list[Tensor] = []
    for index in range(depth):
        of = under(weights, f"blocks.{index}.")
        attended = []
        for image, tokens in enumerate(norm(x, of, "norm1")):
            known = first[image] if idea.value_residual and index else None
            result, values = attention(
                tokens,
                under(of, "attn."),
                heads,
                idea,
                side,
                1 + idea.registers,
                known,
            )
            attended.append(result)
            if index == 0:
                first.append(values)
        branch = torch.stack(attended)
        x = x + (branch * of["msa_scales.0.gamma"] if idea.scaled else branch)
        branch = mlp(norm(x, of, "norm2"), of)
        x = x + (branch * of["mlp_scales.0.gamma"] if idea.scaled else branch)
    last = layer_norms(x, weights, "norm")
    return torch.stack(
        [
            affine(image[0], weights["head.weight"], weights["head.bias"])
            for image in last
        ]
    )
