"""PVT version 2, from timm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.factors.factor import Branch, Dimensions, Site
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, TwoNorms

if TYPE_CHECKING:
    from torch import Tensor, nn


def members() -> list[str]:
    return timm_models.names("pvt_v2")


def dimensions(name: str) -> Dimensions:
    return Dimensions(patch_size=7)


def create(
    name: str, image_size: int, channels: int, classes: int, wanted: Dimensions
) -> nn.Module:
    timm_models.require_multiple(image_size, 32, name)
    model: Any = timm_models.create(
        name, channels, classes, **timm_models.rates(wanted, "proj_drop_rate")
    )
    model.image_side = image_size
    made: nn.Module = model
    return made


def blocks(model: nn.Module) -> list[BlockPlace]:
    pvt: Any = model
    found = [
        (f"stages.{s}.blocks.{b}", block, pvt.image_side // (4 * 2**s))
        for s, stage in enumerate(pvt.stages)
        for b, block in enumerate(stage.blocks)
    ]
    return [
        BlockPlace(
            name,
            Site(
                layer=index,
                depth=len(found),
                width=block.attn.dim,
                heads=block.attn.num_heads,
                hidden=block.mlp.fc1.out_features,
                grid=(side, side),
                prefix=0,
                dropout=block.mlp.drop.p,
                norm=timm_models.norm_like(block.norm1),
            ),
            ffn=None,
        )
        for index, (name, block, side) in enumerate(found)
    ]


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
    members=members,
    dimensions=dimensions,
    image_size=timm_models.image_size,
    create=create,
    blocks=blocks,
    algebra=Algebra,
    editable=editable,
    sizes=frozenset(("drop_path", "dropout", "attention_dropout")),
    lacks={
        "ffn": (
            "its feed-forward network has a depthwise convolution of its own between"
            " the linear layers"
        ),
        "tokens": (
            "its first and last layers differ in the number and the width of their"
            " tokens"
        ),
    },
    last_norm="stages",
)
