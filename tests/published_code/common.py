"""Formulas of plain transformers that the references share, token by token and head by
head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
Tokens = Callable[[Tensor], Tensor]
Maps = Callable[[Tensor], Tensor]
Block = Callable[[Tensor, Weights], Tensor]

# Of the norms of DeiT, ViT and CaiT; Swin, and the norms inside IFFN's network, have
# torch's 1e-5.
VIT_EPS = 1e-6


def under(weights: Weights, prefix: str) -> dict[str, Tensor]:
    """The weights whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in weights.items()
        if name.startswith(prefix)
    }


def gelu(x: Tensor) -> Tensor:
    """`x Phi(x)`, with the exact normal distribution function. Any shape."""
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def sigmoid(x: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`. Any shape."""
    return 1 / (1 + torch.exp(-x))


def softmax(row: Tensor) -> Tensor:
    """`exp(x_k) / sum_l exp(x_l)` of a vector."""
    powers = torch.exp(row - row.max().detach())
    return powers / powers.sum()


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`W x + b`, of a vector (inputs,) to (outputs,)."""
    product = weight @ x
    return product if bias is None else product + bias


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """`(x - mean) / sqrt(variance + eps) * weight + bias`, of a vector; the variance is
    biased.
    """
    centred = x - x.sum() / len(x)
    variance = (centred * centred).sum() / len(x)
    return centred / torch.sqrt(variance + eps) * weight + bias


def on_tokens(function: Tokens, x: Tensor) -> Tensor:
    """A function of one token, on each token of (batch, n, width)."""

    def of_image(image: Tensor) -> Tensor:
        return torch.stack([function(token) for token in image])

    return torch.stack([of_image(image) for image in x])


def norm(x: Tensor, weights: Weights, name: str, eps: float = VIT_EPS) -> Tensor:
    """LayerNorm of each token. (batch, n, width) to the same."""
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return on_tokens(lambda token: layer_norm(token, weight, bias, eps), x)


def linear(x: Tensor, weights: Weights, name: str) -> Tensor:
    """A linear layer on each token. (batch, n, inputs) to (batch, n, outputs)."""
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    return on_tokens(lambda token: affine(token, weight, bias), x)


def mlp(x: Tensor, weights: Weights) -> Tensor:
    """`fc2 gelu(fc1 x)`. (batch, n, width) to the same."""
    return linear(gelu(linear(x, weights, "mlp.fc1")), weights, "mlp.fc2")


def split(tokens: Tensor, heads: int) -> Tensor:
    """Heads side by side along the channels: (n, width) to (heads, n, width / heads)."""
    size = tokens.shape[-1] // heads
    return torch.stack(
        [tokens[:, head * size : (head + 1) * size] for head in range(heads)]
    )


def plain(maps: Tensor) -> Tensor:
    """Leaves maps as they are."""
    return maps


def attention_of_image(
    tokens: Tensor,
    weights: Weights,
    heads: int,
    *,
    on_logits: Maps = plain,
    on_weights: Maps = plain,
    added: Tensor | None = None,
    on_values: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Self-attention: `proj concat_h W_h V_h` with `W = on_weights(softmax(on_logits(Q
    K^T / sqrt(size) + added)))`.

    Args:
        tokens: of one image or window, (n, width).
        weights: `qkv.weight`, `qkv.bias`, `proj.weight`, `proj.bias`.
        on_logits, on_weights: of (heads, n, n) to the same.
        added: position bias and mask, (heads, n, n).
        on_values: of the tokens and of their values, both (n, width), to new values.

    Returns:
        (n, width).
    """
    width = len(weights["proj.weight"])
    projected = torch.stack(
        [
            affine(token, weights["qkv.weight"], weights.get("qkv.bias"))
            for token in tokens
        ]
    )
    q, k, v = (
        projected[:, :width],
        projected[:, width : 2 * width],
        projected[:, 2 * width :],
    )
    if on_values is not None:
        v = on_values(tokens, v)
    queries, keys, values = split(q, heads), split(k, heads), split(v, heads)
    logits = torch.stack(
        [
            queries[head] @ keys[head].T / math.sqrt(queries.shape[-1])
            for head in range(heads)
        ]
    )
    logits = on_logits(logits if added is None else logits + added)
    mixed = on_weights(on_tokens(softmax, logits))
    merged = torch.cat([mixed[head] @ values[head] for head in range(heads)], dim=-1)
    return torch.stack(
        [
            affine(token, weights["proj.weight"], weights["proj.bias"])
            for token in merged
        ]
    )


def patches(images: Tensor, weights: Weights, side: int) -> Tensor:
    """`patch_embed.proj`: one vector a square of `side` pixels, row by row.

    (batch, channels, height, width) to (batch, n, width).
    """
    kernel, bias = (
        weights["patch_embed.proj.weight"].flatten(1),
        weights["patch_embed.proj.bias"],
    )
    embedded = []
    for image in images:
        tokens = []
        for top in range(0, image.shape[1], side):
            for left in range(0, image.shape[2], side):
                square = image[:, top : top + side, left : left + side]
                tokens.append(affine(square.flatten(), kernel, bias))
        embedded.append(torch.stack(tokens))
    return torch.stack(embedded)


def last_tokens(
    images: Tensor, weights: Weights, side: int, depth: int, block: Block
) -> Tensor:
    """Class token and patch tokens after all blocks and the final norm of a ViT.

    (batch, channels, height, width) to (batch, 1 + n, width).
    """
    embedded = patches(images, weights, side)
    starts = weights["cls_token"].expand(len(images), 1, -1)
    x = torch.cat([starts, embedded], dim=1) + weights["pos_embed"]
    for index in range(depth):
        x = block(x, under(weights, f"blocks.{index}."))
    return norm(x, weights, "norm")


def classify(vectors: Sequence[Tensor] | Tensor, weights: Weights) -> Tensor:
    """`head` of one vector an image. (batch, width) to (batch, classes)."""
    return torch.stack(
        [
            affine(vector, weights["head.weight"], weights["head.bias"])
            for vector in vectors
        ]
    )


def vit(
    images: Tensor, weights: Weights, side: int, depth: int, block: Block
) -> Tensor:
    """A ViT that classifies its class token. (batch, channels, height, width) to
    (batch, classes).
    """
    return classify(last_tokens(images, weights, side, depth, block)[:, 0], weights)
