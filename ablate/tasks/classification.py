"""Image classification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ablate.records import Metric
from ablate.tasks.task import Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ablate.data.share import Share
    from ablate.learning.work import Work
    from ablate.records import Trial

# From logits (n, classes) and labels (n) to a sum over the images.
Sum = Callable[["Tensor", "Tensor"], "Tensor"]


@dataclass(frozen=True)
class Measure:
    """A metric that is `times` the mean over images of what `sum` adds up."""

    metric: Metric
    sum: Sum
    times: float = 1.0


def _share(name: str, title: str, hits: Sum) -> Measure:
    """The share of the images that hit, in per cent."""
    metric = Metric(
        name, title=title, unit=" points", digits=2, margin=0.5, direction="max"
    )
    return Measure(metric, hits, times=100.0)


def _among(first: int) -> Sum:
    """Counts the images whose label is among the largest logits."""

    def hits(logits: Tensor, labels: Tensor) -> Tensor:
        # Of equal logits, the same ones are largest whatever `first` is.
        largest = logits.topk(min(max(first, 5), logits.shape[1]), dim=1).indices
        return largest[:, :first].eq(labels[:, None]).sum()

    return hits


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits, labels, reduction="sum")


LOSS = Metric("loss", digits=4, margin=0.02, direction="min")
MEASURES = (
    _share("top1", "top-1 (%)", _among(1)),
    _share("top5", "top-5 (%)", _among(5)),
    Measure(LOSS, _cross_entropy),
)
METRICS = (
    *(measure.metric for measure in MEASURES),
    Metric("train_loss", digits=4, direction="min", compared=False),
)


def work(trial: Trial, device: torch.device, share: Share) -> Work:
    from ablate.learning.classification import Classification

    return Classification(trial, device, share, MEASURES)


def chance(classes: int) -> Mapping[str, float]:
    return {"top1": 100 / classes}


TASK = Task(
    name="classification",
    about="one class for each image",
    metrics=METRICS,
    work=work,
    chance=chance,
)
