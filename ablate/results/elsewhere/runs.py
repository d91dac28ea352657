"""Runs that were trained elsewhere, one per line of a frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError
from ablate.readers.files import LONGEST_NAME
from ablate.readers.words import STEPS, step_word

if TYPE_CHECKING:
    import pandas as pd

# Texts that stand for a number that is none, and for a value that is missing.
NOT_FINITE = ("nan", "inf", "-inf", "+inf", "infinity", "-infinity")
NO_VALUE = ("", "none", "null", "na", "n/a", "-")
# A larger number is that of a training that has diverged; its square would be infinite.
LARGEST = 1e100
# The most metrics of a run, and in all runs.
MOST_METRICS = 5_000
# How deep metrics may be nested.
DEEPEST = 4


@dataclass(frozen=True)
class Runs:
    """Runs, one per line of a frame.

    Attributes:
        frame: a column for each setting and metric. A number that is not finite is
            infinite; a missing value is NaN.
        where: what each run is called, such as `results.csv, line 3`.
        settings: columns that are known to be declared, not measured; empty if unknown.
        metrics: columns that are known to be measured; empty if unknown.
        lengths: the last epoch or step of each run; NaN if it is unknown.
        failed: whether its tracker says that a run did not complete.
        notes: what a reader has to know of how the runs were read.
        directions: `max` or `min` by metric, where the tool states it.
    """

    frame: pd.DataFrame
    where: Sequence[str]
    settings: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()
    lengths: Sequence[float] = ()
    failed: Sequence[bool] = ()
    notes: tuple[str, ...] = ()
    directions: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Curve:
    """One run of a folder or a tracker, as it is read.

    Attributes:
        name: where it is.
        settings: what it declares.
        metrics: the last value of each metric.
        ends: the epoch or step of that value; without steps, its line.
        length: the last epoch or step.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    length: float = math.nan
    failed: bool = False

    def reach(self, number: float) -> None:
        """Takes the number of an epoch or step, if it is the last one so far."""
        if math.isfinite(number) and not self.length >= number:
            self.length = number

    def follow(self, rows: Iterable[Mapping[str, Any]], prefix: str = "") -> None:
        """Takes the last value of each metric from rows in their order.

        Args:
            prefix: what the metrics are called in front.

        Raises:
            ValueError: there are too many metrics.
        """
        for line, row in enumerate(rows, start=1):
            numbers = {
                str(column).strip(): number
                for column, value in _numbers(row)
                if column and (number := number_of(value)) is not None
            }
            steps = {step_word(name): number for name, number in numbers.items()}
            step = next((steps[word] for word in STEPS if word in steps), line)
            self.reach(step)
            for column, number in numbers.items():
                if not step_word(column):
                    self.metrics[f"{prefix}{column}"] = number
                    self.ends[f"{prefix}{column}"] = step
            if len(self.metrics) > MOST_METRICS:
                raise ValueError(f"it has more than {MOST_METRICS:,} metrics")


def _numbers(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what may be metrics; those of nested objects by dotted names."""
    for column, value in row.items():
        if isinstance(value, Mapping) and prefix.count(".") < DEEPEST:
            yield from _numbers(value, f"{prefix}{column}.")
        elif column:
            yield f"{prefix}{column}"[:LONGEST_NAME], value


def number_of(value: Any) -> float | None:
    """Returns a value as a number; infinity for one that is not finite."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str) and value.strip().lower() in NOT_FINITE:
        return math.inf
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None
    return number if abs(number) < LARGEST else math.inf


def typed(column: pd.Series[Any]) -> pd.Series[Any]:
    """Returns a column as numbers if all of its values are numbers, otherwise as texts.

    A text such as `nan` is a number that is not finite, and an empty cell is missing.
    """
    import numpy as np
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        if pd.api.types.is_complex_dtype(column):
            return column.astype(str)
        if pd.api.types.is_integer_dtype(column) and not column.hasnans:
            return column
        numbers = pd.Series(column.to_numpy(dtype=float, na_value=np.nan))
        return numbers.where(~(numbers.abs() >= LARGEST), np.inf)
    # A column of a million texts has few different ones.
    if isinstance(column.dtype, pd.CategoricalDtype):
        # The last one stands for a missing value, whose number is -1.
        places = column.cat.codes.to_numpy()
        found = [*map(_plain, column.cat.categories.astype(object)), None]
    else:
        plain = pd.Series(
            [_plain(value) for value in column.astype(object)], dtype=object
        )
        places, values = pd.factorize(plain, use_na_sentinel=False)
        found = list(values)
    texts = [value.strip() if isinstance(value, str) else value for value in found]
    read = [None if _is_missing(text) else _number(text) for text in texts]
    missing = [_is_missing(text) for text in texts]
    if not all(missing) and all(
        number is not None or is_missing
        for number, is_missing in zip(read, missing, strict=True)
    ):
        as_numbers = [np.nan if number is None else number for number in read]
        return pd.Series(np.array(as_numbers, dtype=float)[places])
    kept = np.array([np.nan if text == "" else text for text in texts], dtype=object)
    return pd.Series(kept[places], dtype=object)


def _plain(value: Any) -> Any:
    """Returns a value of a cell that can be compared: lists and the like as text."""
    import pandas as pd

    if value is None or isinstance(value, str | bool | int | float):
        return value
    if pd.api.types.is_scalar(value):
        return None if pd.isna(value) else value
    return str(value)


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in NO_VALUE
    return value is None or (isinstance(value, float) and math.isnan(value))


def _number(value: Any) -> float | None:
    """Returns a cell as a number; `71.2%` is 71.2."""
    if isinstance(value, str):
        value = value.removesuffix("%")
    return number_of(value)


def without_lost(
    values: Sequence[float], ends: Sequence[float], lengths: Sequence[float]
) -> list[float]:
    """Returns the last values of a metric, but NaN where a run goes on without it.

    Some metrics are not measured at each step, so the last steps of a run may have none.
    A run whose metric ends earlier before its end than in the others has lost it.

    Args:
        ends: the step of each value.
        lengths: the last step of each run.
    """
    lags = [length - end for length, end in zip(lengths, ends, strict=True)]
    known = [lag for lag in lags if not math.isnan(lag)]
    if not known:
        return list(values)
    usual = min(known)
    latest = max(end for end in ends if not math.isnan(end))
    return [
        math.nan if lag > usual and end < latest else value
        for value, lag, end in zip(values, lags, ends, strict=True)
    ]


def of_curves(curves: Sequence[Curve], source: str) -> Runs:
    """Returns runs that were read one by one.

    Raises:
        AblateError: none has a metric.
    """
    import pandas as pd

    if not any(curve.metrics for curve in curves):
        raise AblateError(
            f"{source} has no run with a metric; a run is a folder with a file of metrics,"
            " or a run of a tracker that has logged a number"
        )
    metrics = dict.fromkeys(name for curve in curves for name in curve.metrics)
    settings = dict.fromkeys(name for curve in curves for name in curve.settings)
    if len(metrics) + len(settings) > MOST_METRICS:
        raise AblateError(
            f"{source} has {len(metrics) + len(settings):,} different metrics and"
            f" settings, and at most {MOST_METRICS:,} are read"
        )
    # A setting may have the name of a metric.
    names = {
        name: f"{name} (setting)" if name in metrics else name for name in settings
    }
    frame = pd.DataFrame(
        {
            names[name]: [curve.settings.get(name) for curve in curves]
            for name in settings
        }
        | {
            name: without_lost(
                [curve.metrics.get(name, math.nan) for curve in curves],
                [curve.ends.get(name, math.nan) for curve in curves],
                [curve.length for curve in curves],
            )
            for name in metrics
        }
    )
    for name in names.values():
        frame[name] = typed(frame[name])
    return Runs(
        frame=frame,
        where=[curve.name for curve in curves],
        settings=frozenset(names.values()),
        metrics=frozenset(metrics),
        lengths=[curve.length for curve in curves],
        failed=[curve.failed for curve in curves],
    )
