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


def _precision(name: str, title: str, *, compared: bool = True) -> Metric:
    return Metric(
        name,
        title=title,
        unit=" points",
        digits=1,
        margin=0.5,
        direction="max",
        compared=compared,
    )


def _precisions(kind: str) -> tuple[Metric, ...]:
    """The average precision of boxes or masks: in all, by overlap, by size of objects.

    Only the data tell whether there are objects of a size, so no study compares by it.
    """
    sizes = ("small", "medium", "large")
    return (
        _precision(f"{kind}_ap", f"{kind} AP (%)"),
        _precision(f"{kind}_ap50", f"{kind} AP50 (%)"),
        _precision(f"{kind}_ap75", f"{kind} AP75 (%)"),
        *(
            _precision(
                f"{kind}_ap_{size}",
                f"{kind} AP of {size} objects (%)",
                compared=False,
            )
            for size in sizes
        ),
    )


METRICS = (
    *_precisions("box"),
    *_precisions("mask"),
    Metric("train_loss", digits=4, direction="min", compared=False),
)
WITHOUT_MASKS = ("detr", "detr-small")
OF_MASKS = frozenset(metric.name for metric in _precisions("mask"))


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
