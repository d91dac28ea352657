"""What training measures."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["max", "min"]


# Letters, digits and _, beginning with a letter; the store's column has 20 characters.
METRIC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,19}")


@dataclass(frozen=True)
class Metric:
    """One number that training measures after each epoch, and how it is shown."""

    # In YAML, SQL and code.
    name: str
    # In tables, charts and pages; by default the name.
    title: str = ""
    # After a difference of two values, with a space before it if it needs one.
    unit: str = ""
    # Digits after the decimal point.
    digits: int = 4
    # Least difference that matters, unless the space declares another. With 0, no
    # difference is too small to matter, so no verdict is "no difference".
    margin: float = 0.0
    # Whether it is better when it is larger.
    direction: Direction = field(kw_only=True)
    # Whether a study may compare its cells by it. The training loss is only drawn.
    compared: bool = True

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)
