"""The three losses of patch diversification, on patch tokens without prefix (patch-diversification, section 4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def cosine_loss(last: Tensor) -> Tensor:
    """Mean over i != j of cos(h_i, h_j), in float32. Shape: (batch, n, width) to a scalar.

    Summing all pairs needs no n x n matrix: sum_ij cos(h_i, h_j) is the squared norm of the sum of unit vectors.
    """
    unit = F.normalize(last.float(), dim=-1)
    n = last.shape[1]
    every = unit.sum(1).square().sum(-1)
    own = unit.square().sum((-1, -2))
    return ((every - own) / (n * (n - 1))).mean()


def contrastive_loss(first: Tensor, last: Tensor) -> Tensor:
    """-mean_i log( exp(e_i . h_i) / (exp(e_i . h_i) + exp(e_i . mean_j h_j)) ), with no gradient to e.

    It is the softplus of the difference of the two products, which cannot overflow.

    Shape:
        both (batch, n, width), to a scalar.
    """
    e, h = first.detach().float(), last.float()
    same = (e * h).sum(-1)
    mean = (e * h.mean(1, keepdim=True)).sum(-1)
    return F.softplus(mean - same).mean()


def mixing_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over patches of the cross-entropy with the label of each patch's image.

    Shape:
        both (batch, n, classes); labels are distributions.
    """
    return torch.sum(-labels * F.log_softmax(logits.float(), dim=-1), dim=-1).mean()


class PatchLosses(nn.Module):
    """The weighted sum of the three losses. The mixing loss has a linear head of its own, shared by all patches.

    Shape:
        first, last (batch, n, width); labels (batch, n, classes) or None where patches have no labels; a scalar.
    """

    def __init__(self, width: int, classes: int, *, cosine: float, contrastive: float, mixing: float) -> None:
        super().__init__()
        self.cosine, self.contrastive, self.mixing = cosine, contrastive, mixing
        if mixing:
            self.head = nn.Linear(width, classes)
            nn.init.trunc_normal_(self.head.weight, std=0.02)
            nn.init.zeros_(self.head.bias)

    def forward(self, first: Tensor, last: Tensor, labels: Tensor | None) -> Tensor:
        total = last.new_zeros((), dtype=torch.float32)
        if self.cosine:
            total = total + self.cosine * cosine_loss(last)
        if self.contrastive:
            total = total + self.contrastive * contrastive_loss(first, last)
        if self.mixing:
            assert labels is not None, "the mixing loss needs labels of patches"
            total = total + self.mixing * mixing_loss(self.head(last), labels)
        return total
