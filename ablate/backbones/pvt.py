"""PVT version 1 (arXiv 2102.12122).

It is a pyramid of four stages with spatial-reduction attention.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from timm.layers import resample_abs_pos_embed, trunc_normal_
from timm.models import generate_default_cfgs, register_model
from torch import Tensor, nn

from ablate.backbones import pieces

NORM = partial(nn.LayerNorm, eps=1e-6)


class Block(nn.Module):
    """Pre-norm block. Shape: (batch, tokens, width) to the same."""

    def __init__(
        self,
        width: int,
        heads: int,
        ratio: float,
        reduction: int,
        dropout: float,
        attention_dropout: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = NORM(width)
        self.attn = pieces.SelfAttention(
            width,
            heads,
            reduction=reduction,
            attention_dropout=attention_dropout,
            dropout=dropout,
        )
        self.drop_path = pieces.drop_path(drop_path)
        self.norm2 = NORM(width)
        self.mlp = pieces.FeedForward(width, int(width * ratio), dropout)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x), grid))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class Stage(pieces.Checkpointed):
    """Patch embedding, position embedding, blocks.

    The last stage has a class token in front.

    Shape:
        (batch, channels, height, width) to tokens (batch, tokens, width) and their grid.

    Attributes:
        grid: the token grid that it was built for. On another one, the position
            embedding is resampled.
    """

    def __init__(
        self,
        channels: int,
        width: int,
        patch: int,
        side: int,
        prefix: int,
        dropout: float,
        blocks: list[Block],
    ) -> None:
        super().__init__()
        self.grid = (side // patch, side // patch)
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)
        self.norm = nn.LayerNorm(width)
        # Only the last stage has one: a map of patches passes between stages.
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if prefix else None
        self.pos_embed = nn.Parameter(
            torch.zeros(1, self.grid[0] * self.grid[1] + prefix, width)
        )
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        trunc_normal_(self.pos_embed, std=0.02)
        if self.cls_token is not None:
            trunc_normal_(self.cls_token, std=0.02)

    def forward(self, image: Tensor) -> tuple[Tensor, tuple[int, int]]:
        patches = self.proj(image)
        grid = (patches.shape[-2], patches.shape[-1])
        x = self.norm(patches.flatten(2).transpose(1, 2))
        if self.cls_token is not None:
            x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1)
        x = self.pos_drop(x + self._positions(grid))
        return self.through(self.blocks, x, grid), grid

    def _positions(self, grid: tuple[int, int]) -> Tensor:
        if grid == self.grid:
            return self.pos_embed
        resampled: Tensor = resample_abs_pos_embed(
            self.pos_embed,
            new_size=list(grid),
            old_size=list(self.grid),
            num_prefix_tokens=int(self.cls_token is not None),
        )
        return resampled


class PyramidVisionTransformer(pieces.Checkpointed):
    """PVT. Shape: (batch, channels, side, side) to (batch, classes)."""

    def __init__(
        self,
        depths: tuple[int, ...] = (3, 4, 6, 3),
        widths: tuple[int, ...] = (64, 128, 320, 512),
        heads: tuple[int, ...] = (1, 2, 5, 8),
        ratios: tuple[int, ...] = (8, 8, 4, 4),
        reductions: tuple[int, ...] = (8, 4, 2, 1),
        img_size: int = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.num_features = widths[-1]
        rates = iter(pieces.rising(drop_path_rate, sum(depths)))
        side = img_size
        channels = in_chans
        stages = []
        for index, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            patch = 2 if index else 4
            last = index == len(depths) - 1
            blocks = [
                Block(
                    width,
                    heads[index],
                    ratios[index],
                    reductions[index],
                    drop_rate,
                    attn_drop_rate,
                    next(rates),
                )
                for _ in range(depth)
            ]
            stages.append(
                Stage(channels, width, patch, side, int(last), drop_rate, blocks)
            )
            side, channels = side // patch, width
        self.stages = nn.ModuleList(stages)
        self.norm = NORM(widths[-1])
        self.head_drop = nn.Identity()
        self.head = nn.Linear(widths[-1], num_classes) if num_classes else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                pieces.initialise(module)

    def no_weight_decay(self) -> set[str]:
        return {f"stages.{len(self.stages) - 1}.cls_token"}

    def forward(self, x: Tensor) -> Tensor:
        for index, stage in enumerate(self.stages):
            x, grid = stage(x)
            if index < len(self.stages) - 1:
                x = x.transpose(1, 2).unflatten(2, grid)
        logits: Tensor = self.head(self.head_drop(self.norm(x)[:, 0]))
        return logits

    def maps(self, x: Tensor) -> list[Tensor]:
        """Returns the output of each stage, (batch, width, height, width of map)."""
        maps = []
        for stage in self.stages:
            x, grid = stage(x)
            # A map has no place for the class token.
            patches = x[:, int(stage.cls_token is not None) :]
            x = patches.transpose(1, 2).unflatten(2, grid)
            maps.append(x)
        return maps


default_cfgs = generate_default_cfgs(
    {
        name: pieces.configuration()
        for name in ("pvt_tiny", "pvt_small", "pvt_medium", "pvt_large")
    }
)


@register_model
def pvt_tiny(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return pieces.built(
        PyramidVisionTransformer,
        "pvt_tiny",
        pretrained,
        **{"depths": (2, 2, 2, 2), **arguments},
    )


@register_model
def pvt_small(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return pieces.built(
        PyramidVisionTransformer,
        "pvt_small",
        pretrained,
        **{"depths": (3, 4, 6, 3), **arguments},
    )


@register_model
def pvt_medium(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return pieces.built(
        PyramidVisionTransformer,
        "pvt_medium",
        pretrained,
        **{"depths": (3, 4, 18, 3), **arguments},
    )


@register_model
def pvt_large(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return pieces.built(
        PyramidVisionTransformer,
        "pvt_large",
        pretrained,
        **{"depths": (3, 8, 27, 3), **arguments},
    )
