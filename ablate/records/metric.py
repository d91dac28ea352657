"""What training measures."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Le

from ablate.records.base import MOST_WHOLE

Direction: TypeAlias = Literal["max", "min"]


# Letters, digits and _, beginning with a letter; the store's column has 20 characters.
METRIC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,19}")

# A float has no more digits than this.
MOST_DIGITS = 17


@dataclass(frozen=True)
class Metric:
    """One number that training measures after each epoch, and how it is shown.

    Args:
        name: its name in YAML, SQL and code.
        title: its name in tables, charts and pages; by default the name.
        unit: what follows a difference of two values, with a space before it if it
            needs one.
        digits: digits after the decimal point.
        margin: least difference that matters, unless the space declares another. With
            0, no difference is too small to matter, so no verdict is "no difference".
        direction: max or min: whether larger values are better.
        compared: whether a study may compare its cells by it. The training loss is only
            drawn.
        of: the metric whose last epochs this one is the mean of; empty: it is measured
            after each epoch itself.
        over: the number of those epochs. A shorter training counts as a whole.
    """

    name: str
    title: str = ""
    unit: str = ""
    digits: Annotated[int, Ge(0), Le(MOST_DIGITS)] = 4
    margin: Annotated[float, Ge(0)] = 0.0
    direction: Direction = field(kw_only=True)
    compared: bool = True
    of: str = ""
    over: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 1

    @property
    def measured(self) -> str:
        """The name of what is measured after each epoch."""
        return self.of or self.name

    def over_last(self, epochs: int) -> Metric:
        """Returns the metric that is the mean of this one over the last epochs."""
        title, bracket, unit = self.title.partition(" (")
        return replace(
            self,
            name=f"{self.name}_last{epochs}",
            title=f"{title}, mean of last {epochs}{bracket}{unit}",
            of=self.name,
            over=epochs,
        )

    def mean(self, values: Sequence[float]) -> float:
        """Returns this metric, given the values of `of` after all epochs."""
        last = values[-self.over :]
        return math.fsum(last) / len(last)

    @property
    def difference_title(self) -> str:
        """The title of a difference: percentages differ by points."""
        unit = self.unit.strip()
        if not unit:
            return f"Δ {self.title}"
        return f"Δ {self.title.partition(' (')[0]} ({unit})"

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)
