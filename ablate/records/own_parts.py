"""The records of a user's parts, beside factors and trainers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ablate.records import Level, Metric

if TYPE_CHECKING:
    from torch import Tensor, nn

Revision: TypeAlias = int | str | None
# The shape of each value; None for a value that is no tensor.
Shapes: TypeAlias = Sequence[Sequence[int] | None]


@dataclass(frozen=True, kw_only=True)
class OwnBackbone:
    """A function from (image side, channels, classes) to a network.

    It gets the levels of `factors` by name.
    """

    part: ClassVar[str] = "backbone"

    name: str
    build: Callable[..., nn.Module]
    # Side of the images that it is made for, in pixels.
    image_size: int = 224
    # The family whose conventions its blocks follow; empty: they are not known.
    like: str = ""
    # Which levels each factor allows: a record of `factors.factor`.
    factors: Mapping[str, Any] = field(default_factory=dict)
    # The levels of factors that a space does not name.
    defaults: Mapping[str, Level] = field(default_factory=dict)
    revision: Revision = None

    def __call__(
        self, image_size: int, channels: int, classes: int, **levels: Level
    ) -> nn.Module:
        return self.build(image_size, channels, classes, **levels)


@dataclass(frozen=True, kw_only=True)
class OwnData:
    """A function that returns training images and labels, and those for the test."""

    part: ClassVar[str] = "data set"

    name: str
    load: Callable[[], tuple[Any, Any, Any, Any]]
    revision: Revision = None

    def __call__(self) -> tuple[Any, Any, Any, Any]:
        return self.load()


@dataclass(frozen=True, kw_only=True)
class OwnLoss:
    """A function from logits and targets to a scalar."""

    part: ClassVar[str] = "loss"

    name: str
    loss: Callable[[Tensor, Tensor], Tensor]
    revision: Revision = None

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self.loss(logits, targets)


@dataclass(frozen=True, kw_only=True)
class OwnOperator:
    """A function from the shapes of an operator's inputs and outputs to multiply-adds."""

    part: ClassVar[str] = "operator"

    name: str
    count: Callable[[Shapes, Shapes], float]
    revision: Revision = None


@dataclass(frozen=True, kw_only=True)
class OwnMetric:
    """A function from all test logits and labels to a number."""

    part: ClassVar[str] = "metric"

    measure: Callable[[Tensor, Tensor], float]
    shown: Metric
    revision: Revision = None

    @property
    def name(self) -> str:
        return self.shown.name

    def __call__(self, logits: Tensor, labels: Tensor) -> float:
        return float(self.measure(logits, labels))
