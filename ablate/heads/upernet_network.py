"""The network of the head `upernet`."""

from __future__ import annotations

from torch import Tensor, nn
from transformers import UperNetConfig
from transformers.models.upernet.modeling_upernet import UperNetFCNHead, UperNetHead

from ablate.backbones.features import FeatureMaps
from ablate.heads.pyramid_network import FourScales


class UperNet(nn.Module):
    """Semantic segmentation from the feature maps of a backbone.

    Shape:
        images (batch, channels, height, width) to logits (batch, classes, h, w) at the
        finest scale of the maps; in training also those of the auxiliary head, at the
        third scale.
    """

    def __init__(
        self, features: FeatureMaps, classes: int, hidden: int, auxiliary: int
    ) -> None:
        super().__init__()
        self.scales = FourScales(features)
        config = UperNetConfig(
            num_labels=classes, hidden_size=hidden, auxiliary_channels=auxiliary
        )
        widths = list(self.scales.widths)
        self.decoder = UperNetHead(config, widths)
        self.auxiliary = UperNetFCNHead(config, widths)

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        maps = self.scales(images)
        logits: Tensor = self.decoder(maps)
        if not self.training:
            return logits
        return logits, self.auxiliary(maps)
