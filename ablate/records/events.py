"""What an executor reports, and what is known of a trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from ablate.records.correct_images import CorrectImages
from ablate.records.metric import Metric
from ablate.records.trial import Status


@dataclass(frozen=True)
class Epoch:
    """What one epoch gave."""

    # From 1.
    number: int
    # What was measured, by the name of the metric: on the validation split if there is
    # one, otherwise on the test set.
    metrics: Mapping[str, float]
    # Learning rate of the last step; None if the trainer does not report it.
    lr: float | None
    # Time of training and testing.
    seconds: float
    # Energy of the devices; None if the hardware does not report it.
    joules: float | None = None


@dataclass(frozen=True)
class Tested:
    """What the test set gave, measured once with a validation split."""

    # The weights are those after this epoch.
    epoch: int
    # By the name of the metric.
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Known:
    """What is known of a trial."""

    status: Status
    epochs: tuple[Epoch, ...]
    # Final value by metric, if the trial is completed.
    final: Mapping[str, float] = field(default_factory=dict)
    # In UTC; None while it is open.
    ended_at: datetime | None = None
    # The epoch whose weights were tested, if the trial is completed.
    selected_epoch: int | None = None

    def value(self, metric: Metric) -> float | None:
        """Returns the final value of a metric; None if the trial has none.

        The mean over the last epochs needs `epochs`.
        """
        if not metric.of:
            return self.final.get(metric.name)
        if self.status != Status.COMPLETED or not self.epochs:
            return None
        return self.last(metric)

    def last(self, metric: Metric) -> float:
        """Returns a metric after the last epochs. The trial has an epoch."""
        return metric.mean(
            [epoch.metrics[metric.measured] for epoch in self.epochs[-metric.over :]]
        )


@dataclass(frozen=True)
class Place:
    """Where an attempt runs."""

    executor: str
    host: str
    pid: int
    device: str
    threads: int


@dataclass(frozen=True)
class Started:
    """An attempt has begun."""

    trial: str
    place: Place
    # Epochs that it took over from a checkpoint.
    epoch: int
    # What it took over from initial weights, in words.
    weights: str = ""


@dataclass(frozen=True)
class Progressed:
    """Epochs were trained.

    After a fault an epoch may be reported again. The new report replaces the old one.
    """

    trial: str
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True)
class Measurement:
    """One diagnostic of one layer after an epoch."""

    epoch: int
    name: str
    layer: int
    # The number, if the diagnostic is one.
    value: float | None
    # The entries of a vector, or the rows of a matrix.
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Measured:
    """Diagnostics were taken.

    Reporting a measurement again replaces it.
    """

    trial: str
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True)
class Ended:
    """An attempt has ended."""

    trial: str
    # The status of the trial from now on. If the attempt was interrupted, the trial has
    # not ended: it is RUNNING, until another attempt resumes it.
    status: Status
    # The message or traceback of a failure.
    error: str = ""
    # The result of a completed trial with a validation split. Without a split, the
    # result is the last epoch.
    tested: Tested | None = None
    # Which test images a completed trial of classification gets right.
    correct: CorrectImages | None = None


Event: TypeAlias = Started | Progressed | Measured | Ended


def epochs_of(events: Iterable[Event]) -> list[Epoch]:
    """The epochs that events report."""
    epochs: list[Epoch] = []
    for event in events:
        if isinstance(event, Progressed):
            epochs += event.epochs
    return epochs
