"""PoolFormer (version 1), from timm.

It pools in place of attention, on images in (batch, channels, height, width).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ablate.factors.factor import Branch, Dimensions, Site
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, TwoNorms
from ablate.families.places import staged_blocks

if TYPE_CHECKING:
    from torch import Tensor, nn


def members() -> list[str]:
    return [
        name
        for name in timm_models.names("metaformer")
        if name.startswith("poolformer_")
    ]


def dimensions(name: str) -> Dimensions:
    return Dimensions(patch_size=7)


def create(
    name: str, image_size: int, channels: int, classes: int, wanted: Dimensions
) -> nn.Module:
    timm_models.require_multiple(image_size, 32, name)
    model: Any = timm_models.create(
        name,
        channels,
        classes,
        **timm_models.rates(wanted, "proj_drop_rate", attention=False),
    )
    model.image_side = image_size
    made: nn.Module = model
    return made


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
        place = BlockPlace(
            name, site, layout="image", ffn_layout="image", attention=None
        )
        places.append(place)
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


FAMILY = Family(
    name="poolformer",
    about="PoolFormer, from timm",
    members=members,
    dimensions=dimensions,
    image_size=timm_models.image_size,
    create=create,
    blocks=blocks,
    algebra=Algebra,
    editable=lambda attention: None,
    sizes=frozenset(("drop_path", "dropout")),
    lacks={
        "attention": "it has pooling in the place of attention",
        "heads": "it has pooling in the place of attention",
        "positions": "it has pooling in the place of attention",
        "unscaled": "it has LayerScale already",
        "norms": "its norms take the mean over the whole image",
        "tokens": (
            "its first and last layers differ in the number and the width of their"
            " tokens"
        ),
    },
    before_head="head.drop",
    last_norm="stages",
)
