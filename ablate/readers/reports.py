"""Where the reports of a script are, and how its epochs are numbered."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ablate.errors import AblateError, unknown

EPOCH = "epoch"


@dataclass(frozen=True)
class Report:
    """The metrics of one epoch.

    Attributes:
        epoch: counted from 1; None: the next one.
        metrics: numbers by name.
    """

    epoch: int | None
    metrics: dict[str, float]


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


def number_in(text: str) -> float | None:
    """The number that a text is; None if it is none."""
    try:
        return float(text.strip().rstrip("%").replace(",", ""))
    except ValueError:
        return None
