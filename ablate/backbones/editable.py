"""timm's attention modules, made editable.

They have the same parameters under the same keys, with another forward.
"""

from __future__ import annotations

from typing import Any

import torch
from timm.layers.attention import Attention
from timm.models.cait import TalkingHeadAttn
from timm.models.pvt_v2 import Attention as ReducedAttention
from timm.models.swin_transformer import SwinTransformerBlock, WindowAttention
from torch import Tensor, nn

from ablate.layers.attention import EditableAttention


def _heads(projected: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Splits (batch, n, parts * heads * head width) into `parts` tensors.

    Each is (batch, heads, n, head width).
    """
    return projected.unflatten(2, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


class EditableViTAttention(EditableAttention, Attention):
    """The attention of ViT and DeiT."""

    qkv: nn.Linear
    q_norm: nn.Module
    k_norm: nn.Module
    norm: nn.Module
    gate: nn.Module | None
    scale: float

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        if attn_mask is not None or is_causal:
            raise NotImplementedError(
                "this attention takes no mask; leave out attn_mask and is_causal"
            )
        q, k, v = _heads(self.qkv(x), 3, self.num_heads)
        merged = self.norm(self.attend(self.q_norm(q), self.k_norm(k), v, x))
        if self.gate is not None:
            merged = merged * self.gate(x).sigmoid()
        return self.finish(merged)


class EditableTalkingHeadAttention(EditableAttention, TalkingHeadAttn):
    """The attention of CaiT's self-attention blocks.

    It has linear maps across heads before and after the softmax. Edits of the weights
    follow them, as in the published code of AttnScale.
    """

    fusible = False
    qkv: nn.Linear
    proj_l: nn.Linear
    proj_w: nn.Linear
    scale: float

    def mix_logits(self, logits: Tensor) -> Tensor:
        mixed: Tensor = self.proj_l(logits.permute(0, 2, 3, 1))
        return mixed.permute(0, 3, 1, 2)

    def mix_weights(self, weights: Tensor) -> Tensor:
        mixed: Tensor = self.proj_w(weights.permute(0, 2, 3, 1))
        return mixed.permute(0, 3, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = _heads(self.qkv(x), 3, self.num_heads)
        return self.finish(self.attend(q, k, v, x))


class EditableWindowAttention(EditableAttention, WindowAttention):
    """The attention of Swin; x is (windows * batch, tokens of a window, width)."""

    qkv: nn.Linear
    scale: float

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = _heads(self.qkv(x), 3, self.num_heads)
        if mask is not None:
            # There is one mask per window, (windows, n, n); in the batch, images vary
            # slowest.
            mask = (
                mask[None, :, None]
                .expand(len(x) // len(mask), -1, -1, -1, -1)
                .flatten(0, 1)
            )
        bias: Tensor = WindowAttention._get_rel_pos_bias(self)
        return self.finish(self.attend(q, k, v, x, bias=bias, mask=mask))


class EditedWindows(SwinTransformerBlock):
    """A block of Swin whose attention is edited after its windows are merged."""

    image_edits: nn.ModuleList

    def _attn(self, x: Tensor) -> Tensor:
        output: Tensor = super()._attn(x)
        for edit in self.image_edits:
            output = edit(output)
        return output


def edit_windows(block: nn.Module, edit: nn.Module) -> None:
    """Adds an edit of the whole image to a block of Swin.

    The edit is from (batch, height, width, channels) to the same.
    """
    if not isinstance(block, EditedWindows):
        block.__class__ = EditedWindows
        block.image_edits = nn.ModuleList()
    assert isinstance(block, EditedWindows)
    block.image_edits.append(edit)


class AveragesWithout:
    """The part of a ViT that leaves added tokens out of the mean over its tokens."""

    added: int
    num_prefix_tokens: int

    def pool(self, x: Tensor, pool_type: str | None = None) -> Tensor:
        prefix = self.num_prefix_tokens
        kept = torch.cat((x[:, :prefix], x[:, prefix + self.added :]), dim=1)
        pooled: Tensor = super().pool(kept, pool_type)  # type: ignore[misc]
        return pooled


_AVERAGING: dict[type[nn.Module], type[nn.Module]] = {}


def leave_out_of_mean(model: nn.Module, added: int) -> None:
    """Makes a ViT of timm leave out tokens that stand behind its prefix tokens."""
    kind = type(model)
    if kind not in _AVERAGING:
        name = f"{AveragesWithout.__name__}{kind.__name__}"
        _AVERAGING[kind] = type(name, (AveragesWithout, kind), {"__module__": __name__})
    model.__class__ = _AVERAGING[kind]
    made: Any = model
    made.added = added


class EditableReducedAttention(EditableAttention, ReducedAttention):
    """The attention of PVT version 2: keys and values come from a reduced grid."""

    q: nn.Linear
    kv: nn.Linear
    sr: nn.Module | None
    pool: nn.Module | None
    norm: nn.Module
    act: nn.Module | None
    scale: float

    def forward(self, x: Tensor, feat_size: Any) -> Tensor:
        (q,) = _heads(self.q(x), 1, self.num_heads)
        reduced = x
        if self.sr is not None:
            image = x.transpose(1, 2).unflatten(2, tuple(feat_size))
            reduced = self.norm(
                self.sr(image if self.pool is None else self.pool(image))
                .flatten(2)
                .transpose(1, 2)
            )
            reduced = reduced if self.act is None else self.act(reduced)
        k, v = _heads(self.kv(reduced), 2, self.num_heads)
        return self.finish(self.attend(q, k, v, reduced))
