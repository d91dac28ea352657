"""AttnScale and FeatScale as published: VITA-Group/ViT-Anti-Oversmoothing.

Files: attnscale.py and featscale.py (DeiT), attnscale_cait.py, featscale_cait.py,
swin/models/swin_attnscale.py and swin_featscale.py. Weights of the edits: `attn.lamb`
(heads,), `lamb1` and `lamb2` (width,); a block that lacks them is not edited.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tests.published_code.common import (
    Weights,
    affine,
    attention_of_image,
    mlp,
    norm,
    under,
)

SWIN_EPS = 1e-5
MASKED = -100.0


def attn_scale(maps: Tensor, lamb: Tensor) -> Tensor:
    """AttnScale: `1/m + (1 + lamb_h) (A - 1/m)` with m keys (attnscale.py, lines 45 to
    49; the same on CaiT and Swin).

    Shape: (heads, n, m) to the same.
    """
    low = 1 / maps.shape[-1]
    return torch.stack(
        [
            low + (1 + scale) * (head - low)
            for head, scale in zip(maps, lamb, strict=True)
        ]
    )


def feat_scale(tokens: Tensor, lamb1: Tensor, lamb2: Tensor, times: int) -> Tensor:
    """FeatScale: `y + times (lamb1 D + lamb2 (y - D))`, D the mean over all the tokens
    that are given.

    `times` is 2 on DeiT, whose block adds the scaled parts twice (featscale.py, lines
    51 to 55), and 1 on CaiT (featscale_cait.py, lines 232 to 235) and Swin
    (swin_featscale.py, lines 274 to 277).

    Shape: (n, width) to the same.
    """
    total = torch.zeros_like(tokens[0])
    for token in tokens:
        total = total + token
    constant = total / len(tokens)
    return torch.stack(
        [
            token + times * (lamb1 * constant + lamb2 * (token - constant))
            for token in tokens
        ]
    )


def _scaled(tokens: Tensor, weights: Weights, times: int) -> Tensor:
    if "lamb1" not in weights:
        return tokens
    return feat_scale(tokens, weights["lamb1"], weights["lamb2"], times)


def _maps(maps: Tensor, weights: Weights) -> Tensor:
    return attn_scale(maps, weights["lamb"]) if "lamb" in weights else maps


def deit_block(x: Tensor, weights: Weights, heads: int, times: int = 2) -> Tensor:
    """A DeiT block with AttnScale or FeatScale; their mean has the class token in it.

    `times` is 1 in the paper's text.

    Shape: (batch, n, width) to the same.
    """
    attention = under(weights, "attn.")
    outputs = []
    for image in norm(x, weights, "norm1"):
        attended = attention_of_image(
            image, attention, heads, on_weights=lambda maps: _maps(maps, attention)
        )
        outputs.append(_scaled(attended, weights, times))
    x = x + torch.stack(outputs)
    return x + mlp(norm(x, weights, "norm2"), weights)


def talk(maps: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear map across heads, for each query and key. (heads, n, m) to the same."""

    def of_query(query: int) -> Tensor:
        return torch.stack(
            [affine(heads, weight, bias) for heads in maps[:, query].T], dim=1
        )

    return torch.stack([of_query(query) for query in range(maps.shape[1])], dim=1)


def cait_block(x: Tensor, weights: Weights, heads: int) -> Tensor:
    """A self-attention block of CaiT.

    AttnScale follows the heads' second map; FeatScale is applied once, before
    `gamma_1`.

    (attnscale_cait.py, lines 161 to 189 and 231 to 234; featscale_cait.py, lines 228 to
    239.)

    Shape: (batch, n, width) to the same.
    """
    attention = under(weights, "attn.")

    def on_logits(maps: Tensor) -> Tensor:
        return talk(maps, attention["proj_l.weight"], attention["proj_l.bias"])

    def on_weights(maps: Tensor) -> Tensor:
        return _maps(
            talk(maps, attention["proj_w.weight"], attention["proj_w.bias"]), attention
        )

    outputs = []
    for image in norm(x, weights, "norm1"):
        attended = attention_of_image(
            image, attention, heads, on_logits=on_logits, on_weights=on_weights
        )
        outputs.append(weights["gamma_1"] * _scaled(attended, weights, times=1))
    x = x + torch.stack(outputs)
    return x + weights["gamma_2"] * mlp(norm(x, weights, "norm2"), weights)


def band(at: int, side: int, window: int, shift: int) -> int:
    """Which of three bands a row or a column of the rolled grid lies in: tokens of
    different bands were not neighbours.
    """
    if at < side - window:
        return 0
    return 1 if at < side - shift else 2


def position_bias(table: Tensor, window: int) -> Tensor:
    """Swin's bias by the places of query minus key inside a window. ((2 w - 1)^2,
    heads) to (heads, w^2, w^2).
    """
    places = [(row, column) for row in range(window) for column in range(window)]
    rows = []
    for query in places:
        entries = []
        for key in places:
            down, right = query[0] - key[0] + window - 1, query[1] - key[1] + window - 1
            entries.append(table[down * (2 * window - 1) + right])
        rows.append(torch.stack(entries, dim=1))
    return torch.stack(rows, dim=1)


def swin_attention(
    normed: Tensor,
    weights: Weights,
    heads: int,
    window: int,
    shift: int,
    mean_of: Literal["image", "window"],
) -> Tensor:
    """Attention in shifted windows of one image, back in its own places, then FeatScale
    once.

    The published FeatScale takes the mean over the whole image, after windows are
    merged and rolled back (swin_featscale.py, lines 263 to 277). `mean_of="window"` is
    the other reading: the mean over one window.

    Shape: (side, side, width) to the same.
    """
    side = len(normed)
    attention = under(weights, "attn.")
    bias = position_bias(attention["relative_position_bias_table"], window)
    found: dict[tuple[int, int], Tensor] = {}
    for top in range(0, side, window):
        for left in range(0, side, window):
            places = [
                (top + row, left + column)
                for row in range(window)
                for column in range(window)
            ]
            sources = [
                ((row + shift) % side, (column + shift) % side)
                for row, column in places
            ]
            bands = []
            for row, column in places:
                bands.append(
                    (band(row, side, window, shift), band(column, side, window, shift))
                )
            mask = torch.zeros(len(places), len(places), dtype=normed.dtype)
            for query, its in enumerate(bands):
                for key, other in enumerate(bands):
                    mask[query, key] = MASKED if shift and its != other else 0.0
            tokens = torch.stack([normed[place] for place in sources])
            attended = attention_of_image(
                tokens,
                attention,
                heads,
                on_weights=lambda maps: _maps(maps, attention),
                added=bias + mask,
            )
            if mean_of == "window":
                attended = _scaled(attended, weights, times=1)
            found |= dict(zip(sources, attended, strict=True))
    tokens = torch.stack(
        [found[row, column] for row in range(side) for column in range(side)]
    )
    if mean_of == "image":
        tokens = _scaled(tokens, weights, times=1)
    return tokens.reshape(normed.shape)


def swin_block(
    x: Tensor,
    weights: Weights,
    heads: int,
    window: int,
    shift: int,
    mean_of: Literal["image", "window"] = "image",
) -> Tensor:
    """A block of Swin with AttnScale over the tokens of a window, or FeatScale.

    The grid is a multiple of the window. Shape: (batch, side, side, width) to the same.
    """
    batch, side, _, width = x.shape
    tokens = x.reshape(batch, side * side, width)
    normed = norm(tokens, weights, "norm1", SWIN_EPS).reshape(x.shape)
    attended = [
        swin_attention(image, weights, heads, window, shift, mean_of)
        for image in normed
    ]
    tokens = tokens + torch.stack(attended).reshape(tokens.shape)
    tokens = tokens + mlp(norm(tokens, weights, "norm2", SWIN_EPS), weights)
    return tokens.reshape(x.shape)
