"""The three losses of patch diversification, and the two of its published code.

They are on patch tokens without prefix tokens (patch-diversification, section 4). Each
runs in at least float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Side of a patch's neighbourhood in the published contrastive loss.
NEIGHBOURS = 7
HEAD_DROPOUT = 0.2
# Added to probabilities before their logarithm in the published code.
TINY = 1e-8
# Added in the published code to the number of patches of a region, so that an empty
# region causes no division by zero.
EMPTY = 1e-4


class Regions(NamedTuple):
    """How two images of a batch are mixed on the patch grid.

    `mask` (patches) is 1 if a patch comes from the image itself and 0 if it comes from
    the other image. `own` and `other` (batch, classes) are the labels of the two.
    """

    mask: Tensor
    own: Tensor
    other: Tensor


def exact(x: Tensor) -> Tensor:
    """Converts a half-precision tensor to single precision; others do not change."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def cosine_loss(last: Tensor) -> Tensor:
    """Mean over i != j of cos(h_i, h_j). Shape: (batch, n, width) to a scalar.

    Summing all pairs needs no n x n matrix: sum_ij cos(h_i, h_j) is the squared norm of
    the sum of unit vectors.
    """
    unit = F.normalize(exact(last), dim=-1)
    n = last.shape[1]
    every = unit.sum(1).square().sum(-1)
    squares = unit.square().sum((-1, -2))
    return ((every - squares) / (n * (n - 1))).mean()


def contrastive_loss(first: Tensor, last: Tensor) -> Tensor:
    """-mean_i log( exp(e_i . h_i) / (exp(e_i . h_i) + exp(e_i . mean_j h_j)) ).

    There is no gradient to e. The loss is computed as the softplus of the difference of
    the two products, which cannot overflow.

    Shape:
        both (batch, n, width), to a scalar.
    """
    e = exact(first.detach())
    h = exact(last)
    same = (e * h).sum(-1)
    mean = (e * h.mean(1, keepdim=True)).sum(-1)
    return F.softplus(mean - same).mean()


def mixing_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over patches of the cross-entropy with the label of each patch's image.

    Shape:
        both (batch, n, classes); labels are distributions.
    """
    return torch.sum(-labels * F.log_softmax(exact(logits), dim=-1), dim=-1).mean()


class PatchLosses(nn.Module):
    """The weighted sum of the three losses.

    The mixing loss has its own linear head, shared by all patches.

    Shape:
        first, last (batch, n, width); labels (batch, n, classes) or None if patches
            have no labels; a scalar.
    """

    def __init__(
        self,
        width: int,
        classes: int,
        *,
        cosine: float,
        contrastive: float,
        mixing: float,
    ) -> None:
        super().__init__()
        self.cosine = cosine
        self.contrastive = contrastive
        self.mixing = mixing
        if mixing:
            self.head = nn.Linear(width, classes)
            nn.init.trunc_normal_(self.head.weight, std=0.02)
            nn.init.zeros_(self.head.bias)

    def forward(self, first: Tensor, last: Tensor, labels: Tensor | None) -> Tensor:
        total = last.new_zeros((), dtype=torch.promote_types(last.dtype, torch.float32))
        if self.cosine:
            total = total + self.cosine * cosine_loss(last)
        if self.contrastive:
            total = total + self.contrastive * contrastive_loss(first, last)
        if self.mixing:
            assert labels is not None, "the mixing loss needs labels of patches"
            total = total + self.mixing * mixing_loss(self.head(last), labels)
        return total


def published_contrastive_loss(
    first: Tensor, last: Tensor, grid: tuple[int, int]
) -> Tensor:
    """-mean_i log(softmax([e_i . h_i, e_i . m_i, e_i . w_i])_1 + 1e-8).

    This is the loss of the published code, with no gradient to e. m_i is the mean of h
    over all other patches, w_i that over the 7 x 7 neighbourhood of i without i itself.
    Places outside the grid count as zeros, and the divisor of w_i stays 48 there.

    Shape:
        both (batch, n, width), n = height * width of the grid, to a scalar.
    """
    e = exact(first.detach())
    h = exact(last)
    n, around = h.shape[1], NEIGHBOURS**2
    others = (h.sum(1, keepdim=True) - h) / (n - 1)
    image = h.transpose(1, 2).unflatten(2, grid)
    # The pooling pads with zeros and always divides by 49.
    pooled = (
        F.avg_pool2d(image, NEIGHBOURS, stride=1, padding=NEIGHBOURS // 2)
        .flatten(2)
        .transpose(1, 2)
    )
    neighbours = (around * pooled - h) / (around - 1)
    products = torch.stack(
        [(e * h).sum(-1), (e * others).sum(-1), (e * neighbours).sum(-1)], dim=-1
    )
    return -torch.log(products.softmax(-1)[..., 0] + TINY).mean()


def region_means(last: Tensor, mask: Tensor) -> Tensor:
    """Mean of h over a region, with 1e-4 added to the divisor.

    Shape: (batch, n, width) and (n) to (batch, width).
    """
    inside = exact(mask)
    return (exact(last) * inside[:, None]).sum(1) / (inside.sum() + EMPTY)


def published_mixing_loss(own: Tensor, other: Tensor, regions: Regions) -> Tensor:
    """Sum over both regions of share of patches times divergence.

    The divergence is that of the region's label from its prediction.

    Args:
        own, other: logits of the two regions, (batch, classes).
        regions: their labels and patches.

    Returns:
        A scalar.
    """
    share = regions.mask.sum() / len(regions.mask)
    return share * _divergence(own, regions.own) + (1 - share) * _divergence(
        other, regions.other
    )


def _divergence(logits: Tensor, labels: Tensor) -> Tensor:
    target = labels.to(torch.promote_types(logits.dtype, torch.float32))
    predicted = torch.log(exact(logits).softmax(-1) + TINY)
    return (torch.xlogy(target, target) - target * predicted).sum(-1).mean()


class PublishedPatchLosses(nn.Module):
    """The weighted sum of the two losses of the published code.

    The region means pass through dropout and a linear head.

    Shape:
        first (batch, n, width), patch embeddings without position; last (batch, n,
            width); a scalar.
    """

    def __init__(
        self,
        width: int,
        classes: int,
        grid: tuple[int, int],
        *,
        contrastive: float,
        mixing: float,
    ) -> None:
        super().__init__()
        self.grid = grid
        self.contrastive = contrastive
        self.mixing = mixing
        if mixing:
            self.drop = nn.Dropout(HEAD_DROPOUT)
            self.head = nn.Linear(width, classes)
            nn.init.trunc_normal_(self.head.weight, std=0.02)
            nn.init.zeros_(self.head.bias)

    def forward(self, first: Tensor, last: Tensor, labels: Regions) -> Tensor:
        total = last.new_zeros((), dtype=torch.promote_types(last.dtype, torch.float32))
        if self.mixing:
            logits = self.head(self.drop(region_means(last, labels.mask)))
            other = self.head(self.drop(region_means(last, 1 - labels.mask)))
            total = total + self.mixing * published_mixing_loss(logits, other, labels)
        if self.contrastive:
            total = total + self.contrastive * published_contrastive_loss(
                first, last, self.grid
            )
        return total
