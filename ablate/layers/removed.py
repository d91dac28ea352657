"""What stands in the place of a part that was removed from a network."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Removed(nn.Module):
    """Returns its first argument, or zeros.

    Args:
        zeros: the shape of the zeros, where `input N` is the length of dimension N of
            the argument; None: the argument itself.
        others: None for a module that returned a tensor. Otherwise it returned a tuple;
            so many values of it, which are None now, follow the tensor.
    """

    def __init__(self, zeros: tuple[int | str, ...] | None, others: int | None) -> None:
        super().__init__()
        self.zeros, self.others = zeros, others

    def forward(self, x: Tensor, *arguments: Any, **options: Any) -> Any:
        if self.zeros is not None:
            lengths = [
                x.shape[int(length.removeprefix("input "))]
                if isinstance(length, str)
                else length
                for length in self.zeros
            ]
            x = x.new_zeros(lengths)
        if self.others is None:
            return x
        return (x, *[None] * self.others)
