"""Augmented shortcuts as published: huawei-noah/Efficient-AI-Backbones.

File: augvit_pytorch/models/augvit.py. Weights of a shortcut: `weight_list` (blocks *
blocks * size,) or `weight` (width, width), and `bias` (width,).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tests.published_code.common import (
    Weights,
    affine,
    attention_of_image,
    gelu,
    mlp,
    norm,
    on_tokens,
    under,
)


def circulant(weight_list: Tensor, blocks: int) -> Tensor:
    """The matrix W of the authors' `Circulant_Linear` (lines 91 to 121): the output is
    `W x + bias`.

    With blocks of size f, row `p f + r` and column `q f + s` hold the entry `(p blocks
    + q) f + (r - s) mod f`: p and r are of the output, q and s of the input.

    Shape: (blocks * blocks * f,) to (blocks * f, blocks * f).
    """
    size = len(weight_list) // blocks**2
    rows = []
    for p in range(blocks):
        for r in range(size):
            row = []
            for q in range(blocks):
                row += [
                    weight_list[(p * blocks + q) * size + (r - s) % size]
                    for s in range(size)
                ]
            rows.append(torch.stack(row))
    return torch.stack(rows)


def path(normed: Tensor, weights: Weights, blocks: int) -> Tensor:
    """`W LN(x) + bias` of each token; W is circulant or dense, whichever `weights` has.
    (batch, n, width) to the same.
    """
    matrix = (
        circulant(weights["weight_list"], blocks)
        if "weight_list" in weights
        else weights["weight"]
    )
    return on_tokens(lambda token: affine(token, matrix, weights["bias"]), normed)


def join(
    x: Tensor, normed: Tensor, branch: Tensor, paths: list[Weights], blocks: int
) -> Tensor:
    """Shortcut, branch and augmented shortcuts (lines 220 to 229).

    One path:  `x + branch + path(normed)`, without activation.
    Two paths: `3/4 (x + branch + gelu(path1(normed)) + gelu(path2(normed)))`.

    Shape: (batch, n, width) to the same.
    """
    if len(paths) == 1:
        return x + branch + path(normed, paths[0], blocks)
    total = x + branch
    for weights in paths:
        total = total + gelu(path(normed, weights, blocks))
    return total * 3 / 4


def block(x: Tensor, weights: Weights, heads: int, count: int, blocks: int) -> Tensor:
    """A block with `count` (1 or 2) augmented shortcuts beside attention and as many
    beside the MLP.

    Names of their weights: `augs_attn.`, `augs.` with one; `augs_attn.0.`,
    `augs_attn2.0.`,
        `augs.0.`, `augs2.0.` with two.

    Shape: (batch, n, width) to the same.
    """
    ending = {1: [""], 2: [".0", "2.0"]}[count]
    beside_attention: list[Weights] = [
        under(weights, f"augs_attn{end}.") for end in ending
    ]
    beside_mlp: list[Weights] = [under(weights, f"augs{end}.") for end in ending]
    normed = norm(x, weights, "norm1")
    attended = torch.stack(
        [attention_of_image(image, under(weights, "attn."), heads) for image in normed]
    )
    x = join(x, normed, attended, beside_attention, blocks)
    normed = norm(x, weights, "norm2")
    return join(x, normed, mlp(normed, weights), beside_mlp, blocks)
