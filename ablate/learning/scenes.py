"""What detection and segmentation have in common."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ablate.data.scene_batches import SceneBatches, Shows
from ablate.learning.work import Batch, Part
from ablate.records import Trial


def parts_of(
    inputs: tuple[Sequence[Any] | Tensor, ...],
    count: int,
    weights: Sequence[int] | None = None,
) -> Batch:
    """Returns a batch in at most `count` parts, which may differ by one image.

    Args:
        inputs: tensors or lists of equal length, one item per image.
        weights: what the loss of an image is a mean over, such as its pixels with a
            class; by default every image counts the same.
    """
    images = len(inputs[0])
    count = min(count, images)
    counts = [1] * images if weights is None else list(weights)
    total = max(1, sum(counts))
    bounds = [images * number // count for number in range(count + 1)]
    parts = []
    for start, end in itertools.pairwise(bounds):
        piece = tuple(values[start:end] for values in inputs)
        parts.append(Part(piece, sum(counts[start:end]) / total))
    return Batch(tuple(parts), images)


class SceneWork:
    """What the work of a trial on scenes has in common. See `ablate.learning.work`."""

    def __init__(self, trial: Trial, device: torch.device, shows: Shows) -> None:
        self.batches = SceneBatches(trial.data, trial.recipe, device, shows)
        self.updates = self.batches.updates
        # Nothing is trained beside the network.
        self.extra = nn.Module()

    def begin_epoch(self, epoch: int) -> None:
        """Does nothing: each epoch is prepared alike."""

    def arguments(self, part: Part) -> tuple[Any, ...]:
        return part.inputs

    def first_images(self, count: int) -> Iterator[Tensor]:
        return first_images(self.batches, count)


def first_images(batches: SceneBatches, count: int) -> Iterator[Tensor]:
    """Yields the first test images, in batches (n, channels, height, width)."""
    for batch in batches.test():
        yield batch.images[:count]
        count -= len(batch.images)
        if count <= 0:
            return
