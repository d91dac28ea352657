"""Reports in the files that scripts write: CSV, JSON and TensorBoard events.

A file is a table if its name ends in `.csv` or `.tsv`, TensorBoard events if it holds
`tfevents`, otherwise JSON: an object per line, one object, or a list of objects. While the
script runs, the last line may be half written, so it counts only if it is complete.
"""

from __future__ import annotations

import csv
import io
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from ablate.errors import AblateError
from ablate.readers.reports import Report, number_in
from ablate.readers.words import STEPS, step_word
from ablate.records.own_parts import Reports

# The most bytes of a file.
MOST_BYTES = 100_000_000
# The most characters of a name of a column.
LONGEST_NAME = 200
# What TensorFlow calls the types of numbers, as `struct` does.
TENSORS = {1: "f", 2: "d", 3: "i", 9: "q", 19: "e"}


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
        key = next((key for key in STEPS if any(key in row for row in rows)), None)
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
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ValueError(
                f"{path.name} has {size:,} bytes, and at most {MOST_BYTES:,} are read"
            )
        content = path.read_bytes()
    except OSError:
        # The script has removed it, or writes it just now.
        return
    is_table = path.suffix.lower() in (".csv", ".tsv")
    if not ended and "tfevents" not in path.name:
        content = content[: content.rfind(b"\n") + 1]
    if is_table:
        rows = table_rows(text_of(content))
        header = next(rows, None)
        for row in rows:
            yield dict(zip(header or (), row, strict=False))
    elif "tfevents" in path.name:
        yield from _events(content)
    else:
        yield from _json(content)


def text_of(content: bytes) -> str:
    """Returns the text of a file, whose beginning may mark its encoding."""
    return content.decode(encoding_of(content[:2]), errors="replace")


def encoding_of(begin: bytes) -> str:
    """Returns the encoding of a text by its first two bytes."""
    is_wide = begin in (b"\xff\xfe", b"\xfe\xff")
    return "utf-16" if is_wide else "utf-8-sig"


def separator_of(header: str) -> str:
    """Returns what parts the cells of a table, by its first line."""
    if "\t" in header:
        return "\t"
    return ";" if ";" in header and "," not in header else ","


def table_rows(text: str) -> Iterator[list[str]]:
    """Yields the cells of a table line by line, the names of its columns first.

    Blanks around a cell do not count. A line may have fewer cells than the header.

    Raises:
        ValueError: a line has more cells than the header has, or a name is too long.
    """
    separator = separator_of(text.partition("\n")[0])
    lines = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    names: list[str] = []
    for row in lines:
        cells = [cell.strip() for cell in row]
        if not names:
            names = cells
            if len(cells) > 1 and not any(cells):
                raise ValueError(f"line {lines.line_num} names no column")
            longest = max(map(len, names), default=0)
            if longest > LONGEST_NAME:
                raise ValueError(
                    f"the name of a column has {longest:,} characters; it may have"
                    f" {LONGEST_NAME}"
                )
        elif len(cells) > len(names) and any(cells[len(names) :]):
            raise ValueError(
                f"line {lines.line_num} has {len(cells)} cells, and the header has"
                f" {len(names)}: put a cell with a {'comma' if separator == ',' else 'separator'}"
                " in quotes, such as a decimal comma or a list"
            )
        if any(cells):
            yield cells


def _rows(path: Path, *, ended: bool) -> Iterator[dict[str, float]]:
    """The numbers in a file, row by row, by normalised column."""
    for row in rows_of(path, ended=ended):
        numbers = {}
        for column, value in row.items():
            number = _as_number(value)
            if number is not None:
                name = re.sub(r"\W", "_", str(column).strip()).strip("_")
                numbers[step_word(column) or name] = number
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


def _json(content: bytes) -> Iterator[Mapping[str, Any]]:
    """Yields the objects of a file: those of its lines, or of all of it."""
    text = text_of(content)
    first, _, _ = text.lstrip().partition("\n")
    whole = (
        None if _object(first) is not None and "\n" in text.strip() else _parsed(text)
    )
    if whole is None:
        lines = (_object(line) for line in text.splitlines())
        rows = [row for row in lines if row is not None]
    else:
        found = whole if isinstance(whole, list) else [whole]
        rows = [row for row in found if isinstance(row, Mapping)]
    for row in rows:
        # `trainer_state.json` of transformers.
        history = row.get("log_history")
        if isinstance(history, list):
            yield from (each for each in history if isinstance(each, Mapping))
        else:
            yield row


def _object(line: str) -> Mapping[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    row = _parsed(line)
    return row if isinstance(row, Mapping) else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


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
            elif kind == "tensor":
                row |= _scalar(value.tag, value.tensor)
        if row:
            yield {**row, "step": event.step}


def _scalar(tag: str, tensor: Any) -> dict[str, float]:
    """Returns the number of a tensor by its tag; nothing if it is no number."""
    if any(side.size != 1 for side in tensor.tensor_shape.dim):
        return {}
    for values in (tensor.float_val, tensor.double_val, tensor.int_val):
        if len(values) == 1:
            return {tag: float(values[0])}
    form = TENSORS.get(tensor.dtype, "")
    content = tensor.tensor_content
    if not form or len(content) != struct.calcsize(f"<{form}"):
        return {}
    return {tag: float(struct.unpack(f"<{form}", content)[0])}
