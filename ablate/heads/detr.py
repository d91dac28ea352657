"""DETR (arXiv 2005.12872), from transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.heads.head import Head, require
from ablate.heads.padding import loss_of_made_up
from ablate.heads.sizes import DETRSize

if TYPE_CHECKING:
    from torch import nn

    from ablate.backbones.features import FeatureMaps


USUAL = DETRSize()
SMALL = DETRSize(width=64, heads=4, layers=2, hidden=128, queries=16, dropout=0.0)


def _build(name: str, size: DETRSize, features: FeatureMaps, classes: int) -> nn.Module:
    require("transformers", name)
    from ablate.heads.detr_network import DETR

    return DETR(features, classes, size)


def _counted(network: Any) -> nn.Module:
    from ablate.heads.detr_network import AllLayers

    return AllLayers(network)


HEADS = (
    Head(
        name="detr",
        about=(
            "DETR's encoder and decoder on the coarsest map, as in augmented"
            " shortcuts' table 9; boxes without masks"
        ),
        build=lambda features, classes: _build("detr", USUAL, features, classes),
        counted=_counted,
        loss=loss_of_made_up,
    ),
    Head(
        name="detr-small",
        about="the same with two layers and 16 queries, for small images",
        build=lambda features, classes: _build("detr-small", SMALL, features, classes),
        counted=_counted,
        loss=loss_of_made_up,
    ),
)
