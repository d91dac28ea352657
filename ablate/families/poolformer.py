"""PoolFormer (version 1), from timm.

It pools in place of attention, on images in (batch, channels, height, width).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ablate.factors.factor import Branch, Dimensions, Site
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, TwoNorms
from ablate.families.places import UNEQUAL_TOKENS, staged_blocks

if TYPE_CHECKING:
    from torch import Tensor, nn


def members() -> list[str]:
    return [
        name
        for name in timm_models.names("metaformer")
        if name.startswith("poolformer_")
    ]


def blocks(model: nn.Module) -> list[BlockPlace]:
    from torch import nn

    former: Any = model
    staged = staged_blocks(former.stages)
    places = []
    for layer, (stage, name, block) in enumerate(staged):
        side = former.image_side // (4 * 2**stage)
        site = Site(
            layer=layer,
            depth=len(staged),
            width=block.mlp.fc1.in_channels,
            heads=0,
            hidden=block.mlp.fc1.out_channels,
            grid=(side, side),
            prefix=0,
            dropout=block.mlp.drop1.p,
            norm=partial(nn.LayerNorm),
            scaled=True,
        )
        block_place = BlockPlace(
            name, site, layout="image", ffn_layout="image", attention=None
        )
        places.append(block_place)
    return places


class Algebra(TwoNorms):
    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        mixed: Tensor
        if branch == "msa":
            mixed = block.layer_scale1(block.drop_path1(block.token_mixer(normed)))
        else:
            mixed = block.layer_scale2(block.drop_path2(block.mlp(normed)))
        return mixed


POOLING = "it has pooling in the place of attention"
FAMILY = Family(
    name="poolformer",
    about="PoolFormer, from timm",
    members=members,
    dimensions=lambda name: Dimensions(patch_size=7),
    create=timm_models.creator("proj_drop_rate", attention=False, takes_side=False),
    blocks=blocks,
    algebra=Algebra,
    sizes=frozenset(("drop_path", "dropout")),
    lacks={
        "attention": POOLING,
        "heads": POOLING,
        "positions": POOLING,
        "unscaled": "it has LayerScale already",
        "norms": "its norms take the mean over the whole image",
        "tokens": UNEQUAL_TOKENS,
    },
    before_head="head.drop",
    last_norm="stages",
)
