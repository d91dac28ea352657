"""IFFN on DeiT as published: AMD-AIG-AIMA/AMD_IFFN, vision_transformer.py.

Weights of a feed-forward network: `conv1.` and `conv2.` (linear layers), `act1.` and
`act2.` with `move1.scale`, `move1.bias`, `move2.scale`, `move2.bias` (1, 1, hidden),
`ln1.`, `ln2.` (LayerNorm), `dw.` (the depthwise convolution, which the authors call
`conv3x3_dw` or `conv5x5_dw`) and `ln.` (BatchNorm, with `running_mean` and
`running_var`).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tests.published_code.common import (
    VIT_EPS,
    Weights,
    attention_of_image,
    classify,
    gelu,
    layer_norm,
    linear,
    norm,
    patches,
    under,
)

# Of both LayerNorms inside the feed-forward network, and of BatchNorm: torch's default.
# Norms of blocks have 1e-6.
INNER_EPS = 1e-5


def agelu(x: Tensor, weights: Weights) -> Tensor:
    """`beta gelu(alpha x + gamma) + theta` (lines 63 to 84): `move1.scale` is alpha,
    `move1.bias` gamma, `move2.scale` beta, `move2.bias` theta, one a channel. (batch,
    n, hidden) to the same.
    """
    inner = x * weights["move1.scale"] + weights["move1.bias"]
    return gelu(inner) * weights["move2.scale"] + weights["move2.bias"]


def depthwise(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A convolution with one kernel a channel, padded with zeros.

    Shape: (batch, channels, height, width), kernels (channels, 1, k, k), to the shape
    of x.
    """
    batch, channels, height, across = x.shape
    kernel, reach = weight.shape[-1], weight.shape[-1] // 2
    images = []
    for image in range(batch):
        places = []
        for row in range(height):
            for column in range(across):
                total = bias
                for down in range(kernel):
                    for right in range(kernel):
                        at, beside = row + down - reach, column + right - reach
                        if 0 <= at < height and 0 <= beside < across:
                            total = (
                                total
                                + weight[:, 0, down, right] * x[image, :, at, beside]
                            )
                places.append(total)
        images.append(torch.stack(places, dim=1).reshape(channels, height, across))
    return torch.stack(images)


def batch_norm(x: Tensor, weights: Weights, training: bool) -> Tensor:
    """BatchNorm: by the batch's own mean and biased variance while training, else by
    the running ones.

    Shape: (batch, channels, height, width) to the same.
    """
    channels = []
    for channel in range(x.shape[1]):
        values = x[:, channel]
        mean, variance = (
            weights["running_mean"][channel],
            weights["running_var"][channel],
        )
        if training:
            mean = values.sum() / values.numel()
            variance = ((values - mean) ** 2).sum() / values.numel()
        normed = (values - mean) / torch.sqrt(variance + INNER_EPS)
        channels.append(normed * weights["weight"][channel] + weights["bias"][channel])
    return torch.stack(channels, dim=1)


def spatial(x: Tensor, weights: Weights, training: bool) -> Tensor:
    """`V + gelu(BN(DW(V)))` over the grid of tokens, row by row (lines 113 to 119).

    Shape: (batch, n, channels), n a square, to the same.
    """
    batch, n, channels = x.shape
    side = round(n**0.5)
    grid = x.transpose(1, 2).reshape(batch, channels, side, side)
    convolved = depthwise(grid, weights["dw.weight"], weights["dw.bias"])
    grid = grid + gelu(batch_norm(convolved, under(weights, "ln."), training))
    return grid.reshape(batch, channels, n).transpose(1, 2)


def ffn(
    x: Tensor,
    weights: Weights,
    *,
    training: bool = False,
    hidden_kept: Tensor | None = None,
    output_kept: Tensor | None = None,
    eps: float = INNER_EPS,
    dropout: Literal["before", "behind"] = "before",
) -> Tensor:
    """The feed-forward network (lines 107 to 124).

    `u = conv1 x; v = dropout(LN([AGeLU_1(u), AGeLU_2(u)])); w = v + gelu(BN(DW(v)));
    dropout(LN(conv2 w))`. The published network has two AGeLUs; here it has as many as
    there are `act1.`, `act2.` ... in `weights`. Without any, v is `dropout(gelu(u))`
    and the last LN is left out; without `dw.` weights, w is v.

    Args:
        x: (batch, n, width).
        hidden_kept: of the shape of v, what the first dropout multiplies: 0 or 1 / (1 -
            rate). None: ones.
        output_kept: (batch, n, width), the same of the second.
        eps: of both LayerNorms; 1e-5 as published.
        dropout: where the first dropout stands: before the depthwise block as
            published, or behind it.

    Returns:
        (batch, n, width).
    """
    hidden = linear(x, weights, "conv1")
    count = sum(name.endswith("move1.scale") for name in weights)
    if count:
        parts = [
            agelu(hidden, under(weights, f"act{number}."))
            for number in range(1, count + 1)
        ]
        hidden = norm(torch.cat(parts, dim=-1), weights, "ln1", eps)
    else:
        hidden = gelu(hidden)
    if hidden_kept is not None and dropout == "before":
        hidden = hidden * hidden_kept
    if "dw.weight" in weights:
        hidden = spatial(hidden, weights, training)
    if hidden_kept is not None and dropout == "behind":
        hidden = hidden * hidden_kept
    output = linear(hidden, weights, "conv2")
    if "ln2.weight" in weights:
        output = norm(output, weights, "ln2", eps)
    return output if output_kept is None else output * output_kept


def block(
    x: Tensor,
    weights: Weights,
    heads: int,
    *,
    training: bool = False,
    eps: float = INNER_EPS,
) -> Tensor:
    """A pre-norm block with IFFN (lines 169 to 172). (batch, n, width) to the same."""
    attention = under(weights, "attn.")
    attended = [
        attention_of_image(image, attention, heads)
        for image in norm(x, weights, "norm1")
    ]
    x = x + torch.stack(attended)
    return x + ffn(
        norm(x, weights, "norm2"), under(weights, "mlp."), training=training, eps=eps
    )


def pooled_head(
    x: Tensor,
    weights: Weights,
    order: Literal["norm, mean", "mean, norm"] = "norm, mean",
) -> Tensor:
    """The classifier (lines 302 to 308): as published each token is normalised, then
    all are averaged, then `head`.

    Args:
        x: patch tokens after the last block, (batch, n, width); there is no class
            token.
        weights: `norm.` and `head.`.
        order: "mean, norm" is timm's way with average pooling.

    Returns:
        (batch, classes).
    """
    vectors = []
    for image in x:
        total = torch.zeros_like(image[0])
        for token in image:
            if order == "norm, mean":
                token = layer_norm(
                    token, weights["norm.weight"], weights["norm.bias"], VIT_EPS
                )
            total = total + token
        mean = total / len(image)
        if order == "mean, norm":
            mean = layer_norm(
                mean, weights["norm.weight"], weights["norm.bias"], VIT_EPS
            )
        vectors.append(mean)
    return classify(vectors, weights)


def network(
    images: Tensor,
    weights: Weights,
    side: int,
    depth: int,
    heads: int,
    *,
    training: bool = False,
    eps: float = INNER_EPS,
    order: Literal["norm, mean", "mean, norm"] = "norm, mean",
) -> Tensor:
    """The whole network: patches plus `pos_embed` (1, n, width), blocks, head. (batch,
    channels, h, w) to (batch, classes).
    """
    x = patches(images, weights, side) + weights["pos_embed"]
    for index in range(depth):
        x = block(
            x, under(weights, f"blocks.{index}."), heads, training=training, eps=eps
        )
    return pooled_head(x, weights, order)
