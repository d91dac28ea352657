"""Reports in the files that scripts write: CSV, JSON lines and TensorBoard events.

A file is CSV if its name ends in `.csv`, TensorBoard events if it holds `tfevents`,
otherwise JSON lines. While the script runs, the last line may be half written, so it counts
only if it is complete.
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

from ablate.errors import AblateError
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
        pattern: path of the files, with wildcards; the file that was changed last is
            read last.
        known: how many epochs have been reported before.
    """

    def __init__(
        self, reports: Reports, metrics: Sequence[str], pattern: str, known: int = 0
    ) -> None:
        self._reports = reports
        self._metrics = metrics
        self._pattern = pattern
        self._known = known
        self._state: tuple[tuple[int, int, str], ...] = ()
        self.columns: list[str] = []

    def new(self, *, ended: bool = False) -> list[Report]:
        """Reports of further epochs, in their order.

        An epoch is reported once the script is in a later one, or has ended: the last
        number of each metric counts, whenever the files are read.

        Args:
            ended: whether the script writes no more.

        Raises:
            AblateError: the number of an epoch is none of the script's, or a file
                cannot be read.
        """
        # As `version_10` is younger than `version_9`, whatever their order as texts.
        stamps = sorted(_stamp(path) for path in glob(self._pattern, recursive=True))
        paths = [path for _, _, path in stamps]
        state = tuple(stamps)
        if state == self._state and not ended:
            return []
        self._state = state
        epochs = self._merged(paths, ended=ended)
        reports = []
        while (number := self._known + 1) in epochs:
            metrics = epochs[number]
            is_past = ended or any(other > number for other in epochs)
            if not is_past or any(name not in metrics for name in self._metrics):
                break
            reports.append(
                Report(number, {name: metrics[name] for name in self._metrics})
            )
            self._known = number
        return reports

    def _merged(
        self, paths: Sequence[str], *, ended: bool
    ) -> dict[int, dict[str, float]]:
        """The numbers of each epoch."""
        try:
            rows = [row for path in paths for row in _rows(Path(path), ended=ended)]
        except (csv.Error, ValueError, OSError) as error:
            raise AblateError(f"{self._pattern} cannot be read: {error}") from error
        self.columns = list(dict.fromkeys(column for row in rows for column in row))
        rows = [row for row in rows if any(name in row for name in self._metrics)]
        # One key for all rows: where some have an epoch, a step is no epoch.
        key = next((key for key in NUMBERS if any(key in row for row in rows)), None)
        if key is None:
            return dict(enumerate(rows, start=1))
        epochs: dict[int, dict[str, float]] = {}
        for row in rows:
            # A row without a number, such as that of a final test, is of no epoch.
            if key in row:
                epochs.setdefault(self._reports.epoch(row[key]), {}).update(row)
        return epochs

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


def _stamp(path: str) -> tuple[int, int, str]:
    """When a file was changed, its size, and its path."""
    try:
        status = Path(path).stat()
    except OSError:
        # The script has removed it just now.
        return 0, 0, path
    return status.st_mtime_ns, status.st_size, path


def rows_of(path: Path, *, ended: bool = True) -> Iterator[Mapping[str, Any]]:
    """What a file of reports holds, row by row, by column.

    Args:
        ended: whether its last line is complete.
    """
    try:
        content = path.read_bytes()
    except OSError:
        # The script has removed it, or writes it just now.
        return
    if not ended and "tfevents" not in path.name:
        content = content[: content.rfind(b"\n") + 1]
    read: Callable[[bytes], Iterator[Mapping[str, Any]]]
    if path.suffix == ".csv":
        read = _csv
    elif "tfevents" in path.name:
        read = _events
    else:
        read = _json_lines
    yield from read(content)


def _rows(path: Path, *, ended: bool) -> Iterator[dict[str, float]]:
    """The numbers in a file, row by row, by normalised column."""
    for row in rows_of(path, ended=ended):
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
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def _csv(content: bytes) -> Iterator[Mapping[str, Any]]:
    # Some programs begin a file with a mark of its encoding.
    text = content.decode("utf-8-sig", errors="replace")
    for row in csv.DictReader(io.StringIO(text)):
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
    from google.protobuf.message import DecodeError
    from tensorboardX.proto.event_pb2 import Event

    start = 0
    while start + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, start)
        end = start + 12 + length
        if end + 4 > len(content):
            return
        try:
            event = Event.FromString(content[start + 12 : end])
        except DecodeError as error:
            raise ValueError(f"byte {start} begins no TensorBoard event") from error
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
