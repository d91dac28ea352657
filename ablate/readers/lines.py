"""Reports in lines of text, by regular expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ablate.errors import AblateError
from ablate.readers.reports import Report, number_in
from ablate.records.own_parts import EPOCH, Reports


class LineReader:
    """Finds reports in lines. The metrics of a report may stand in several lines."""

    def __init__(self, reports: Reports, metrics: Sequence[str]) -> None:
        self._reports = reports
        self._metrics = metrics
        self._patterns = [re.compile(pattern) for pattern in reports.patterns]
        self._seen: dict[str, float] = {}

    def report(self, line: str) -> Report | None:
        """The report that a line completes; None if it completes none.

        Raises:
            AblateError: a group is no number, or the epoch is none of the script's.
        """
        new: dict[str, float] = {}
        for pattern in self._patterns:
            for match in pattern.finditer(line):
                groups = {k: v for k, v in match.groupdict().items() if v is not None}
                new |= {name: _number(name, text) for name, text in groups.items()}
        self._seen |= new
        if not new or any(name not in self._seen for name in self._metrics):
            return None
        seen, self._seen = self._seen, {}
        number = seen.pop(EPOCH, None)
        epoch = None if number is None else self._reports.epoch(number)
        return Report(epoch, seen)


def _number(name: str, text: str) -> float:
    number = number_in(text)
    if number is None:
        raise AblateError(f"the pattern found '{text}' for {name}, which is no number")
    return number
