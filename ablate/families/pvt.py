"""PVT version 1, from this package's backbones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.factors.factor import Branch, Dimensions
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, TwoNorms
from ablate.families.places import site_of, staged_blocks

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ablate.backbones.features import FeatureMaps


def members() -> list[str]:
    return ["pvt_tiny", "pvt_small", "pvt_medium", "pvt_large"]


def dimensions(name: str) -> Dimensions:
    return Dimensions(patch_size=4)


def create(
    name: str, image_size: int, channels: int, classes: int, wanted: Dimensions
) -> nn.Module:
    timm_models.require_multiple(image_size, 32, name)
    return timm_models.create(
        name,
        channels,
        classes,
        img_size=image_size,
        **timm_models.rates(wanted, "drop_rate"),
    )


def blocks(model: nn.Module) -> list[BlockPlace]:
    pvt: Any = model
    staged = staged_blocks(pvt.stages)
    places = []
    for layer, (number, name, block) in enumerate(staged):
        stage = pvt.stages[number]
        site = site_of(
            block,
            layer=layer,
            depth=len(staged),
            grid=stage.grid,
            prefix=int(stage.cls_token is not None),
        )
        places.append(BlockPlace(name, site))
    return places


class Algebra(TwoNorms):
    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        mixed: Tensor = block.drop_path(
            block.attn(normed, *context) if branch == "msa" else block.mlp(normed)
        )
        return mixed


def features(model: nn.Module, side: int, free: bool) -> FeatureMaps:
    from ablate.backbones.features import PyramidMaps

    return PyramidMaps(model, side)


FAMILY = Family(
    name="pvt",
    about="PVT version 1, after arXiv 2102.12122",
    members=members,
    dimensions=dimensions,
    image_size=timm_models.image_size,
    create=create,
    blocks=blocks,
    algebra=Algebra,
    features=features,
    editable=lambda attention: None,
    sizes=frozenset(("drop_path", "dropout", "attention_dropout")),
    lacks={
        "positions": "its keys and values come from a reduced grid",
        "tokens": (
            "its first and last layers differ in the number and the width of their"
            " tokens"
        ),
    },
)
