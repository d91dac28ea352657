"""PVT version 2, from timm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.factors.factor import Branch, Dimensions
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, TwoNorms
from ablate.families.places import REDUCED_GRID, UNEQUAL_TOKENS, site_of, staged_blocks

if TYPE_CHECKING:
    from torch import Tensor, nn


def blocks(model: nn.Module) -> list[BlockPlace]:
    pvt: Any = model
    staged = staged_blocks(pvt.stages)
    places = []
    for layer, (stage, name, block) in enumerate(staged):
        side = pvt.image_side // (4 * 2**stage)
        site = site_of(
            block,
            layer=layer,
            depth=len(staged),
            grid=(side, side),
            dropout=block.mlp.drop.p,
        )
        places.append(BlockPlace(name, site, ffn=None))
    return places


class Algebra(TwoNorms):
    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        mixed: Tensor
        if branch == "msa":
            mixed = block.drop_path1(block.attn(normed, *context))
        else:
            mixed = block.drop_path2(block.mlp(normed, *context))
        return mixed


def editable(attention: nn.Module) -> type[nn.Module]:
    from ablate.backbones.editable import EditableReducedAttention

    return EditableReducedAttention


FAMILY = Family(
    name="pvt_v2",
    about="PVT version 2, from timm",
    members=lambda: timm_models.names("pvt_v2"),
    dimensions=lambda name: Dimensions(patch_size=7),
    create=timm_models.creator("proj_drop_rate", takes_side=False),
    blocks=blocks,
    algebra=Algebra,
    editable=editable,
    sizes=frozenset(("drop_path", "dropout", "attention_dropout")),
    lacks={
        "positions": REDUCED_GRID,
        "ffn": (
            "its feed-forward network has a depthwise convolution of its own between"
            " the linear layers"
        ),
        "tokens": UNEQUAL_TOKENS,
    },
    last_norm="stages",
)
