"""UperNet (arXiv 1807.10221), from transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.heads.head import Head, require

if TYPE_CHECKING:
    from torch import nn

    from ablate.backbones.features import FeatureMaps


def _build(
    name: str, hidden: int, auxiliary: int, features: FeatureMaps, classes: int
) -> nn.Module:
    require("transformers", name)
    from ablate.heads.upernet_network import UperNet

    return UperNet(features, classes, hidden, auxiliary)


# A map of one place is normalised over the images of a batch.
FEWEST = 2
HEADS = (
    Head(
        name="upernet",
        about="UperNet with an auxiliary head in training, as in IFFN's table 8",
        build=lambda features, classes: _build("upernet", 512, 256, features, classes),
        fewest=FEWEST,
    ),
    Head(
        name="upernet-small",
        about="the same with fewer channels, for small images",
        build=lambda features, classes: _build(
            "upernet-small", 64, 32, features, classes
        ),
        fewest=FEWEST,
    ),
)
