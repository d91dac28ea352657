"""Backbones as sources of feature maps, for heads that look at places of an image.

They accept images of any height and width that the total stride divides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch.nn.functional as F
from timm.models.swin_transformer import SwinTransformerBlock
from torch import Tensor, nn

from ablate.layers.layout import OnGrid


class FeatureMaps(nn.Module, ABC):
    """A backbone without its classifier.

    Shape:
        images (batch, channels, height, width) to one map (batch, widths[i], height /
        strides[i], width / strides[i]) per scale, the finest first.

    Attributes:
        backbone: the network, with its factors.
        widths: channels of each map.
        strides: pixels of the image per pixel of each map.
    """

    widths: tuple[int, ...]
    strides: tuple[int, ...]

    def __init__(self, backbone: nn.Module, side: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.built_side = side
        self._on_grid: list[tuple[OnGrid, int]] = []
        model: Any = backbone
        for place in model.places:
            if place.site.grid == (0, 0):
                continue
            stride = side // place.site.grid[0]
            for module in backbone.get_submodule(place.name).modules():
                if isinstance(module, OnGrid):
                    self._on_grid.append((module, stride))

    def forward(self, images: Tensor) -> list[Tensor]:
        height, width = images.shape[-2:]
        for module, stride in self._on_grid:
            module.grid = (height // stride, width // stride)
        return self.maps(images)

    @abstractmethod
    def maps(self, images: Tensor) -> list[Tensor]:
        """Returns the maps of images, after the grids are set."""


class PaddedBlock(SwinTransformerBlock):
    """A block of Swin that pads its grid to whole windows before it shifts them.

    So does the published code. timm's block shifts first: if the windows do not fill
    the grid, tokens of opposite edges of the image then attend to each other.
    """

    def _attn(self, x: Tensor) -> Tensor:
        height, width = x.shape[1:3]
        below = -height % self.window_size[0]
        beside = -width % self.window_size[1]
        whole = F.pad(x, (0, 0, 0, beside, 0, below))
        attended: Tensor = super()._attn(whole)
        return attended[:, :height, :width].contiguous()


_PADDED: dict[type[nn.Module], type[nn.Module]] = {SwinTransformerBlock: PaddedBlock}


def padded(kind: type[nn.Module]) -> type[nn.Module]:
    """Returns the class of such blocks, of which factors may have changed the class."""
    if kind not in _PADDED:
        # `kind` derives from timm's block; its own methods stay outermost.
        _PADDED[kind] = type(
            f"Padded{kind.__name__}", (kind, PaddedBlock), {"__module__": __name__}
        )
    return _PADDED[kind]


class SwinMaps(FeatureMaps):
    """The four stages of Swin, each with a layer norm on its output.

    Args:
        free: images are not of the side that the backbone was built for. Then windows
            are shifted in all stages, also in one that has a single window at that
            side.
    """

    def __init__(self, backbone: Any, side: int, *, free: bool) -> None:
        super().__init__(backbone, side)
        window = backbone.layers[0].blocks[0].window_size
        for stage in backbone.layers:
            for block in stage.blocks:
                block.__class__ = padded(type(block))
                if free:
                    block.set_input_size(
                        block.input_resolution, window, always_partition=True
                    )
        backbone.patch_embed.strict_img_size = False
        backbone.reset_classifier(0)
        backbone.norm = nn.Identity()
        self.widths = tuple(stage.blocks[-1].dim for stage in backbone.layers)
        patch = backbone.patch_embed.patch_size[0]
        self.strides = tuple(patch * 2**index for index in range(len(self.widths)))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in self.widths)

    def maps(self, images: Tensor) -> list[Tensor]:
        swin: Any = self.backbone
        is_built_for = images.shape[-2:] == (self.built_side, self.built_side)
        x = swin.patch_embed(images)
        maps = []
        for stage, norm in zip(swin.layers, self.norms, strict=True):
            for block in stage.blocks:
                # The stored mask of the shifted windows is for one size.
                block.dynamic_mask = not is_built_for
            x = stage(x)
            maps.append(norm(x).permute(0, 3, 1, 2).contiguous())
        return maps


class PyramidMaps(FeatureMaps):
    """The four stages of PVT."""

    def __init__(self, backbone: Any, side: int) -> None:
        super().__init__(backbone, side)
        backbone.norm = nn.Identity()
        backbone.head = nn.Identity()
        self.widths = tuple(stage.proj.out_channels for stage in backbone.stages)
        self.strides = (4, 8, 16, 32)

    def maps(self, images: Tensor) -> list[Tensor]:
        backbone: Any = self.backbone
        maps: list[Tensor] = backbone.maps(images)
        return maps


class PlainMap(FeatureMaps):
    """The patch tokens of a ViT after its last norm: a single map."""

    def __init__(self, backbone: Any, side: int) -> None:
        from timm.layers.format import Format

        super().__init__(backbone, side)
        # The mean of the tokens has its norm under another name.
        fc_norm = backbone.fc_norm
        backbone.reset_classifier(0)
        if isinstance(backbone.norm, nn.Identity):
            backbone.norm = fc_norm
        backbone.fc_norm = nn.Identity()
        if hasattr(backbone, "head_dist"):
            backbone.head_dist = nn.Identity()
        backbone.dynamic_img_size = True
        backbone.patch_embed.strict_img_size = False
        backbone.patch_embed.flatten = False
        backbone.patch_embed.output_fmt = Format.NHWC
        self.widths = (backbone.embed_dim,)
        self.strides = (backbone.patch_embed.patch_size[0],)

    def maps(self, images: Tensor) -> list[Tensor]:
        vit: Any = self.backbone
        prefix = vit.places[0].site.prefix
        tokens = vit.forward_features(images)[:, prefix:]
        stride = self.strides[0]
        grid = (images.shape[-2] // stride, images.shape[-1] // stride)
        return [tokens.transpose(1, 2).unflatten(2, grid)]
