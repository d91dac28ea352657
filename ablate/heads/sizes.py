"""The numbers of heads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MaskRCNNSize:
    """The numbers of a Mask R-CNN.

    Attributes:
        channels: of the pyramid and the mask branch.
        hidden: width of the box branch.
        mask_layers: number of convolutions of the mask branch.
        proposals: boxes that the second stage sees at test time.
        samples: boxes per image that the second stage learns from.
    """

    channels: int = 256
    hidden: int = 1024
    mask_layers: int = 4
    proposals: int = 1000
    samples: int = 512


@dataclass(frozen=True)
class DETRSize:
    """The numbers of a DETR: width, heads, layers of each stack, and queries."""

    width: int = 256
    heads: int = 8
    layers: int = 6
    hidden: int = 2048
    queries: int = 100
    dropout: float = 0.1
