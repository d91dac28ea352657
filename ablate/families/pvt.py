"""PVT version 1, from this package's backbones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.factors.factor import Dimensions
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, OneDropPath
from ablate.families.places import REDUCED_GRID, UNEQUAL_TOKENS, site_of, staged_blocks

if TYPE_CHECKING:
    from torch import nn

    from ablate.backbones.features import FeatureMaps


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


def features(model: nn.Module, side: int, free: bool) -> FeatureMaps:
    from ablate.backbones.features import PyramidMaps

    return PyramidMaps(model, side)


FAMILY = Family(
    name="pvt",
    about="PVT version 1, after arXiv 2102.12122",
    members=lambda: ["pvt_tiny", "pvt_small", "pvt_medium", "pvt_large"],
    dimensions=lambda name: Dimensions(patch_size=4),
    create=timm_models.creator("drop_rate"),
    blocks=blocks,
    algebra=OneDropPath,
    features=features,
    sizes=frozenset(("drop_path", "dropout", "attention_dropout")),
    lacks={
        "positions": REDUCED_GRID,
        "tokens": UNEQUAL_TOKENS,
    },
)
