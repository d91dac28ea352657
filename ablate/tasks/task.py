"""What a task is: one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ablate.records import Metric

if TYPE_CHECKING:
    import torch

    from ablate.data.share import Share
    from ablate.learning.work import Work
    from ablate.records import Trial


# The fields of a recipe that tasks on scenes do not read: images are resized, cropped
# and flipped together with what they show.
NOT_IN_SCENES = frozenset(
    (
        "loss",
        "loss_threshold",
        "label_smoothing",
        "mixup",
        "cutmix",
        "mixup_switch",
        "mixup_prob",
        "mixup_mode",
        "mixup_off_epoch",
        "distillation",
        "distillation_share",
        "distillation_temperature",
        "crop_padding",
        "crop_scale",
        "crop_ratio",
        "interpolation",
        "rand_augment",
        "three_augment",
        "color_jitter",
        "random_erasing",
        "augmentation",
        "compile",
        "channels_last",
        "checkpointing",
    )
)


def no_chance(classes: int) -> Mapping[str, float]:
    """The values of guessing in a task where they are not known."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What networks are trained for.

    Attributes:
        name: as in `task: NAME`.
        about: what the network predicts, in one sentence.
        metrics: what an evaluation measures, and the loss of training. The first one
            decides unless a space says otherwise.
        work: returns the data, the loss and the evaluation of a trial.
        heads: what turns a backbone into a network of the task, the usual one first;
            empty: the backbone's own classifier. No two tasks share a head.
        data: the names of the data sets that it learns from; empty: those with one
            class for each image.
        background: whether a pixel without an object has a class.
        unread: the fields of a recipe that the task does not read.
        unmeasured: metrics that a network with a head does not have, by head.
        chance: returns what a network that has learnt nothing reaches at most, by
            metric, given the number of classes.
    """

    name: str
    about: str
    metrics: tuple[Metric, ...]
    work: Callable[[Trial, torch.device, Share], Work]
    heads: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    background: bool = False
    unread: frozenset[str] = frozenset()
    unmeasured: Mapping[str, frozenset[str]] = field(default_factory=dict)
    chance: Callable[[int], Mapping[str, float]] = no_chance

    @property
    def decides(self) -> Metric:
        """The metric that decides unless a space says otherwise."""
        return self.metrics[0]

    def metrics_with(self, head: str) -> tuple[Metric, ...]:
        """The metrics of networks with a head."""
        missing = self.unmeasured.get(head, frozenset())
        return tuple(metric for metric in self.metrics if metric.name not in missing)
