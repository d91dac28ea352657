"""LVT, the Lite Vision Transformer (arXiv 2112.10809).

It has convolutional self-attention in the first stage, recursive atrous self-attention
in the other three, and class attention at the end. LVT-Rn repeats the recursion n times
with the same weights.

The logits are those of the class token plus half the maximum over the patches, as in
the published evaluation. The token labelling with which its authors train mixes tokens
inside the network; it is not part of the architecture and not implemented here.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import trunc_normal_
from timm.models import generate_default_cfgs, register_model
from torch import Tensor, nn

from ablate.backbones import pieces

RATES = (1, 3, 5)


class ConvolutionalSelfAttention(nn.Module):
    """CSA: dynamic weights times convolved values in each 3 x 3 neighbourhood.

    The values are convolved with static kernels. Overlapping neighbourhoods are added
    up (section 3.1).

    Shape:
        (batch, height, width, channels) to the same.
    """

    def __init__(self, width: int, heads: int, attention_dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        # For each of the 9 places around a pixel, weights over the 9 places.
        self.attn = nn.Linear(width, 3**4 * heads)
        self.attn_drop = nn.Dropout(attention_dropout)
        self.unfold = nn.Unfold(3, padding=1, stride=2)
        self.pool = nn.AvgPool2d(2, 2, ceil_mode=True)
        # One matrix per place of the 3 x 3 neighbourhood: a static kernel, kept as 9 groups.
        self.weight = nn.Conv2d(9 * width, 9 * width, 1, groups=9, bias=False)
        self.proj = nn.Linear(width, width)
        nn.init.normal_(self.weight.weight, 0, math.sqrt(2.0 / (9 * width)))

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        image = x.permute(0, 3, 1, 2)
        # (batch, places, heads, 9, 9): one window at every second pixel.
        logits = self.attn(self.pool(image).flatten(2).transpose(1, 2)).unflatten(
            2, (self.heads, 9, 9)
        )
        weights = self.attn_drop((logits.transpose(1, 2) * self.scale).softmax(dim=-1))
        places = self.unfold(image).unflatten(1, (channels, 9)).permute(0, 3, 2, 1)
        v = self.weight(places.reshape(-1, 9 * channels, 1, 1)).reshape(
            batch, -1, 9, self.heads, channels // self.heads
        )
        mixed = (weights @ v.permute(0, 3, 1, 2, 4)).permute(0, 1, 4, 3, 2)
        # Windows overlap by one pixel; fold adds up what falls on the same one.
        folded = F.fold(
            mixed.reshape(batch, 9 * channels, -1),
            (height, width),
            3,
            padding=1,
            stride=2,
        )
        output: Tensor = self.proj(folded.permute(0, 2, 3, 1))
        return output


class AtrousQueries(nn.Module):
    """One depthwise 3 x 3 kernel at three dilations, each with SiLU, summed.

    See section 3.2.

    Shape:
        (batch, channels, height, width) to the same.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, 1, 3, 3))
        nn.init.kaiming_uniform_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros((), device=x.device, dtype=x.dtype)
        for rate in RATES:
            total = total + F.silu(
                F.conv2d(x, self.weight, padding=rate, dilation=rate, groups=x.shape[1])
            )
        return total


class RecursiveAtrousSelfAttention(pieces.SelfAttention):
    """RASA: queries of several dilations, with recursions.

    The output of one recursion is the input of the next, through the same weights.

    Shape:
        (batch, height, width, channels) to the same.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        reduction: int,
        recursions: int,
        attention_dropout: float,
    ) -> None:
        super().__init__(
            width,
            heads,
            reduction=reduction,
            bias=False,
            attention_dropout=attention_dropout,
        )
        self.recursions = recursions
        self.ds = AtrousQueries(width)

    def queries(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        q = super().queries(x, grid).transpose(1, 2).unflatten(2, grid)
        atrous: Tensor = self.ds(q).flatten(2).transpose(1, 2)
        return atrous

    def forward(self, x: Tensor, grid: tuple[int, int] = (0, 0)) -> Tensor:
        grid, state = (x.shape[1], x.shape[2]), x.flatten(1, 2)
        output = super().forward(state, grid)
        # Without recursions, RASA is plain attention, which has no activation at its end.
        if self.recursions > 1:
            output = F.silu(output)
        for _ in range(self.recursions - 1):
            # The same weights again: recursions cost FLOPs, but no parameters.
            state = output + state
            output = F.silu(super().forward(state, grid))
        return output.unflatten(1, grid)


class ConvolutionalFeedForward(nn.Module):
    """fc1, depthwise 3 x 3 convolution, GELU, fc2.

    Shape: (batch, height, width, channels) to the same.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.depconv = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.depconv(self.fc1(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        output: Tensor = self.fc2(self.act(hidden))
        return output


class Block(nn.Module):
    """Pre-norm block. Shape: (batch, height, width, channels) to the same."""

    def __init__(
        self, width: int, attn: nn.Module, mlp: nn.Module, drop_path: float
    ) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), attn
        self.drop_path = pieces.drop_path(drop_path)
        self.norm2, self.mlp = nn.LayerNorm(width), mlp

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class ClassBlock(nn.Module):
    """Class attention as in CaiT: only the first token changes.

    Shape: (batch, tokens, width) to the same.
    """

    def __init__(self, width: int, heads: int, ratio: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.norm1 = nn.LayerNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * width, bias=False)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = pieces.FeedForward(width, int(width * ratio))

    def forward(self, x: Tensor) -> Tensor:
        normed, cls = self.norm1(x), x[:, :1]
        q = self.q(normed[:, :1]).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k, v = (
            self.kv(normed)
            .unflatten(2, (2, self.heads, -1))
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        weights = (q * self.scale @ k.transpose(-2, -1)).softmax(dim=-1)
        cls = cls + self.proj((weights @ v).transpose(1, 2).flatten(2))
        cls = cls + self.mlp(self.norm2(cls))
        return torch.cat((cls, x[:, 1:]), dim=1)


class Embedding(nn.Module):
    """Overlapping patches.

    Shape: (batch, channels, height, width) to (batch, height / stride, width / stride,
    width).
    """

    def __init__(self, channels: int, width: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(
            channels, width, kernel, stride=stride, padding=kernel // 2
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(self.proj(x).permute(0, 2, 3, 1))
        return normed


class LiteVisionTransformer(pieces.Checkpointed):
    """LVT. Shape: (batch, channels, side, side) to (batch, classes)."""

    def __init__(
        self,
        recursions: int = 1,
        depths: tuple[int, ...] = (2, 2, 2, 2),
        widths: tuple[int, ...] = (64, 64, 160, 256),
        heads: tuple[int, ...] = (2, 2, 5, 8),
        ratios: tuple[int, ...] = (4, 8, 4, 4),
        reductions: tuple[int, ...] = (8, 4, 2, 1),
        img_size: int = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.num_features = widths[-1]
        self.image_side = img_size
        # The rate rises over the blocks of all stages, not within each.
        rates = iter(pieces.rising(drop_path_rate, sum(depths)))
        stages, channels = [], in_chans
        for index, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            embedding = Embedding(channels, width, 3 if index else 7, 2 if index else 4)
            blocks = []
            for _ in range(depth):
                attention: nn.Module
                ffn: nn.Module
                if index == 0:
                    # The first stage convolves.
                    attention = ConvolutionalSelfAttention(
                        width, heads[index], attn_drop_rate
                    )
                    ffn = pieces.FeedForward(width, width * ratios[index])
                else:
                    attention = RecursiveAtrousSelfAttention(
                        width,
                        heads[index],
                        reductions[index],
                        recursions,
                        attn_drop_rate,
                    )
                    ffn = ConvolutionalFeedForward(width, width * ratios[index])
                blocks.append(Block(width, attention, ffn, next(rates)))
            stages.append(
                nn.ModuleDict(
                    {"embedding": embedding, "blocks": pieces.Blocks(*blocks)}
                )
            )
            channels = width
        self.stages = nn.ModuleList(stages)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, channels))
        self.class_blocks = nn.Sequential(
            *(ClassBlock(channels, heads[-1], ratios[-1]) for _ in range(2))
        )
        self.norm = nn.LayerNorm(channels)
        self.aux_head = nn.Linear(channels, num_classes)
        self.head_drop = nn.Identity()
        self.head = nn.Linear(channels, num_classes)
        trunc_normal_(self.cls_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                pieces.initialise(module)

    def no_weight_decay(self) -> set[str]:
        return {"cls_token"}

    def forward(self, x: Tensor) -> Tensor:
        for index, stage in enumerate(self.stages):
            assert isinstance(stage, nn.ModuleDict)
            # Blocks keep the channels last; the convolution that embeds needs them first.
            x = stage["blocks"](
                stage["embedding"](x.permute(0, 3, 1, 2) if index else x)
            )
        tokens = torch.cat(
            (self.cls_token.expand(len(x), -1, -1), x.flatten(1, 2)), dim=1
        )
        tokens = self.norm(self.class_blocks(tokens))
        # The highest score of any patch counts half, as with token labelling in VOLO.
        patches = self.aux_head(tokens[:, 1:]).amax(dim=1)
        logits: Tensor = self.head(self.head_drop(tokens[:, 0])) + 0.5 * patches
        return logits


default_cfgs = generate_default_cfgs(
    {f"lvt_r{n}": pieces.configuration() for n in (1, 2, 3, 4)}
)


@register_model
def lvt_r1(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return pieces.built(
        LiteVisionTransformer, "lvt_r1", pretrained, **{"recursions": 1, **arguments}
    )


@register_model
def lvt_r2(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return pieces.built(
        LiteVisionTransformer, "lvt_r2", pretrained, **{"recursions": 2, **arguments}
    )


@register_model
def lvt_r3(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return pieces.built(
        LiteVisionTransformer, "lvt_r3", pretrained, **{"recursions": 3, **arguments}
    )


@register_model
def lvt_r4(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return pieces.built(
        LiteVisionTransformer, "lvt_r4", pretrained, **{"recursions": 4, **arguments}
    )
