"""Maps of four scales with equal channels, for heads that need a pyramid."""

from __future__ import annotations

from collections import OrderedDict

import torch.nn.functional as F
from timm.layers import LayerNorm2d
from torch import Tensor, nn
from torchvision.ops import FeaturePyramidNetwork

from ablate.backbones.features import FeatureMaps


class SimplePyramid(nn.Module):
    """The simple feature pyramid of a plain ViT: four scales from its last map.

    See ViTDet, arXiv 2203.16527, section 3. The scales are a fourth, a half, once and
    twice the stride of the map, by transposed convolutions and by max pooling.

    Shape:
        (batch, width, height, width) to four maps of the same channels.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.finest = nn.Sequential(
            nn.ConvTranspose2d(width, width, 2, stride=2),
            LayerNorm2d(width),
            nn.GELU(),
            nn.ConvTranspose2d(width, width, 2, stride=2),
        )
        self.fine = nn.ConvTranspose2d(width, width, 2, stride=2)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.finest(x), self.fine(x), x, F.max_pool2d(x, 2, ceil_mode=True)]


class FourScales(nn.Module):
    """The maps of a backbone in four scales, each twice as coarse as the one before.

    Attributes:
        widths: channels of each map.
        finest: stride of the finest map, in pixels.
    """

    def __init__(self, features: FeatureMaps) -> None:
        super().__init__()
        self.features = features
        self.is_plain = len(features.widths) == 1
        if self.is_plain:
            self.pyramid = SimplePyramid(features.widths[0])
            self.widths = features.widths * 4
            self.finest = features.strides[0] // 4
        else:
            self.widths = features.widths
            self.finest = features.strides[0]

    def forward(self, images: Tensor) -> list[Tensor]:
        maps: list[Tensor] = self.features(images)
        if self.is_plain:
            return list(self.pyramid(maps[0]))
        return maps


class Neck(nn.Module):
    """Five maps of equal channels: those of four scales, and one coarser by pooling.

    A backbone with stages gets a feature pyramid network (arXiv 1612.03144). The maps
    of a plain ViT, which come from one map, get no top-down path, as in ViTDet.

    Shape:
        images (batch, channels, height, width) to maps by name, "0" the finest.
    """

    def __init__(self, features: FeatureMaps, channels: int) -> None:
        super().__init__()
        self.scales = FourScales(features)
        self.finest = self.scales.finest
        self.out_channels = channels
        if self.scales.is_plain:
            self.lateral = nn.ModuleList(
                nn.Sequential(
                    nn.Conv2d(width, channels, 1, bias=False),
                    LayerNorm2d(channels),
                    nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                    LayerNorm2d(channels),
                )
                for width in self.scales.widths
            )
        else:
            self.fpn = FeaturePyramidNetwork(list(self.scales.widths), channels)

    def forward(self, images: Tensor) -> OrderedDict[str, Tensor]:
        maps = self.scales(images)
        if self.scales.is_plain:
            made = [
                lateral(one) for lateral, one in zip(self.lateral, maps, strict=True)
            ]
        else:
            named = OrderedDict((str(index), one) for index, one in enumerate(maps))
            made = list(self.fpn(named).values())
        made.append(F.max_pool2d(made[-1], 1, stride=2))
        return OrderedDict((str(index), one) for index, one in enumerate(made))
