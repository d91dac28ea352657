"""Semantic segmentation: a class for each pixel."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.data.scene import IGNORED
from ablate.errors import DataError
from ablate.learning.scenes import SceneWork, parts_of
from ablate.learning.work import Batch, Evaluating
from ablate.records import Trial

# Share of the auxiliary head in the loss, as in the published recipes of UperNet.
AUXILIARY = 0.4


class Step(nn.Module):
    """The mean cross-entropy over pixels, with that of the auxiliary head."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, classes: Tensor) -> Tensor:
        logits, auxiliary = self.model(images)
        return _loss(logits, classes) + AUXILIARY * _loss(auxiliary, classes)


def _loss(logits: Tensor, classes: Tensor) -> Tensor:
    whole = enlarged(logits, (classes.shape[-2], classes.shape[-1]))
    targets = classes.long()
    total = F.cross_entropy(whole, targets, ignore_index=IGNORED, reduction="sum")
    # A batch may have no pixel with a class.
    return total / (targets != IGNORED).sum().clamp_min(1)


def enlarged(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Returns logits (n, classes, height, width) of another size."""
    return F.interpolate(logits.float(), size=size, mode="bilinear")


class Segmentation(SceneWork):
    """The work of one trial of segmentation. See `ablate.learning.work`."""

    step: Step

    def __init__(self, trial: Trial, device: torch.device) -> None:
        super().__init__(trial, device, "classes")
        self._classes = trial.data.classes
        self._accumulate = trial.recipe.accumulate
        self._device = device

    def attach(self, model: nn.Module) -> None:
        self.step = Step(model)

    def train(self, order: torch.Generator) -> Iterator[Batch]:
        for batch in self.batches.train(order):
            labelled = (batch.classes != IGNORED).flatten(1).sum(1).tolist()
            yield parts_of((batch.images, batch.classes), self._accumulate, labelled)

    def evaluate(
        self, model: nn.Module, tools: Evaluating, *, validation: bool
    ) -> dict[str, float]:
        table = torch.zeros(
            self._classes, self._classes, dtype=torch.float64, device=self._device
        )
        for batch in self.batches.test(validation=validation):
            tools.beat()
            with tools.autocast():
                logits = model(batch.images)
            size = (batch.images.shape[-2], batch.images.shape[-1])
            whole = enlarged(logits, size)
            for logits_of_scene, (height, width), original, scene in zip(
                whole, batch.sizes, batch.originals, batch.scenes, strict=True
            ):
                # Without the padding, in the pixels of the original image.
                seen = enlarged(
                    logits_of_scene[None, :, :height, :width], original
                ).argmax(1)[0]
                table += confusion(seen, scene.classes.to(seen.device), self._classes)
        if not table.sum():
            raise DataError("data: no pixel of the test images has a class")
        return measured(table)


def confusion(seen: Tensor, classes: Tensor, count: int) -> Tensor:
    """Returns how many pixels of each class (rows) are seen as each class (columns)."""
    labelled = classes != IGNORED
    pairs = classes[labelled].long() * count + seen[labelled]
    table = torch.bincount(pairs, minlength=count**2)
    return table.reshape(count, count)


def measured(table: Tensor) -> dict[str, float]:
    """Returns the metrics of a confusion matrix, in per cent.

    `miou` is the mean over classes of the intersection over union, `macc` that of the
    recall. Classes that occur neither in the images nor in what was seen do not count,
    as in ADE20K's evaluation.
    """
    right = table.diag()
    there = table.sum(1)
    union = there + table.sum(0) - right
    occurs = union > 0
    is_there = there > 0
    return {
        "miou": 100 * (right[occurs] / union[occurs]).mean().item(),
        "macc": 100 * (right[is_there] / there[is_there]).mean().item(),
        "pixel_acc": 100 * (right.sum() / table.sum()).item(),
    }
