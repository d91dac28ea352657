"""Mask R-CNN (arXiv 1703.06870) with a feature pyramid, from torchvision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.heads.head import Head
from ablate.heads.padding import loss_of_made_up
from ablate.heads.sizes import MaskRCNNSize

if TYPE_CHECKING:
    from torch import nn

    from ablate.backbones.features import FeatureMaps


USUAL = MaskRCNNSize()
SMALL = MaskRCNNSize(channels=64, hidden=128, mask_layers=2, proposals=100, samples=64)


def _build(size: MaskRCNNSize, features: FeatureMaps, classes: int) -> nn.Module:
    from ablate.heads.mask_rcnn_network import MaskRCNNNetwork

    return MaskRCNNNetwork(features, classes, size)


def _counted(network: Any) -> nn.Module:
    from ablate.heads.mask_rcnn_network import AllBoxes

    return AllBoxes(network)


HEADS = (
    Head(
        name="mask-rcnn",
        about="Mask R-CNN with a feature pyramid, as in IFFN's table 7",
        build=lambda features, classes: _build(USUAL, features, classes),
        counted=_counted,
        loss=loss_of_made_up,
    ),
    Head(
        name="mask-rcnn-small",
        about="the same with fewer channels and boxes, for small images",
        build=lambda features, classes: _build(SMALL, features, classes),
        counted=_counted,
        loss=loss_of_made_up,
    ),
)
