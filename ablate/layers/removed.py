"""What stands in the place of a part that was removed from a network."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Removed(nn.Module):
    """Returns its first argument, or zeros.

    Args:
        zeros: the shape of the zeros, without their first dimension, which is that of
            the input; None: the argument.
        others: None for a module that returned a tensor. Otherwise it returned a tuple;
            so many values of it, which are None now, follow the tensor.
    """

    def __init__(self, zeros: tuple[int, ...] | None, others: int | None) -> None:
        super().__init__()
        self.zeros, self.others = zeros, others

    def forward(self, x: Tensor, *arguments: Any, **options: Any) -> Any:
        if self.zeros is not None:
            x = x.new_zeros(x.shape[0], *self.zeros)
        if self.others is None:
            return x
        return (x, *[None] * self.others)
