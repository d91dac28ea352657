"""Detection: the objects of an image, with boxes and masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.records import Metric
from ablate.tasks.task import NOT_IN_SCENES, Task

if TYPE_CHECKING:
    import torch

    from ablate.data.share import Share
    from ablate.learning.work import Work
    from ablate.records import Trial


def _precision(name: str, title: str) -> Metric:
    return Metric(
        name, title=title, unit=" points", digits=1, margin=0.5, direction="max"
    )


METRICS = (
    _precision("box_ap", "box AP (%)"),
    _precision("box_ap50", "box AP50 (%)"),
    _precision("box_ap75", "box AP75 (%)"),
    _precision("mask_ap", "mask AP (%)"),
    _precision("mask_ap50", "mask AP50 (%)"),
    _precision("mask_ap75", "mask AP75 (%)"),
    Metric("train_loss", digits=4, direction="min", compared=False),
)
WITHOUT_MASKS = ("detr", "detr-small")
OF_MASKS = frozenset(("mask_ap", "mask_ap50", "mask_ap75"))


def work(trial: Trial, device: torch.device, share: Share) -> Work:
    from ablate.learning.detection import Detection

    masks = trial.architecture.head not in WITHOUT_MASKS
    return Detection(trial, device, masks=masks)


def chance(classes: int) -> Mapping[str, float]:
    # Boxes at random have next to none; below one per cent, differences say nothing.
    return {"box_ap": 1.0, "mask_ap": 1.0}


TASK = Task(
    name="detection",
    about="boxes, classes and masks of the objects of an image",
    metrics=METRICS,
    work=work,
    heads=("mask-rcnn", "mask-rcnn-small", "detr", "detr-small"),
    data=("digit-scenes", "coco"),
    chance=chance,
    unread=NOT_IN_SCENES,
    unmeasured=dict.fromkeys(WITHOUT_MASKS, OF_MASKS),
)
