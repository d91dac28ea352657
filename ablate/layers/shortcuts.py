"""Augmented shortcuts: parameterised paths beside a branch.

See augmented-shortcuts, eq. 8 and 11.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ablate.layers.circulant import CirculantProjection


class DenseProjection(nn.Module):
    """Several unstructured projections of one input (Table 5, "unstructured").

    There is no bias unless it is asked for.

    Shape:
        input (..., width), output (..., count, width).
    """

    def __init__(self, width: int, count: int = 1, *, bias: bool = False) -> None:
        super().__init__()
        self.width, self.count = width, count
        self.linear = nn.Linear(width, count * width, bias=bias)
        nn.init.trunc_normal_(self.linear.weight, std=0.02)
        if bias:
            nn.init.zeros_(self.linear.bias)

    def forward(self, z: Tensor) -> Tensor:
        projected: Tensor = self.linear(z)
        return projected.reshape(*z.shape[:-1], self.count, self.width)


Projection = CirculantProjection | DenseProjection


class ProjectionActivation(nn.Module):
    """`sum_t gelu(Z Theta_t)`, eq. 9: the default order.

    Shape: (..., width) to (..., width).
    """

    def __init__(self, projection: Projection) -> None:
        super().__init__()
        self.projection = projection

    def forward(self, z: Tensor) -> Tensor:
        return F.gelu(self.projection(z)).sum(-2)


class ActivationProjection(nn.Module):
    """`sum_t gelu(Z) Theta_t` (Table 6). Shape: (..., width) to (..., width)."""

    def __init__(self, projection: Projection) -> None:
        super().__init__()
        self.projection = projection

    def forward(self, z: Tensor) -> Tensor:
        projected: Tensor = self.projection(F.gelu(z))
        return projected.sum(-2)


class ProjectionOnly(nn.Module):
    """`sum_t Z Theta_t` (Table 6).

    It is linear, so several paths can express no more than one.
    """

    def __init__(self, projection: Projection) -> None:
        super().__init__()
        self.projection = projection

    def forward(self, z: Tensor) -> Tensor:
        projected: Tensor = self.projection(z)
        return projected.sum(-2)


class ActivationOnly(nn.Module):
    """`count * gelu(Z)` (Table 6): no parameters."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, z: Tensor) -> Tensor:
        return self.count * F.gelu(z)
