"""Semantic segmentation: a class for each pixel of an image."""

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

METRICS = (
    Metric(
        "miou",
        title="mIoU (%)",
        unit=" points",
        digits=1,
        margin=0.5,
        direction="max",
    ),
    Metric(
        "macc",
        title="mAcc (%)",
        unit=" points",
        digits=1,
        margin=0.5,
        direction="max",
    ),
    Metric(
        "pixel_acc",
        title="pixel accuracy (%)",
        unit=" points",
        digits=1,
        margin=0.5,
        direction="max",
    ),
    Metric("train_loss", digits=4, direction="min", compared=False),
)


def work(trial: Trial, device: torch.device, share: Share) -> Work:
    from ablate.learning.segmentation import Segmentation

    return Segmentation(trial, device)


def chance(classes: int) -> Mapping[str, float]:
    # One class everywhere has at most its own intersection over union.
    return {"miou": 100 / classes}


TASK = Task(
    name="segmentation",
    about="a class for each pixel of an image",
    metrics=METRICS,
    work=work,
    heads=("upernet", "upernet-small"),
    data=("digit-scenes", "ade20k"),
    background=True,
    chance=chance,
    unread=NOT_IN_SCENES,
)
