"""The records of a user's parts, beside factors and trainers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ablate.errors import AblateError, unknown
from ablate.records import Level, Metric

if TYPE_CHECKING:
    from torch import Tensor, nn

# The name of the number of an epoch in reports of scripts.
EPOCH = "epoch"
Revision: TypeAlias = int | str | None
# The shape of each value; None for a value that is no tensor.
Shapes: TypeAlias = Sequence[Sequence[int] | None]


# A placeholder in a command: `{name}`, or `{name!r}` for a level as Python writes it.
PLACEHOLDER = re.compile(r"\{([^{}]*?)(!r)?\}")


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
class OwnFunction:
    """A part that is one function."""

    part: ClassVar[str]

    name: str
    function: Callable[..., Any]
    revision: Revision = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.function(*arguments, **options)


class OwnData(OwnFunction):
    """A function that returns training images and labels, and those for the test."""

    part = "data set"


class OwnLoss(OwnFunction):
    """A function from logits and targets to a scalar."""

    part = "loss"


class OwnOptimizer(OwnFunction):
    """A function from groups of parameters and a learning rate to an optimizer."""

    part = "optimizer"


class OwnSchedule(OwnFunction):
    """A function from the share of training that is done to a factor of the rate."""

    part = "schedule"


class OwnAugmentation(OwnFunction):
    """A function from training images and a generator to changed images."""

    part = "augmentation"


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


@dataclass(frozen=True)
class Reports:
    """Where the reports of a script are. Without both, it prints lines of JSON.

    Attributes:
        patterns: regular expressions with a named group for each metric, and perhaps one
            named epoch.
        files: path of the files that the script writes, with places and wildcards.
        first: what the script calls its first epoch.
        every: by how much its numbers grow from epoch to epoch.
    """

    patterns: tuple[str, ...] = ()
    files: str = ""
    first: int = 1
    every: int = 1

    def check(self, subject: str, metrics: Iterable[str]) -> None:
        """Raises AblateError if the patterns do not fit the metrics."""
        names = list(metrics)
        if self.patterns and self.files:
            raise AblateError(f"{subject}: give pattern= or reads=, not both")
        if self.every < 1:
            raise AblateError(f"{subject}: every= is 1 or more, found {self.every}")
        if (self.first, self.every) != (1, 1) and not (self.patterns or self.files):
            raise AblateError(
                f"{subject}: first= and every= go with pattern= or reads="
            )
        if not self.patterns:
            return
        groups: set[str] = set()
        for pattern in self.patterns:
            try:
                groups |= re.compile(pattern).groupindex.keys()
            except re.error as error:
                raise AblateError(
                    f"{subject}: the pattern {pattern!r} is no regular expression: {error}"
                ) from None
        for name in sorted(groups - {EPOCH, *names}):
            raise AblateError(
                f"{subject}: {unknown('group', name, [EPOCH, *names])} in pattern="
            )
        for name in names:
            if name not in groups:
                raise AblateError(
                    f"{subject}: no pattern has the group of the metric {name}; write"
                    rf" (?P<{name}>[\d.]+)"
                )

    def epoch(self, number: float) -> int:
        """The number of an epoch, counted from 1, from what the script calls it.

        Raises:
            AblateError: it lies between two epochs, or before the first one.
        """
        if math.isfinite(number):
            epoch = (number - self.first) / self.every + 1
            if epoch >= 1 and epoch == int(epoch):
                return int(epoch)
        raise AblateError(
            f"the script reported {number:g} as the number of an epoch; it should begin"
            f" at {self.first} and grow by {self.every} (first=, every=)"
        )
