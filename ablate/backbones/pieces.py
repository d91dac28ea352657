"""What the backbones of this package share.

These are the feed-forward network, attention over a reduced grid, and initialisation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from timm.layers import DropPath, trunc_normal_
from timm.models import build_model_with_cfg, checkpoint
from torch import Tensor, nn

from ablate.layers.attention import AttentionEdits, EditableAttention


class Checkpointed(nn.Module):
    """A network whose blocks may compute their activations again, as in timm."""

    grad_checkpointing = False

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Has the backward pass compute the activations of each block again."""
        for module in self.modules():
            if isinstance(module, Checkpointed):
                module.grad_checkpointing = enable

    def through(self, blocks: Iterable[nn.Module], x: Tensor, *inputs: Any) -> Tensor:
        """Passes tokens through blocks, one after the other.

        Args:
            inputs: what each block gets besides the tokens.
        """
        again = self.grad_checkpointing and torch.is_grad_enabled()
        for block in blocks:
            x = checkpoint(block, x, *inputs) if again else block(x, *inputs)
        return x


class Blocks(Checkpointed, nn.Sequential):
    """Blocks of tokens, one after the other."""

    def forward(self, x: Tensor) -> Tensor:
        return self.through(self, x)


class FeedForward(nn.Module):
    """fc1, GELU, fc2. Shape: (..., width) to the same."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.drop1 = nn.Dropout(dropout)
        self.fc2 = nn.Linear(hidden, width)
        self.drop2 = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))
        return output


class SelfAttention(EditableAttention):
    """Multi-head self-attention; keys and values may come from a reduced grid.

    See PVT, eq. 1 to 3.

    Args:
        width: channels; a multiple of `heads`.
        reduction: stride of the convolution that reduces the grid; 1 for none.

    Shape:
        (batch, tokens, width) to the same; `grid` is the token grid's height and width.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        reduction: int = 1,
        bias: bool = True,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = heads
        self.scale = (width // heads) ** -0.5
        self.q = nn.Linear(width, width, bias=bias)
        self.kv = nn.Linear(width, 2 * width, bias=bias)
        self.attn_drop = nn.Dropout(attention_dropout)
        self.proj = nn.Linear(width, width)
        self.proj_drop = nn.Dropout(dropout)
        self.reduction = reduction
        if reduction > 1:
            self.sr = nn.Conv2d(width, width, reduction, stride=reduction)
            self.norm = nn.LayerNorm(width)
        self.edits = AttentionEdits()

    def queries(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Returns the queries, (batch, tokens, width)."""
        projected: Tensor = self.q(x)
        return projected

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        reduced = x
        if self.reduction > 1:
            reduced = self.norm(
                self.sr(x.transpose(1, 2).unflatten(2, grid)).flatten(2).transpose(1, 2)
            )
        q = self.queries(x, grid).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        k, v = (
            self.kv(reduced)
            .unflatten(2, (2, self.num_heads, -1))
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        return self.finish(self.attend(q, k, v, reduced))


def drop_path(rate: float) -> nn.Module:
    """Returns timm's stochastic depth, or an identity at rate 0."""
    if rate:
        return DropPath(rate)
    return nn.Identity()


def rising(rate: float, depth: int) -> list[float]:
    """Returns drop rates of blocks, rising linearly from 0 to `rate`."""
    return [rate * layer / max(depth - 1, 1) for layer in range(depth)]


def initialise(module: nn.Module) -> None:
    """Initialises linear layers and convolutions.

    Linear layers are normal with deviation 0.02, convolutions normal by their fan-out,
    and biases 0.
    """
    if isinstance(module, nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        fan_out = (
            module.kernel_size[0]
            * module.kernel_size[1]
            * module.out_channels
            // module.groups
        )
        nn.init.normal_(module.weight, 0, math.sqrt(2.0 / fan_out))
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def configuration(side: int = 224, **more: Any) -> dict[str, Any]:
    """Returns timm's description of a model without published weights."""
    return {
        "url": "",
        "num_classes": 1000,
        "input_size": (3, side, side),
        "classifier": "head",
        **more,
    }


def built(
    model: type[nn.Module], variant: str, pretrained: bool, **arguments: Any
) -> nn.Module:
    """Calls timm's builder, which also loads a checkpoint if one is configured."""
    made: nn.Module = build_model_with_cfg(model, variant, pretrained, **arguments)
    return made
