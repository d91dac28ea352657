"""Images with objects or with a class for each pixel, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

# The class of pixels that neither training nor evaluation looks at.
IGNORED = 255
# Sides of the smallest box that training learns from, in pixels.
LEAST = 1.0


@dataclass(frozen=True)
class Scene:
    """One image and what it shows.

    Attributes:
        image: uint8 (channels, height, width).
        objects: for detection: `boxes` float32 (n, 4) as left, top, right, bottom in
            pixels, `labels` int64 (n) from 1, `masks` uint8 (n, height, width).
        classes: for segmentation: uint8 (height, width), `IGNORED` where nothing is
            known.
        annotations: for the evaluation of detection: the objects as COCO's files
            describe them, crowds included.
    """

    image: Tensor
    objects: dict[str, Tensor]
    classes: Tensor
    annotations: tuple[dict[str, Any], ...] = ()


class Scenes(Protocol):
    """The scenes of one split."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Scene: ...
