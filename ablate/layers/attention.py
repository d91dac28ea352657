"""Multi-head attention that factors can edit and diagnostics can observe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.layers.layout import OnGrid

# Base of the frequencies of rotary positions on a grid (Heo et al. 2024).
BASE = 100.0


@dataclass(frozen=True)
class Seen:
    """What one call of attention computed.

    For n queries, m keys and h heads, the shapes are: `source` (batch, m, width), the
    tokens that values are projected from; `logits` (batch, h, n, m), as they enter the
    softmax; `weights` (batch, h, n, m), as they are applied to the values; `output`
    (batch, n, width).
    """

    source: Tensor
    logits: Tensor
    weights: Tensor
    output: Tensor


class FirstValues:
    """The values of the first attention of a pass, which the others need.

    All attention modules of one network share one such record. It is emptied before each
    pass, as the first attention of the pass before may have been removed. Copies are
    empty.
    """

    def __init__(self) -> None:
        self.values: Tensor | None = None
        self._owner: nn.Module | None = None

    def begin(self, model: nn.Module, inputs: object) -> None:
        """Begins a pass; a hook of the network."""
        self.values = self._owner = None

    def offer(self, module: nn.Module, values: Tensor) -> Tensor:
        """Returns the values of the first attention of this pass.

        Args:
            module: the attention that has these values. The first one may offer them
                again, when checkpointing computes its block a second time.
        """
        if self._owner is None or self._owner is module:
            self._owner, self.values = module, values
        assert self.values is not None, "the owner has set them"
        return self.values

    def __deepcopy__(self, memo: dict[int, object]) -> FirstValues:
        memo[id(self)] = copied = FirstValues()
        return copied

    def __getstate__(self) -> dict[str, None]:
        return {"values": None, "_owner": None}


class AttentionEdits(nn.Module):
    """The edits of one attention module, in the order in which they are applied.

    Without edits, nothing changes.

    Attributes:
        first: the values of the first attention; None if no edit needs them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.ModuleList()
        self.key = nn.ModuleList()
        self.value = nn.ModuleList()
        self.logits = nn.ModuleList()
        self.weights = nn.ModuleList()
        self.attended = nn.ModuleList()
        self.output = nn.ModuleList()
        self.first: FirstValues | None = None


class EditableAttention(nn.Module):
    """The common part of attention modules, from queries to the output.

    A subclass projects its input, then calls `attend` and `finish`. To make a library's
    module editable, its class is replaced with such a subclass of its own class. It
    stays the same object, with the same parameters under the same keys.
    """

    num_heads: int
    scale: float
    attn_drop: nn.Dropout
    proj: nn.Linear
    proj_drop: nn.Module
    edits: AttentionEdits
    observer: Callable[[Seen], None] | None = None
    _seen: tuple[Tensor, Tensor, Tensor] | None = None
    fusible = True
    """False if the class itself changes logits or weights, which the fused call would
    skip.
    """

    def value_weight(self) -> Tensor:
        """Returns the weight that projects tokens to the values of all heads.

        Its shape is (heads * head width, width).
        """
        if hasattr(self, "qkv"):
            return cast(nn.Linear, self.qkv).weight.chunk(3)[2]
        return cast(nn.Linear, self.kv).weight.chunk(2)[1]

    def mix_logits(self, logits: Tensor) -> Tensor:
        """Applies the changes of the class itself to logits."""
        return logits

    def mix_weights(self, weights: Tensor) -> Tensor:
        """Applies the changes of the class itself to weights."""
        return weights

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        source: Tensor,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Returns the attention of all heads, merged.

        Args:
            q: (batch, heads, n, head width); multiplied by `scale`.
            k, v: (batch, heads, m, head width).
            source: (batch, m, width), what v is projected from.
            bias: added to the logits before their edits; broadcast to (batch, heads, n,
                m).
            mask: added to the logits after their edits; broadcast to (batch, heads, n,
                m).

        Returns:
            (batch, n, heads * head width).
        """
        for edit in self.edits.query:
            q = edit(q)
        q = q * self.scale
        for edit in self.edits.key:
            k = edit(k)
        for edit in self.edits.value:
            v = _split(edit(source, _merge(v)), self.num_heads)
        if self._can_fuse():
            attended = self._fused(q, k, v, bias, mask)
        else:
            attended = self._explicit(q, k, v, source, bias, mask)
        first = self.edits.first
        if first is not None:
            values = first.offer(self, v)
            for edit in self.edits.attended:
                attended = edit(attended, v, values)
        return _merge(attended)

    def _explicit(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        source: Tensor,
        bias: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        """The same as `_fused`, with logits and weights, which edits can change."""
        logits = q @ k.transpose(-2, -1)
        if bias is not None:
            logits = logits + bias
        logits = self.mix_logits(logits)
        for edit in self.edits.logits:
            logits = edit(logits)
        # The mask comes after the edits: a linear map across heads could otherwise let
        # a masked key through.
        if mask is not None:
            logits = logits + mask
        weights = self.mix_weights(logits.softmax(dim=-1))
        for edit in self.edits.weights:
            weights = edit(weights)
        if self.observer is not None:
            self._seen = (source, logits, weights)
        attended: Tensor = self.attn_drop(weights) @ v
        return attended

    def _can_fuse(self) -> bool:
        """Whether the fused call can be used, which never forms logits and weights.

        Nothing may observe them, and no edit may need them. An edit of values alone
        needs neither.
        """
        if not self.fusible or self.observer is not None or self.edits.logits:
            return False
        if not self.edits.weights:
            return True
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            # A traced network is counted, by the form of the paper. (torch documents
            # this function, but neither exports nor types it.)
            return False
        if self.training and self.attn_drop.p:
            # Dropout comes after the edits of weights.
            return False
        # Not a subclass, which may have another formula.
        return all(type(edit) is ScaledHighPass for edit in self.edits.weights)

    def _fused(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        """The attention of all heads, as (batch, heads, n, head width)."""
        if mask is None:
            added = bias
        elif bias is None:
            added = mask
        else:
            added = bias + mask
        drop = self.attn_drop.p if self.training else 0.0
        # The scale is 1, because q is scaled already.
        attended = F.scaled_dot_product_attention(
            q, k, v, attn_mask=added, dropout_p=drop, scale=1.0
        )
        for edit in self.edits.weights:
            assert isinstance(edit, ScaledHighPass)
            attended = edit.of_attended(attended, v)
        return attended

    def finish(self, merged: Tensor) -> Tensor:
        """Applies the output projection, its dropout, and the edits of the output.

        Shape: (batch, n, width).
        """
        output: Tensor = self.proj_drop(self.proj(merged))
        for edit in self.edits.output:
            output = edit(output)
        if self.observer is not None and self._seen is not None:
            self.observer(Seen(*self._seen, output))
            self._seen = None
        return output


def _merge(heads: Tensor) -> Tensor:
    """(batch, heads, n, head width) to (batch, n, heads * head width)."""
    return heads.transpose(1, 2).flatten(2)


def _split(tokens: Tensor, heads: int) -> Tensor:
    """(batch, n, heads * head width) to (batch, heads, n, head width)."""
    split: Tensor = tokens.unflatten(2, (heads, -1))
    return split.transpose(1, 2)


class ScaledHighPass(nn.Module):
    """AttnScale: `A' = A_LP + (1 + w) A_HP` with `A_LP = 1 1^T / m`.

    There is one w per head, initialised to 0 (anti-oversmoothing, section 3.1).

    Shape:
        (batch, heads, n, m) to the same.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(heads))

    def forward(self, weights: Tensor) -> Tensor:
        # Each row of attention weights sums to 1, so its low-pass part is 1/m
        # everywhere; no mean has to be computed.
        low = 1 / weights.shape[-1]
        return low + (1 + self.w[:, None, None]) * (weights - low)

    def of_attended(self, attended: Tensor, v: Tensor) -> Tensor:
        """Returns `A' V` from `A V`, without the attention map A.

        Since `A_LP V` is the mean of V over tokens, `A' V = (1 + w) A V - w mean(V)`.

        Shape:
            attended (batch, heads, n, head width), v (batch, heads, m, head width), to
            the shape and type of `attended`.
        """
        w = self.w[:, None, None]
        edited: Tensor = (1 + w) * attended - w * v.mean(dim=-2, keepdim=True)
        # With autocast, w is float32 and the rest is not.
        return edited.to(attended.dtype)


class ScaledFrequencies(nn.Module):
    """FeatScale: `X' = X + c (DC[X] diag(s) + HC[X] diag(t))`.

    There is one s and one t per channel, initialised to 0 (anti-oversmoothing, section
    3.2). DC is the mean over tokens. c is 1 in the text, and 2 in the published code
    for DeiT.

    Args:
        width: channels.
        times: c.
        dims: the dimensions over which the mean is taken.

    Shape:
        (batch, tokens, width) to the same; with `dims` (1, 2), (batch, height, width of
            the grid, width) to the same.
    """

    def __init__(
        self, width: int, times: int = 1, dims: tuple[int, ...] = (-2,)
    ) -> None:
        super().__init__()
        self.times, self.dims = times, dims
        self.s = nn.Parameter(torch.zeros(width))
        self.t = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        constant = x.mean(dim=self.dims, keepdim=True)
        return x + self.times * (constant * self.s + (x - constant) * self.t)


class RotaryPositions(nn.Module):
    """Rotary positions on the two axes of a grid (RoPE-Axial, Heo et al. 2024).

    Let d be the head width and `theta_t = 100^(-t / (d / 4))`. In the first half of the
    channels, pair t is rotated by the angle `row * theta_t`, in the second half by
    `column * theta_t`. The product of a query and a key then depends on the distance of
    their tokens. Prefix tokens are not rotated.

    Args:
        prefix: tokens before those of the grid.

    Shape:
        (batch, heads, prefix + height * width, head width) to the same.
    """

    def __init__(self, prefix: int) -> None:
        super().__init__()
        self.prefix = prefix

    def rotated(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Returns the tokens after the rotation."""
        quarter = x.shape[-1] // 4
        # With autocast, angles of half precision would be wrong by several percent.
        exact = torch.float64 if x.dtype == torch.float64 else torch.float32
        axis = partial(torch.arange, dtype=exact, device=x.device)
        frequencies = BASE ** (-axis(quarter) / quarter)
        rows, columns = (axis(side)[:, None] * frequencies for side in grid)
        angles = torch.cat(
            (
                rows[:, None].expand(-1, grid[1], -1),
                columns[None].expand(grid[0], -1, -1),
            ),
            dim=-1,
        ).flatten(0, 1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        tokens = x[:, :, self.prefix :]
        even, odd = tokens[..., ::2], tokens[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
        return torch.cat((x[:, :, : self.prefix], turned.flatten(3)), dim=2)


class GridPositions(RotaryPositions, OnGrid):
    """Rotary positions on the token grid of the image."""

    def __init__(self, grid: tuple[int, int], prefix: int) -> None:
        super().__init__(prefix)
        self.grid = grid

    def forward(self, x: Tensor) -> Tensor:
        return self.rotated(x, self.grid)


class WindowPositions(RotaryPositions):
    """Rotary positions inside a window, whose size does not follow the image."""

    def __init__(self, window: tuple[int, int]) -> None:
        super().__init__(0)
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        return self.rotated(x, self.window)


class ValueResidual(nn.Module):
    """`A V + scale (V1 - V)`, where V1 are the values of the first block (NeuTRENO).

    See Nguyen et al. 2023 (arXiv 2312.00751).

    Shape:
        three of (batch, heads, tokens, head width) to the same.
    """

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, attended: Tensor, v: Tensor, first: Tensor) -> Tensor:
        return attended + self.scale * (first - v)


class TalkingHeads(nn.Module):
    """A linear map across heads, without bias, on logits or weights.

    See Shazeer et al. 2020; patch-diversification, section 5.1.

    Shape:
        (batch, heads, n, m) to the same.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.mix = nn.Linear(heads, heads, bias=False)
        nn.init.trunc_normal_(self.mix.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            # The same map, without matrix products whose sides are the few heads.
            return F.conv2d(x, self.mix.weight[:, :, None, None])
        mixed: Tensor = self.mix(x.permute(0, 2, 3, 1))
        return mixed.permute(0, 3, 1, 2)


VALUE_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "silu": F.silu,
}
GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "glu": F.sigmoid,
    "geglu": F.gelu,
    "swiglu": F.silu,
}


class ValueActivation(nn.Module):
    """`V = phi(V)` (mabvit, Modified Attention Block).

    Shape:
        tokens and values (batch, m, width) to new values.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.activation = VALUE_ACTIVATIONS[name]

    def forward(self, source: Tensor, v: Tensor) -> Tensor:
        return self.activation(v)


class GatedValue(nn.Module):
    """`V = phi(X W1 + b1) * (X W2 + b2)` (mabvit, GLU Variant).

    The value projection is doubled; W2 is the original one.

    Shape:
        tokens (batch, m, width) and values (batch, m, values) to new values.
    """

    def __init__(self, width: int, name: str) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        nn.init.trunc_normal_(self.gate.weight, std=0.02)
        nn.init.zeros_(self.gate.bias)
        self.activation = GATES[name]

    def forward(self, source: Tensor, v: Tensor) -> Tensor:
        return self.activation(self.gate(source)) * v
