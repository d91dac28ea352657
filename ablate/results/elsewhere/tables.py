"""Reads runs from tables: one per line, one per curve, or one per column of a chart."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError, shortened
from ablate.readers.files import (
    LONGEST_NAME,
    encoding_of,
    separator_of,
    table_rows,
    text_of,
)
from ablate.readers.words import STEPS, is_item, is_seed, step_word
from ablate.results.elsewhere.names import named_alike
from ablate.results.elsewhere.runs import (
    Curve,
    Runs,
    number_of,
    of_curves,
    typed,
    without_lost,
)
from ablate.text.advice import option

if TYPE_CHECKING:
    import pandas as pd

# The largest table that is read.
MOST_BYTES = 200_000_000
MOST_COLUMNS = 5_000
MOST_CELLS = 20_000_000
# The most characters of a cell.
LONGEST_CELL = 100_000
# A column of a chart of Weights & Biases: the run and its metric. The last part is the
# least and the largest value of what the column is a mean of.
CHART = re.compile(r"(?P<run>.+) - (?P<metric>.+?)(?P<end>__MIN|__MAX)?")
# Columns of items whose names could number runs, too.
NUMBERS = re.compile(r"(test_?)?(id|idx|index)|(row|sample).*", re.IGNORECASE)
# Names of runs that tell curves apart.
NAMES_OF_RUNS = ("run", "run_id", "run_uuid", "run_name", "name", "trial", "uuid")


def check_size(path: Path) -> None:
    """Raises AblateError if a file is too large to be read."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise AblateError(
            f"{path} has {size:,} bytes, and at most {MOST_BYTES:,} are read; keep the"
            " columns and lines that count"
        )


def check_cells(label: str, rows: int, columns: int) -> None:
    """Raises AblateError if a table is too large to be read."""
    if columns > MOST_COLUMNS:
        raise AblateError(
            f"{label} has {columns:,} columns, and at most {MOST_COLUMNS:,} are read;"
            " keep those that count"
        )
    if rows * columns > MOST_CELLS:
        raise AblateError(
            f"{label} has {rows:,} lines of {columns:,} columns, and at most"
            f" {MOST_CELLS:,} cells are read; keep the columns that count"
        )


def read_csv(path: Path, said: Collection[str] = ()) -> Runs:
    """Returns the runs of a table of text.

    Raises:
        AblateError: it is too large, or has two columns of one name.
        ValueError: a line has more cells than the header has.
    """
    import pandas as pd

    check_size(path)
    content = path.read_bytes()
    encoding = encoding_of(content[:2])
    text = text_of(content)
    del content
    rows = table_rows(text)
    names = next(rows, [])
    check_cells(str(path), 0, len(names))
    _refuse_doubled(str(path), [name for name in names if name])
    # The lines are checked here, and read again by pandas, which is faster.
    check_cells(str(path), sum(1 for _ in rows), len(names))
    if _is_chart(names):
        return _of_chart(names, table_rows(text), str(path))
    separator = separator_of(text.partition("\n")[0])
    # The text is not needed any more, and it may be large.
    del text, rows
    frame = pd.read_csv(
        path,
        encoding=encoding,
        encoding_errors="replace",
        sep=separator,
        # Where semicolons part columns, a comma is usually that of a decimal number.
        decimal="," if separator == ";" else ".",
        keep_default_na=False,
        na_values=[""],
        skipinitialspace=True,
        # Empty cells beyond the header are left out.
        usecols=range(len(names)),
        index_col=False,
        low_memory=False,
    )
    return runs_of(frame, str(path), start=2, said=said)


def read_parquet(path: Path, said: Collection[str] = ()) -> Runs:
    """Returns the runs of a Parquet file.

    Raises:
        AblateError: it is too large.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_size(path)
    about = pq.read_metadata(path)
    check_cells(str(path), about.num_rows, about.num_columns)
    unpacked = sum(
        about.row_group(number).total_byte_size
        for number in range(about.num_row_groups)
    )
    if unpacked > 2 * MOST_BYTES:
        raise AblateError(
            f"{path} has {unpacked:,} bytes when it is unpacked, and at most"
            f" {2 * MOST_BYTES:,} are read; keep the columns and lines that count"
        )
    # A text that is repeated is kept once. The metadata of pandas, with the index, are not
    # read.
    texts = [
        field.name
        for field in pq.read_schema(path)
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    ]
    frame = pq.read_table(path, read_dictionary=texts).to_pandas(ignore_metadata=True)
    return runs_of(frame, str(path), start=1, said=said)


def read_json(path: Path, said: Collection[str] = ()) -> Runs:
    """Returns the runs of a file of JSON: a list, an object of lists, or lines.

    Raises:
        AblateError: it is too large, or has another form.
    """
    import pandas as pd

    check_size(path)
    text = text_of(path.read_bytes())
    data: Any
    if path.suffix.lower() == ".json":
        data = json.loads(text)
        if isinstance(data, Mapping):
            lists = [value for value in data.values() if isinstance(value, list)]
            if len(lists) == len(data) and lists:
                check_cells(str(path), max(map(len, lists)), len(lists))
                return runs_of(pd.DataFrame(dict(data)), str(path), start=1, said=said)
            data = lists[0] if len(lists) == 1 else [data]
    else:
        data = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data):
        raise AblateError(
            f'{path} needs one object per run, as in {{"seed": 0, "accuracy": 0.9}}'
        )
    rows = [dict(flat(row)) for row in data]
    names = dict.fromkeys(name for row in rows for name in row)
    check_cells(str(path), len(rows), len(names))
    columns = {name: [row.get(name) for row in rows] for name in names}
    return runs_of(pd.DataFrame(columns), str(path), start=1, said=said)


def flat(data: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> Iterator[Any]:
    """Yields the values of nested objects by dotted names; lists as texts."""
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and depth < 4:
            yield from flat(value, f"{name}.", depth + 1)
        else:
            yield name, str(value) if isinstance(value, list | dict) else value


def _refuse_doubled(label: str, names: Sequence[str]) -> None:
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise AblateError(
            f"{label} has two columns {shortened(doubled[0])}; rename one"
        )


def runs_of(
    frame: pd.DataFrame,
    source: str = "",
    start: int = 0,
    said: Collection[str] = (),
) -> Runs:
    """Returns the runs of a table: one per line, or one per curve.

    Args:
        frame: lines in any order.
        source: the name of the file.
        start: the number of its first line with a run.
        said: columns that the user has named as seeds or settings.

    Raises:
        AblateError: it has no line, two columns with one name, or lines of which it is
            not clear whether they are runs.
    """
    import numpy as np
    import pandas as pd

    label = source or "the frame"
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    names = [str(column).strip() for column in frame.columns]
    check_cells(label, len(frame), len(names))
    longest = max(map(len, names), default=0)
    if longest > LONGEST_NAME:
        raise AblateError(
            f"{label}: the name of a column has {longest:,} characters; it may have"
            f" {LONGEST_NAME}"
        )
    _refuse_doubled(label, names)
    frame = frame.set_axis(names, axis=1)
    if frame.empty:
        raise AblateError(f"{label} has no line with a run")
    lines = np.arange(len(frame)) + start if source else frame.index.to_numpy()
    frame = frame.reset_index(drop=True)
    frame = pd.DataFrame({name: typed(frame[name]) for name in frame.columns})
    for name in frame:
        _refuse_long(frame[name], label)
    where = _Places(source, lines)
    _refuse_items(frame, label, said)
    return _Curves(frame, where, label).runs()


def _refuse_long(column: pd.Series[Any], label: str) -> None:
    if column.dtype != object:
        return
    longest = max(
        (len(value) for value in column.unique() if isinstance(value, str)), default=0
    )
    if longest > LONGEST_CELL:
        raise AblateError(
            f"{label}: a cell of {column.name} has {longest:,} characters; at most"
            f" {LONGEST_CELL:,} are read"
        )


def _refuse_items(frame: pd.DataFrame, label: str, said: Collection[str]) -> None:
    """Raises AblateError if lines are items of a test set, and not runs.

    Items are the same in each run, and each run has each of them once.
    """
    for name in frame.columns:
        counts = frame[name].value_counts(dropna=False)
        number = len(counts)
        if name in said or not is_item(name) or step_word(name) or number < 2:
            continue
        runs = [
            other
            for other in frame.columns
            if (is_seed(other) or frame[other].dtype == object)
            and other != name
            and frame[other].nunique() <= len(frame) / number
        ]
        is_each_once = False
        if runs:
            groups = frame.groupby(runs, dropna=False)[name]
            sizes, different = groups.size(), groups.nunique(dropna=False)
            is_each_once = len(sizes) > 1 and bool(
                (sizes == number).all() and (different == number).all()
            )
        # An `id` could number runs; a document is none.
        is_sure = not NUMBERS.fullmatch(name) and counts.min() == counts.max()
        if is_each_once or is_sure:
            raise AblateError(
                f"{label} has a line for each item of a test set ({name}), and a line is a"
                " run here: give one line for each run, with the mean over its items. If"
                f" {name} numbers runs, write {option('seed')} {name}"
            )


class _Curves:
    """Finds out what the runs of a table are, if a column numbers epochs or steps."""

    def __init__(self, frame: pd.DataFrame, where: Sequence[str], label: str) -> None:
        self._frame, self._where, self._label = frame, where, label

    def runs(self) -> Runs:
        """Returns the runs.

        Raises:
            AblateError: it is not clear what a run is.
        """
        alone = Runs(frame=self._frame, where=self._where)
        steps = self._steps()
        if not steps:
            return alone
        names = self._names()
        for step in steps:
            keys = self._keys(step, names)
            if not keys:
                continue
            groups = self._groups(keys)
            if groups.ngroups == len(self._frame):
                # A line per run: the step is a result, such as the best epoch.
                return alone
            if self._is_unique(step, keys):
                if names or self._are_curves(step, groups):
                    return self._last_values(step, keys)
                return alone
        step = steps[0]
        keys = self._keys(step, names) or names
        groups = self._groups(keys) if keys else None
        if groups is not None and groups.ngroups == len(self._frame):
            return alone
        if groups is not None and not names and not self._starts_alike(step, groups):
            return alone
        raise AblateError(self._unclear(step, keys))

    def _steps(self) -> list[str]:
        """Returns the columns of epochs or steps, the preferred one first."""
        import pandas as pd

        found = {
            step_word(name): name
            for name in reversed(list(self._frame.columns))
            if step_word(name)
            and pd.api.types.is_numeric_dtype(self._frame[name])
            and self._frame[name].nunique() > 1
        }
        return [found[word] for word in STEPS if word in found]

    def _names(self) -> list[str]:
        """Returns the columns that name runs: seeds, and names of runs."""
        return [
            name
            for name in self._frame.columns
            if is_seed(name)
            or (
                re.sub(r"\W+", "_", name).strip("_").lower() in NAMES_OF_RUNS
                and self._frame[name].nunique() < len(self._frame)
            )
        ]

    def _keys(self, step: str, names: Sequence[str]) -> list[str]:
        """Returns the columns by which lines belong to one run.

        They are the names of runs, texts, and numbers that are settings.
        """
        import pandas as pd

        frame = self._frame
        has_names = any(not is_seed(name) for name in names)
        if has_names and self._is_unique(step, names):
            # What changes in a run that has a name of its own is measured.
            return list(names)
        keys = [
            name
            for name in frame.columns
            if name in names
            or (
                not step_word(name)
                and not pd.api.types.is_numeric_dtype(frame[name])
                and frame[name].nunique() < len(frame)
            )
        ]
        for name in frame.columns:
            if (
                name not in keys
                and not step_word(name)
                and self._is_setting(name, step, keys)
            ):
                keys.append(name)
        return keys

    def _is_setting(self, name: str, step: str, keys: Sequence[str]) -> bool:
        """Whether a column of numbers is a setting.

        Each of its values is there at several steps, and two of them side by side. The
        values of a schedule follow one another.
        """
        frame = self._frame
        if frame[name].nunique() < 2 or frame[name].nunique() > len(frame) / 2:
            return False
        groups = frame.groupby([*keys, name], sort=False, dropna=False)[step]
        if groups.size().min() < 2:
            return False
        spans = groups.agg(["min", "max"]).reset_index()
        parts = (
            [part for _, part in spans.groupby(list(keys), dropna=False)]
            if keys
            else [spans]
        )
        for part in parts:
            ordered = part.sort_values("min")
            if (
                ordered["min"].iloc[1:].to_numpy()
                <= ordered["max"].cummax().iloc[:-1].to_numpy()
            ).any():
                return True
        return False

    def _groups(self, keys: Sequence[str]) -> Any:
        return self._frame.groupby(list(keys), sort=False, dropna=False)

    def _is_unique(self, step: str, keys: Sequence[str]) -> bool:
        """Whether no run has two values of one column at one step."""
        frame = self._frame
        if not frame.duplicated([*keys, step]).any():
            return True
        # Some tools write one line for training and one for validation.
        counts = frame.groupby([*keys, step], sort=False, dropna=False).count()
        others = [
            name for name in counts.columns if not step_word(name) and name not in keys
        ]
        return bool(others) and int(counts[others].to_numpy().max()) <= 1

    def _are_curves(self, step: str, groups: Any) -> bool:
        """Whether lines without the name of a run are curves: all steps up to the last
        one, or every so many.
        """
        import numpy as np

        lengths = groups.size()
        if lengths.min() < 2:
            return False
        every = np.sort(self._frame[step].unique())
        for _, run in groups[step]:
            own = np.sort(run.unique())
            gaps = np.diff(own)
            is_even = len(own) > 2 and np.allclose(gaps, gaps[0])
            if not is_even and len(own) != int((every <= own[-1]).sum()):
                return False
        return True

    def _starts_alike(self, step: str, groups: Any) -> bool:
        """Whether all groups begin at the first step, as curves do."""
        return bool((groups[step].min() == self._frame[step].min()).all())

    def _unclear(self, step: str, keys: Sequence[str]) -> str:
        frame = self._frame
        doubled = frame.index[frame.duplicated([*keys, step])]
        where = self._where[doubled[0]] if len(doubled) else self._label
        return (
            f"{where} has the settings and the {step} of a line before, so it is not clear"
            f" what a run is; add a column, such as run or seed, that tells runs apart. If"
            f" {step} is a result, rename it"
        )

    def _last_values(self, step: str, keys: list[str]) -> Runs:
        """Returns the last value of each metric of each run."""
        frame = self._frame
        ordered = frame.sort_values(step, kind="stable")
        groups = ordered.groupby(keys, sort=False, dropna=False)
        counts = groups.nunique()
        # What has one value in each run is a setting; a rate that is the same in all
        # runs at each step is part of the schedule.
        constant = [name for name in counts if counts[name].max() <= 1]
        by_step = ordered.groupby(step)
        measured = [
            name
            for name in frame.columns
            if name not in (*keys, *constant)
            and not step_word(name)
            and by_step[name].nunique().max() > 1
        ]
        settings = [
            name
            for name in frame.columns
            if name in (*keys, *constant) and not step_word(name)
        ]
        last = groups.last()[[name for name in settings if name not in keys] + measured]
        lengths = groups[step].max().tolist()
        for name in measured:
            ends = ordered[step].where(ordered[name].notna())
            ends_of_runs = ends.groupby(
                [ordered[key] for key in keys], sort=False, dropna=False
            )
            last[name] = without_lost(
                last[name].tolist(), ends_of_runs.max().tolist(), lengths
            )
        places = frame.groupby(keys, sort=False, dropna=False).head(1)
        first: dict[Hashable, str] = {
            key: self._where[place]
            for place, key in zip(places.index, _texts(places[keys]), strict=True)
        }
        last = last.reset_index()
        return Runs(
            frame=last[[*settings, *measured]],
            where=[first[key] for key in _texts(last[keys])],
            settings=frozenset(settings),
            metrics=frozenset(measured),
            lengths=lengths,
            notes=(
                f"{self._label} has {len(frame)} lines by {step}: the last value of each"
                f" of {len(last)} runs counts.",
            ),
        )


def _texts(frame: pd.DataFrame) -> list[str]:
    return frame.astype(str).agg("\0".join, axis=1).tolist()


class _Places(Sequence[str]):
    """What each line is called; a million texts are made only where they are read."""

    def __init__(self, source: str, lines: Any) -> None:
        self._name = f"{Path(source).name}, " if source else ""
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, place: Any) -> Any:
        """Returns one text."""
        return f"{self._name}line {self._lines[place]}"


def _is_chart(names: Sequence[str]) -> bool:
    """Whether a table is the data of a chart of Weights & Biases."""
    matches = [CHART.fullmatch(name) for name in names[1:]]
    return (
        bool(matches)
        and all(matches)
        and any(match["end"] for match in matches if match)
    )


def _of_chart(names: Sequence[str], rows: Iterator[list[str]], label: str) -> Runs:
    """Returns the runs of a chart: one per column.

    Raises:
        AblateError: a column is a mean over several runs.
    """
    next(rows)
    curves: dict[str, Curve] = {}
    for cells in rows:
        step = number_of(cells[0]) or 0.0
        found = {
            (match["run"], match["metric"], match["end"] or ""): number_of(cell)
            for name, cell in zip(names[1:], cells[1:], strict=False)
            if (match := CHART.fullmatch(name)) is not None
        }
        for (run, metric, end), number in found.items():
            value = found.get((run, metric, ""))
            if number is None or value is None:
                continue
            if end and number != value:
                raise AblateError(
                    f"{label}: {shortened(run)} is a mean over several runs; export the"
                    " table of runs, or a chart without groups"
                )
            curve = curves.setdefault(run, Curve(name=run))
            curve.reach(step)
            curve.metrics[metric], curve.ends[metric] = value, step
    note = named_alike(list(curves.values()))
    runs = of_curves(list(curves.values()), label)
    return replace(runs, notes=(*runs.notes, *([note] if note else [])))
