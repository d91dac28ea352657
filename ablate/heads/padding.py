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


def loss_of_made_up(network: Any, images: Tensor) -> Tensor:
    """Returns the loss of a detector if each image shows one object in its corner."""
    import torch

    height, width = images.shape[-2:]
    device = images.device
    mask = torch.zeros(1, height, width, dtype=torch.uint8, device=device)
    mask[:, : height // 2, : width // 2] = 1
    one = {
        "boxes": torch.tensor([[0.0, 0.0, width / 2, height / 2]], device=device),
        "labels": torch.tensor([1], device=device),
        "masks": mask,
    }
    losses = network.losses(
        images, [(height, width)] * len(images), [one] * len(images)
    )
    return torch.stack([loss.float() for loss in losses.values()]).sum()


def sizes_of(images: Tensor, sizes: Sizes | None) -> Sizes:
    """Returns the given sizes, or those of images without padding."""
    if sizes is not None:
        return sizes
    height, width = images.shape[-2:]
    return [(height, width)] * len(images)
