"""What detection and segmentation have in common."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from ablate.data.scene_batches import SceneBatches
from ablate.learning.work import Batch, Part


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
        piece = tuple(one[start:end] for one in inputs)
        parts.append(Part(piece, sum(counts[start:end]) / total))
    return Batch(tuple(parts), images)


def first_images(batches: SceneBatches, count: int) -> Iterator[Tensor]:
    """Yields the first test images, in batches (n, channels, height, width)."""
    for batch in batches.test():
        yield batch.images[:count]
        count -= len(batch.images)
        if count <= 0:
            return
