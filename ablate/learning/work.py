"""The interface between training and a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ablate.records import Metric


@dataclass(frozen=True)
class Part:
    """What one forward and backward pass receives: a batch, or a piece of one.

    Attributes:
        inputs: in the form that the task's `arguments` takes.
        share: its share of the batch's images. Losses, weighted by it, add up to the
            loss of the batch.
    """

    inputs: tuple[Any, ...]
    share: float


@dataclass(frozen=True)
class Batch:
    """The images of one step of the optimiser, in parts; `images` is their number."""

    parts: tuple[Part, ...]
    images: int


@dataclass(frozen=True)
class Evaluating:
    """What an evaluation needs from training.

    Attributes:
        autocast: returns the context in which the network runs.
        beat: gives a sign of life.
        total: returns sums (float64) and a count over all processes of the trial.
        correct: receives for each batch which images are classified correctly, bool
            (n), in the order of the data; None if they are not wanted.
    """

    autocast: Callable[[], AbstractContextManager[Any]]
    beat: Callable[[], None]
    total: Callable[[Tensor, int], tuple[Tensor, int]]
    correct: Callable[[Tensor], None] | None = None


class Measure(Protocol):
    """A metric that is a multiple of a mean over images."""

    @property
    def metric(self) -> Metric: ...

    @property
    def times(self) -> float: ...

    def sum(self, logits: Tensor, labels: Tensor, /) -> Tensor:
        """Returns the sum over a batch, from logits (n, classes) and labels (n)."""


class Work(Protocol):
    """A task's data, loss and evaluation for one trial.

    The constructor reads the data, before random states are seeded. `attach` receives
    the network. After it, `step` maps the arguments of a part to its mean loss, and
    `extra` has what is trained beside the network.
    """

    updates: int

    @property
    def step(self) -> nn.Module: ...

    @property
    def extra(self) -> nn.Module: ...

    def attach(self, model: nn.Module) -> None:
        """Makes the step of a network, which is on its device."""

    def begin_epoch(self, epoch: int) -> None:
        """Prepares an epoch; `epoch` is the number of finished ones."""

    def train(self, order: torch.Generator) -> Iterator[Batch]:
        """Yields the batches of an epoch. `order` draws everything about the data."""

    def arguments(self, part: Part) -> tuple[Any, ...]:
        """Returns the arguments of `step`. Training calls it under autocast."""

    def evaluate(
        self, model: nn.Module, tools: Evaluating, *, validation: bool
    ) -> dict[str, float]:
        """Returns each metric on the test set, or on the validation split."""

    def first_images(self, count: int) -> Iterator[Tensor]:
        """Yields the first test images, (n, channels, height, width), in batches."""
