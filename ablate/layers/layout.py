"""Converts between the layouts of backbones.

tokens   (batch, tokens, width)
grid     (batch, height, width, channels)
image    (batch, channels, height, width)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class OnGrid(nn.Module):
    """A module on tokens that needs their grid.

    Attributes:
        grid: height and width of the token grid. What runs the network on images of
            another size sets it first.
    """

    grid: tuple[int, int]


class AddedTokens(nn.Module):
    """Inserts learnt tokens behind the prefix tokens.

    Args:
        tokens: (1, number, width).
        prefix: tokens before them.

    Shape:
        (batch, n, width) to (batch, n + number, width).
    """

    def __init__(self, tokens: nn.Parameter, prefix: int) -> None:
        super().__init__()
        self.tokens, self.prefix = tokens, prefix

    def forward(self, x: Tensor) -> Tensor:
        added = self.tokens.expand(len(x), -1, -1)
        return torch.cat((x[:, : self.prefix], added, x[:, self.prefix :]), dim=1)


def to_tokens(x: Tensor, layout: str) -> Tensor:
    """Converts any layout (`tokens`, `grid`, `image`) to (batch, tokens, width)."""
    if layout == "grid":
        return x.flatten(1, 2)
    if layout == "image":
        return x.flatten(2).transpose(1, 2)
    return x


def from_tokens(tokens: Tensor, like: Tensor, layout: str) -> Tensor:
    """Converts tokens back to the layout and shape of `like`."""
    if layout == "image":
        return tokens.transpose(1, 2).reshape(like.shape)
    return tokens.reshape(like.shape)


class OnTokens(nn.Module):
    """Applies a module on (batch, tokens, width) to inputs of another layout.

    The output has the layout of the input.
    """

    def __init__(self, module: nn.Module, layout: str) -> None:
        super().__init__()
        self.module, self.layout = module, layout

    def forward(self, x: Tensor) -> Tensor:
        return from_tokens(self.module(to_tokens(x, self.layout)), x, self.layout)
