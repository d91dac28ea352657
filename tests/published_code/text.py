"""What the papers' texts say where the published code differs, or where there is none:
shortcuts and the losses on patches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from tests.published_code.common import (
    Weights,
    attention_of_image,
    gelu,
    mlp,
    norm,
    on_tokens,
    softmax,
    under,
)

Order = Literal[
    "projection-activation", "activation-projection", "projection", "activation"
]


def theta(c: Tensor) -> Tensor:
    """The block-circulant matrix of augmented-shortcuts, eq. 12 and 13: block (i, j)
    has `c[i, j, (r - s) mod w]` at (r, s).

    Shape: (b, b, w) to (b w, b w).
    """
    blocks, _, size = c.shape
    rows = []
    for i in range(blocks):
        for r in range(size):
            row = []
            for j in range(blocks):
                row += [c[i, j, (r - s) % size] for s in range(size)]
            rows.append(torch.stack(row))
    return torch.stack(rows)


def shortcuts(x: Tensor, matrices: Sequence[Tensor], order: Order) -> Tensor:
    """`sum_i` of `gelu(Z Theta_i)`, `gelu(Z) Theta_i`, `Z Theta_i` or `gelu(Z)` (eq. 9;
    Table 6).

    Shape: (batch, n, width) to the same.
    """
    formulas: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "projection-activation": lambda token, matrix: gelu(token @ matrix),
        "activation-projection": lambda token, matrix: gelu(token) @ matrix,
        "projection": lambda token, matrix: token @ matrix,
        "activation": lambda token, matrix: gelu(token),
    }
    total = torch.zeros_like(x)
    for matrix in matrices:
        total = total + on_tokens(
            lambda token, its=matrix: formulas[order](token, its), x
        )
    return total


def shortcut_block(
    x: Tensor,
    weights: Weights,
    heads: int,
    beside_attention: Sequence[Tensor],
    beside_mlp: Sequence[Tensor],
    order: Order,
) -> Tensor:
    """`x + MSA(LN x) + shortcuts(x)`, then `x + MLP(LN x) + shortcuts(x)` (eq. 8 and
    11): they read x, not its norm.

    Shape: (batch, n, width) to the same.
    """
    attention = under(weights, "attn.")
    attended = [
        attention_of_image(image, attention, heads)
        for image in norm(x, weights, "norm1")
    ]
    x = x + torch.stack(attended) + shortcuts(x, beside_attention, order)
    return x + mlp(norm(x, weights, "norm2"), weights) + shortcuts(x, beside_mlp, order)


def cosine_loss(h: Tensor) -> Tensor:
    """Mean over images and i != j of `h_i.h_j / (|h_i| |h_j|)` (patch-diversification,
    section 4). (batch, n, width).
    """
    batch, n, _ = h.shape
    total = h.new_zeros(())
    for tokens in h:
        for i in range(n):
            for j in range(n):
                if i != j:
                    lengths = torch.sqrt(
                        (tokens[i] @ tokens[i]) * (tokens[j] @ tokens[j])
                    )
                    total = total + tokens[i] @ tokens[j] / lengths
    return total / (batch * n * (n - 1))


def contrastive_loss(e: Tensor, h: Tensor) -> Tensor:
    """`-mean_i log(exp(e_i.h_i) / (exp(e_i.h_i) + exp(e_i . mean_j h_j)))`, without
    gradient to e.

    Both (batch, n, width).
    """
    batch, n, _ = h.shape
    total = h.new_zeros(())
    for source, tokens in zip(e.detach(), h, strict=True):
        mean = torch.zeros_like(tokens[0])
        for token in tokens:
            mean = mean + token / n
        for patch in range(n):
            pair = torch.stack([source[patch] @ tokens[patch], source[patch] @ mean])
            total = total - torch.log(softmax(pair)[0])
    return total / (batch * n)


def mixing_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over images and patches of `-sum_k y_k log softmax(logits)_k`.

    Both (batch, n, classes).
    """
    batch, n, _ = logits.shape
    total = logits.new_zeros(())
    for image in range(batch):
        for patch in range(n):
            total = (
                total
                - (
                    labels[image, patch] * torch.log(softmax(logits[image, patch]))
                ).sum()
            )
    return total / (batch * n)
