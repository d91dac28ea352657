"""T2T-ViT (arXiv 2101.11986).

Overlapping patches are unfolded and attended to twice before a narrow, deep ViT. The
token-to-token module uses a Performer (`t2t_vit_14`) or full attention
(`t2t_vit_t_14`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from timm.layers import trunc_normal_
from timm.models import generate_default_cfgs, register_model
from torch import Tensor, nn

from ablate.backbones import pieces
from ablate.layers.attention import AttentionEdits, EditableAttention

TOKEN_WIDTH = 64


class TokenPerformer(nn.Module):
    """Linear attention by positive random features, with the values as shortcut.

    See the appendix, and Performer, arXiv 2009.14794.

    Shape:
        (batch, tokens, channels) to (batch, tokens, width).
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.width, self.features = width, width // 2
        self.norm1 = nn.LayerNorm(channels)
        self.kqv = nn.Linear(channels, 3 * width)
        self.proj = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.Dropout(0.1)
        )
        # Orthogonal rows of the norm sqrt(m), as in the authors' code.
        directions = nn.init.orthogonal_(torch.empty(self.features, width)) * math.sqrt(
            self.features
        )
        self.register_buffer("directions", directions)

    def kernel(self, x: Tensor) -> Tensor:
        """Returns exp(w x - |x|^2 / 2) / sqrt(m) for each of m random directions w.

        Shape: (batch, tokens, m).
        """
        assert isinstance(self.directions, Tensor)
        squares = (x * x).sum(-1, keepdim=True) / 2
        return torch.exp(x @ self.directions.T - squares) / math.sqrt(self.features)

    def forward(self, x: Tensor) -> Tensor:
        # The authors' weights have this order. In half precision, exp would overflow.
        k, q, v = self.kqv(self.norm1(x)).float().chunk(3, dim=-1)
        k = self.kernel(k)
        q = self.kernel(q)
        # Sums over tokens come first, so the cost is linear in their number.
        normaliser = q @ k.sum(dim=1).unsqueeze(-1)
        attended = q @ (k.transpose(1, 2) @ v) / (normaliser + 1e-8)
        x = v + self.drop(self.proj(attended))
        output: Tensor = x + self.mlp(self.norm2(x))
        return output


class TokenTransformer(nn.Module):
    """Full attention with one head and the values as shortcut.

    Shape: (batch, tokens, channels) to (batch, tokens, width).
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        # As in the authors' code: the width of the input, not that of the head.
        self.scale = channels**-0.5
        self.norm1 = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = pieces.FeedForward(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        weights = (q * self.scale @ k.transpose(1, 2)).softmax(dim=-1)
        x = v + self.proj(weights @ v)
        output: Tensor = x + self.mlp(self.norm2(x))
        return output


class TokensToToken(nn.Module):
    """Three soft splits (unfolding) with attention between them (section 3.1).

    Shape:
        (batch, channels, side, side) to (batch, (side / 16)^2, width).
    """

    def __init__(
        self,
        channels: int,
        width: int,
        mixer: type[TokenPerformer] | type[TokenTransformer],
    ) -> None:
        super().__init__()
        self.split0 = nn.Unfold(7, stride=4, padding=2)
        self.split1 = nn.Unfold(3, stride=2, padding=1)
        self.split2 = nn.Unfold(3, stride=2, padding=1)
        self.attention1 = mixer(channels * 7 * 7, TOKEN_WIDTH)
        self.attention2 = mixer(TOKEN_WIDTH * 3 * 3, TOKEN_WIDTH)
        self.project = nn.Linear(TOKEN_WIDTH * 3 * 3, width)

    def forward(self, image: Tensor) -> Tensor:
        # The strides 4, 2 and 2 make one token of 16 x 16 pixels.
        side = image.shape[-1] // 4
        x = self.attention1(self.split0(image).transpose(1, 2))
        x = self.split1(x.transpose(1, 2).unflatten(2, (side, side)))
        x = self.attention2(x.transpose(1, 2))
        x = self.split2(x.transpose(1, 2).unflatten(2, (side // 2, side // 2)))
        tokens: Tensor = self.project(x.transpose(1, 2))
        return tokens


class Attention(EditableAttention):
    """Multi-head self-attention. Shape: (batch, tokens, width) to the same."""

    def __init__(
        self, width: int, heads: int, dropout: float, attention_dropout: float
    ) -> None:
        super().__init__()
        self.num_heads = heads
        self.scale = (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attn_drop = nn.Dropout(attention_dropout)
        self.proj = nn.Linear(width, width)
        self.proj_drop = nn.Dropout(dropout)
        self.edits = AttentionEdits()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            self.qkv(x)
            .unflatten(2, (3, self.num_heads, -1))
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        return self.finish(self.attend(q, k, v, x))


class Block(nn.Module):
    """Pre-norm block. Shape: (batch, tokens, width) to the same."""

    def __init__(
        self,
        width: int,
        heads: int,
        ratio: float,
        dropout: float,
        attention_dropout: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout, attention_dropout)
        self.drop_path = pieces.drop_path(drop_path)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = pieces.FeedForward(width, int(width * ratio), dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


def sinusoids(positions: int, width: int) -> Tensor:
    """Fixed position embedding: sin and cos of position / 10000^(2i / width).

    Shape: (1, positions, width).
    """
    angles = torch.arange(positions, dtype=torch.float64)[:, None] / 10000 ** (
        2 * (torch.arange(width, dtype=torch.float64) // 2) / width
    )
    return torch.where(
        torch.arange(width) % 2 == 0, angles.sin(), angles.cos()
    ).float()[None]


class T2TViT(pieces.Checkpointed):
    """T2T-ViT. Shape: (batch, channels, side, side) to (batch, classes)."""

    def __init__(
        self,
        width: int = 384,
        depth: int = 14,
        heads: int = 6,
        performer: bool = True,
        mlp_ratio: float = 3.0,
        img_size: int = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_classes, self.num_features = num_classes, width
        self.grid = (img_size // 16, img_size // 16)
        self.tokens_to_token = TokensToToken(
            in_chans, width, TokenPerformer if performer else TokenTransformer
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        # Fixed, but counted among the parameters, as by its authors.
        self.pos_embed = nn.Parameter(
            sinusoids(self.grid[0] * self.grid[1] + 1, width), requires_grad=False
        )
        self.pos_drop = nn.Dropout(drop_rate)
        self.blocks = nn.ModuleList(
            Block(width, heads, mlp_ratio, drop_rate, attn_drop_rate, rate)
            for rate in pieces.rising(drop_path_rate, depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head_drop = nn.Identity()
        self.head = nn.Linear(width, num_classes) if num_classes else nn.Identity()
        trunc_normal_(self.cls_token, std=0.02)
        self.apply(pieces.initialise)

    def no_weight_decay(self) -> set[str]:
        return {"cls_token"}

    def forward(self, image: Tensor) -> Tensor:
        x = self.tokens_to_token(image)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1)
        x = self.pos_drop(x + self.pos_embed)
        x = self.through(self.blocks, x)
        logits: Tensor = self.head(self.head_drop(self.norm(x)[:, 0]))
        return logits


NAMES = (
    "t2t_vit_14",
    "t2t_vit_19",
    "t2t_vit_24",
    "t2t_vit_t_14",
    "t2t_vit_t_19",
    "t2t_vit_t_24",
)
SIZES = {"14": (384, 14, 6), "19": (448, 19, 7), "24": (512, 24, 8)}
default_cfgs = generate_default_cfgs(dict.fromkeys(NAMES, pieces.configuration()))


def _made(
    size: str, performer: bool, pretrained: bool, arguments: dict[str, Any]
) -> nn.Module:
    width, depth, heads = SIZES[size]
    numbers = {"width": width, "depth": depth, "heads": heads, "performer": performer}
    return pieces.built(
        T2TViT,
        f"t2t_vit_{'' if performer else 't_'}{size}",
        pretrained,
        **{**numbers, **arguments},
    )


@register_model
def t2t_vit_14(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return _made("14", True, pretrained, arguments)


@register_model
def t2t_vit_19(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return _made("19", True, pretrained, arguments)


@register_model
def t2t_vit_24(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return _made("24", True, pretrained, arguments)


@register_model
def t2t_vit_t_14(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return _made("14", False, pretrained, arguments)


@register_model
def t2t_vit_t_19(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return _made("19", False, pretrained, arguments)


@register_model
def t2t_vit_t_24(pretrained: bool = False, **arguments: Any) -> nn.Module:
    return _made("24", False, pretrained, arguments)
