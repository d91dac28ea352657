"""Patch diversification as published: ChengyueGongR/PatchVisionTransformer,
deit/models.py and deit/engine.py.

Here e are patch embeddings before class token and position embedding are added, without
gradient (models.py, lines 192 to 199 and 241), and h are the patches' tokens after the
last block and the final norm (line 207). The training loop has no cosine loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tests.published_code.common import (
    Weights,
    affine,
    attention_of_image,
    mlp,
    norm,
    softmax,
    under,
)
from tests.published_code.oversmoothing import talk

NEIGHBOURHOOD = 7
# Added to probabilities before their logarithm.
TINY = 1e-8
# Added to the number of patches of a region, so that an empty one divides by no zero.
EMPTY = 1e-4


def mean_of_others(tokens: Tensor, patch: int) -> Tensor:
    """The mean over all patches but one (models.py, line 228). (n, width) to (width,)."""
    total = torch.zeros_like(tokens[0])
    for other, token in enumerate(tokens):
        if other != patch:
            total = total + token
    return total / (len(tokens) - 1)


def mean_of_neighbours(tokens: Tensor, patch: int) -> Tensor:
    """The sum over the 7 x 7 places around a patch without its own, divided by 48
    (models.py, lines 226 and 227).

    Places outside the grid count as zero vectors: the divisor stays 48 at the border.

    Shape: (n, width), n a square, to (width,).
    """
    side, reach = round(len(tokens) ** 0.5), NEIGHBOURHOOD // 2
    row, column = divmod(patch, side)
    total = torch.zeros_like(tokens[0])
    for down in range(-reach, reach + 1):
        for right in range(-reach, reach + 1):
            at, across = row + down, column + right
            inside = 0 <= at < side and 0 <= across < side
            if inside and (down, right) != (0, 0):
                total = total + tokens[at * side + across]
    return total / (NEIGHBOURHOOD**2 - 1)


def contrastive_loss(e: Tensor, h: Tensor) -> Tensor:
    """`-mean_i log(softmax([e_i.h_i, e_i.m_i, e_i.w_i])_1 + 1e-8)` (models.py, lines
    224 to 233).

    m_i is the mean over all other patches, w_i that over the neighbours. There is no
    gradient to e.

    Shape: both (batch, n, width), n a square, to a scalar.
    """
    total = h.new_zeros(())
    batch, n, _ = h.shape
    for source, tokens in zip(e.detach(), h, strict=True):
        for patch in range(n):
            same = source[patch] @ tokens[patch]
            far = source[patch] @ mean_of_others(tokens, patch)
            near = source[patch] @ mean_of_neighbours(tokens, patch)
            total = total - torch.log(softmax(torch.stack([same, far, near]))[0] + TINY)
    return total / (batch * n)


def region_mean(tokens: Tensor, mask: Tensor) -> Tensor:
    """`sum of h over a region / (patches of the region + 1e-4)` (models.py, line 245).
    (n, width), (n,) to (width,).
    """
    total = torch.zeros_like(tokens[0])
    for token, inside in zip(tokens, mask, strict=True):
        total = total + inside * token
    return total / (mask.sum() + EMPTY)


def divergence(target: Tensor, logits: Tensor) -> Tensor:
    """`sum_k t_k (log t_k - log(softmax(logits)_k + 1e-8))`, where 0 log 0 is 0.

    Both (classes,), to a scalar.
    """
    total = logits.new_zeros(())
    for share, found in zip(target, softmax(logits), strict=True):
        if share > 0:
            total = total + share * (torch.log(share) - torch.log(found + TINY))
    return total


def mixing_loss(
    h: Tensor,
    masks: Sequence[Tensor],
    targets: Sequence[Tensor],
    weights: Weights,
    kept: Sequence[Tensor] | None = None,
) -> Tensor:
    """`sum_m |R_m| / n mean_b KL(t_bm || softmax(patch_head(dropout(mean of h over
    R_m))))` (models.py, lines 242 to 248).

    Args:
        h: (batch, n, width).
        masks: of each region, (n,) of ones and zeros, the same for the whole batch.
        targets: of each region, (batch, classes).
        weights: `patch_head.weight` (classes, width) and `patch_head.bias`.
        kept: of each region, (batch, width): what the dropout of 0.2 before the head
            multiplies, 0 or 1 / 0.8. None: ones.

    Returns:
        A scalar.
    """
    total = h.new_zeros(())
    for region, (mask, target) in enumerate(zip(masks, targets, strict=True)):
        mean = h.new_zeros(())
        for image, tokens in enumerate(h):
            vector = region_mean(tokens, mask)
            if kept is not None:
                vector = vector * kept[region][image]
            logits = affine(
                vector, weights["patch_head.weight"], weights["patch_head.bias"]
            )
            mean = mean + divergence(target[image], logits) / len(h)
        total = total + mask.sum() / len(mask) * mean
    return total


def rectangle(side: int, share: float, draw: Callable[[int, int], int]) -> Tensor:
    """The random rectangle of patches that the first image keeps (engine.py, lines 21
    to 35).

    Args:
        side: patches of a side.
        share: of the area; drawn from Beta(1, 1), one a batch.
        draw: a whole number between two others, both included. It is asked for the
            rows, the first row and the first column.

    Returns:
        (side * side,) of ones and zeros; the area is at most the share's, rounded down.
    """
    area = int(side * side * share)
    rows = draw(1, max(1, min(side, area) - 1))
    columns = area // rows
    if columns > side:
        columns = side
        rows = area // side
    top = draw(0, max(0, side - rows))
    left = draw(0, max(0, side - columns))
    mask = torch.zeros(side, side, dtype=torch.float64)
    for row in range(top, top + rows):
        for column in range(left, left + columns):
            mask[row, column] = 1.0
    return mask.flatten()


def mixed_images(images: Tensor, mask: Tensor, partner: Sequence[int]) -> Tensor:
    """Each image inside the mask, its partner outside; whole patches (engine.py, lines
    108 to 112).

    Args:
        images: (batch, channels, height, width), height and width equal.
        mask: (n,).
        partner: of each image, the index of the other one; a permutation of the batch.

    Returns:
        The shape of `images`.
    """
    side = round(len(mask) ** 0.5)
    pixels = images.shape[-1] // side
    mixed = torch.empty_like(images)
    for image, other in enumerate(partner):
        for patch in range(len(mask)):
            row, column = divmod(patch, side)
            rows = slice(row * pixels, (row + 1) * pixels)
            columns = slice(column * pixels, (column + 1) * pixels)
            source = image if mask[patch] == 1 else other
            mixed[image, :, rows, columns] = images[source, :, rows, columns]
    return mixed


def mixed_targets(
    targets: Tensor, mask: Tensor, partner: Sequence[int]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The targets of the mixed images, and those of the two regions with their masks
    (engine.py, lines 104, 113 and 114).

    Args:
        targets: (batch, classes), soft: the loop mixes images that CutMix has mixed
            before (engine.py, line 134).

    Returns:
        `r y_b + (1 - r) y_partner(b)` with r the mask's share of patches, (batch,
            classes); the
        regions' targets, `[y, y of the partners]`; their masks, `[mask, 1 - mask]`.
    """
    share = mask.sum() / len(mask)
    others = torch.stack([targets[other] for other in partner])
    mixed = torch.stack(
        [
            share * own + (1 - share) * other
            for own, other in zip(targets, others, strict=True)
        ]
    )
    return mixed, [targets, others], [mask, 1 - mask]


def classification_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """`-mean_b sum_k y_bk log(softmax(logits_b)_k + 1e-8)` (engine.py, line 142).

    Both (batch, classes), to a scalar.
    """
    total = logits.new_zeros(())
    for row, target in zip(logits, targets, strict=True):
        total = total - (target * torch.log(softmax(row) + TINY)).sum()
    return total / len(logits)


def training_loss(
    logits: Tensor,
    targets: Tensor,
    e: Tensor,
    h: Tensor,
    mask: Tensor,
    partner: Sequence[int],
    weights: Weights,
    kept: Sequence[Tensor] | None = None,
) -> Tensor:
    """`classification + 1 (mixing + 1 contrastive)` (engine.py, lines 142 to 145), from
    targets before the mixing on patches.

    In training a dropout of 0.2 stands before the class head too (models.py, line 250);
    `logits` are behind it.
    """
    mixed, region_targets, masks = mixed_targets(targets, mask, partner)
    mixing = mixing_loss(h, masks, region_targets, weights, kept)
    return classification_loss(logits, mixed) + mixing + contrastive_loss(e, h)


def block(x: Tensor, weights: Weights, heads: int) -> Tensor:
    """A block with talking heads, `attn.proj_pre.weight` and `attn.proj_post.weight`,
    without biases (models.py, lines 54 to 92).

    Shape: (batch, n, width) to the same.
    """
    attention = under(weights, "attn.")
    outputs = []
    for image in norm(x, weights, "norm1"):
        attended = attention_of_image(
            image,
            attention,
            heads,
            on_logits=lambda maps: talk(maps, attention["proj_pre.weight"]),
            on_weights=lambda maps: talk(maps, attention["proj_post.weight"]),
        )
        outputs.append(attended)
    x = x + torch.stack(outputs)
    return x + mlp(norm(x, weights, "norm2"), weights)
