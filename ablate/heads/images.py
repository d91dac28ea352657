"""Images of one batch that have different sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

# Height and width of each image before it was padded to the size of the batch.
Sizes: TypeAlias = Sequence[tuple[int, int]]
# What an image shows or what a network sees in it, in pixels of the padded image:
# `boxes` (n, 4) as left, top, right, bottom; `labels` (n) from 1; `masks` (n, height,
# width) where there are any; `scores` (n) of a prediction.
Objects: TypeAlias = dict[str, Any]


def sizes_of(images: Tensor, sizes: Sizes | None) -> Sizes:
    """Returns the given sizes, or those of images without padding."""
    if sizes is not None:
        return sizes
    height, width = images.shape[-2:]
    return [(height, width)] * len(images)
