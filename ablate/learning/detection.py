"""Detection: objects with boxes, and masks if the head has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ablate.data.masks import encoded
from ablate.data.scene_batches import SceneBatch
from ablate.heads.padding import Objects, Sizes
from ablate.learning.average_precision import Found, average_precision
from ablate.learning.scenes import SceneWork, parts_of
from ablate.learning.work import Batch, Evaluating
from ablate.records import Trial


class Step(nn.Module):
    """A network whose head gives the losses itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, sizes: Sizes, objects: list[Objects]) -> Tensor:
        network: Any = self.model
        losses: dict[str, Tensor] = network.losses(images, sizes, objects)
        return torch.stack([loss.float() for loss in losses.values()]).sum()


class Detection(SceneWork):
    """The work of one trial of detection. See `ablate.learning.work`."""

    step: Step

    def __init__(self, trial: Trial, device: torch.device, *, masks: bool) -> None:
        super().__init__(trial, device, "masks" if masks else "boxes")
        self._classes = trial.data.classes
        self._accumulate = trial.recipe.accumulate

    def attach(self, model: nn.Module) -> None:
        self.step = Step(model)

    def train(self, order: torch.Generator) -> Iterator[Batch]:
        for batch in self.batches.train(order):
            yield parts_of((batch.images, batch.sizes, batch.objects), self._accumulate)

    def evaluate(
        self, model: nn.Module, tools: Evaluating, *, validation: bool
    ) -> dict[str, float]:
        scenes: list[Found] = []
        for batch in self.batches.test(validation=validation):
            tools.beat()
            with tools.autocast():
                seen = model(batch.images, batch.sizes)
            scenes += _found(batch, seen)
        return average_precision(scenes, self._classes)


def _found(batch: SceneBatch, seen: list[Objects]) -> list[Found]:
    """Returns what a network saw beside what there is, in the original images."""
    from torchvision.models.detection.roi_heads import paste_masks_in_image

    detected = []
    for objects, size, original, scene in zip(
        seen, batch.sizes, batch.originals, batch.scenes, strict=True
    ):
        height, width = original
        ratio = torch.tensor([width / size[1], height / size[0]]).repeat(2)
        boxes = objects["boxes"].detach().float().cpu() * ratio
        # A box may reach beyond the image.
        boxes[:, 0::2] = boxes[:, 0::2].clamp(0, width)
        boxes[:, 1::2] = boxes[:, 1::2].clamp(0, height)
        masks = None
        if "masks" in objects:
            small = objects["masks"].detach().float().cpu()
            whole = paste_masks_in_image(small, boxes, original)
            # Codes, because the masks of a whole data set would not fit into memory.
            masks = [encoded((mask > 0.5).numpy()) for mask in whole[:, 0]]
        detected.append(
            Found(
                size=original,
                annotations=scene.annotations,
                boxes=boxes.numpy(),
                labels=objects["labels"].cpu().numpy(),
                scores=objects["scores"].detach().float().cpu().numpy(),
                masks=masks,
            )
        )
    return detected
