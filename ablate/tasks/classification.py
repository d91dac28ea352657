"""Image classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.records import Metric
from ablate.tasks.task import Task

if TYPE_CHECKING:
    import torch

    from ablate.data.share import Share
    from ablate.learning.work import Work
    from ablate.records import Trial

METRICS = (
    Metric(
        "top1",
        title="top-1 (%)",
        unit=" points",
        digits=2,
        margin=0.5,
        direction="max",
    ),
    Metric(
        "top5",
        title="top-5 (%)",
        unit=" points",
        digits=2,
        margin=0.5,
        direction="max",
    ),
    Metric("loss", digits=4, margin=0.02, direction="min"),
    Metric("train_loss", digits=4, direction="min", compared=False),
)


def work(trial: Trial, device: torch.device, share: Share) -> Work:
    from ablate.learning.classification import Classification

    return Classification(trial, device, share)


def chance(classes: int) -> Mapping[str, float]:
    return {"top1": 100 / classes}


TASK = Task(
    name="classification",
    about="one class for each image",
    metrics=METRICS,
    work=work,
    chance=chance,
)
