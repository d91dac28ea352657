"""Reports in the files that scripts write: CSV, JSON lines and TensorBoard events.

Files are read as they are: a file with another ending is read as CSV if its name ends in
`.csv`, as TensorBoard events if it holds `tfevents`, otherwise as JSON lines. The last
line may be half written, so it counts only if it is complete.
"""

from __future__ import annotations

import csv
import io
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from ablate.readers.reports import Report, number_in
from ablate.records.own_parts import EPOCH, Reports

# The keys of a row under which scripts write the number of an epoch.
NUMBERS = (EPOCH, "step", "iter", "iteration")


class FileReader:
    """Finds the reports in files that a script writes.

    Args:
        reports: how the script numbers its epochs.
        metrics: names of the metrics; a column's letters other than digits, letters and
            `_` count as `_`.
        pattern: path of the files, with wildcards; read in the order of their names.
        known: how many epochs have been reported before.
    """

    def __init__(
        self, reports: Reports, metrics: Sequence[str], pattern: str, known: int = 0
    ) -> None:
        self._reports = reports
        self._metrics = metrics
        self._pattern = pattern
        self._known = known
        self._state: tuple[tuple[str, int, int], ...] = ()
        self.columns: list[str] = []

    def new(self, *, ended: bool = False) -> list[Report]:
        """Reports of further epochs, in their order.

        A row with all metrics is a report. If the metrics of an epoch stand in several
        rows, the last number of each counts, once the script is in a later epoch.

        Args:
            ended: whether the script writes no more.

        Raises:
            AblateError: the number of an epoch is none of the script's.
        """
        paths = sorted(path for path in glob(self._pattern, recursive=True))
        state = tuple(_stamp(path) for path in paths)
        if state == self._state and not ended:
            return []
        self._state = state
        epochs, whole = self._merged(paths)
        reports = []
        while (number := self._known + 1) in epochs:
            metrics = epochs[number]
            is_past = ended or number in whole or any(n > number for n in epochs)
            if not is_past or any(name not in metrics for name in self._metrics):
                break
            reports.append(
                Report(number, {name: metrics[name] for name in self._metrics})
            )
            self._known = number
        return reports

    def _merged(
        self, paths: Sequence[str]
    ) -> tuple[dict[int, dict[str, float]], set[int]]:
        """The numbers of each epoch, and the epochs that have them in one row."""
        epochs: dict[int, dict[str, float]] = {}
        whole: set[int] = set()
        columns: dict[str, None] = {}
        unnumbered = 0
        for path in paths:
            for row in _rows(Path(path)):
                columns |= dict.fromkeys(row)
                number = next((row[key] for key in NUMBERS if key in row), None)
                if number is None:
                    unnumbered += 1
                    epoch = unnumbered
                else:
                    epoch = self._reports.epoch(number)
                epochs.setdefault(epoch, {}).update(row)
                if all(name in row for name in self._metrics):
                    whole.add(epoch)
        self.columns = list(columns)
        return epochs, whole

    def problem(self) -> str:
        """Why no report was found, in words."""
        if not self._state:
            return f"there is no file {self._pattern}"
        missing = [name for name in self._metrics if name not in self.columns]
        if missing:
            return (
                f"{self._pattern} has no column {', '.join(missing)}; it has"
                f" {', '.join(self.columns) or 'none'}"
            )
        return f"{self._pattern} has no row of epoch {self._known + 1}"


def _stamp(path: str) -> tuple[str, int, int]:
    try:
        status = Path(path).stat()
    except OSError:
        return path, 0, 0
    return path, status.st_size, status.st_mtime_ns


def _rows(path: Path) -> Iterator[dict[str, float]]:
    """The numbers in a file, row by row, by normalised column."""
    try:
        content = path.read_bytes()
    except OSError:
        # The script has removed it, or writes it just now.
        return
    read: Callable[[bytes], Iterator[Mapping[str, Any]]]
    if path.suffix == ".csv":
        read = _csv
    elif "tfevents" in path.name:
        read = _events
    else:
        read = _json_lines
    for row in read(content):
        numbers = {}
        for column, value in row.items():
            number = _as_number(value)
            if number is not None:
                numbers[re.sub(r"\W", "_", str(column)).strip("_")] = number
        if numbers:
            yield numbers


def _as_number(value: Any) -> float | None:
    if isinstance(value, str):
        return number_in(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def _csv(content: bytes) -> Iterator[Mapping[str, Any]]:
    whole = content[: content.rfind(b"\n") + 1].decode(errors="replace")
    for row in csv.DictReader(io.StringIO(whole)):
        # None is the key of cells beyond the header.
        yield {column: cell or "" for column, cell in row.items() if column}


def _json_lines(content: bytes) -> Iterator[Mapping[str, Any]]:
    for line in content.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, Mapping):
            yield row


def _events(content: bytes) -> Iterator[Mapping[str, Any]]:
    """The scalars of a file of TensorBoard events, one row per event.

    Each record is its length (8 bytes), a check sum (4), the event, a check sum (4).
    """
    from tensorboardX.proto.event_pb2 import Event

    start = 0
    while start + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, start)
        end = start + 12 + length
        if end + 4 > len(content):
            return
        try:
            event = Event.FromString(content[start + 12 : end])
        except Exception:
            # protobuf's own errors have no common class in all versions.
            return
        start = end + 4
        row: dict[str, Any] = {}
        for value in event.summary.value:
            kind = value.WhichOneof("value")
            if kind == "simple_value":
                row[value.tag] = value.simple_value
            elif kind == "tensor" and len(value.tensor.float_val) == 1:
                row[value.tag] = value.tensor.float_val[0]
        if row:
            yield {**row, "step": event.step}
