"""Runs that were trained elsewhere, one per line of a frame."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError, first

if TYPE_CHECKING:
    import pandas as pd

# Columns that number the epochs or steps of a run.
STEPS = (
    "epoch",
    "step",
    "global_step",
    "trainer/global_step",
    "_step",
    "iteration",
    "iter",
)
# Names of columns of seeds, or of what pairs runs as seeds do.
SEEDS = re.compile(
    r"(.*[._/ -])?(random_?|rng_?)?(seed|random_state|fold|replicate|repeat)s?", re.I
)
# Texts that stand for a number that is none.
NOT_FINITE = ("nan", "inf", "-inf", "+inf", "infinity", "-infinity")


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
    """

    frame: pd.DataFrame
    where: Sequence[str]
    settings: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()
    lengths: Sequence[float] = ()
    failed: Sequence[bool] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Curve:
    """One run of a folder or a tracker, as it is read.

    Attributes:
        name: where it is.
        settings: what it declares.
        metrics: the last value of each metric.
        length: the last epoch or step.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    length: float = math.nan
    failed: bool = False

    def reach(self, number: float) -> None:
        """Takes the number of an epoch or step, if it is the last one so far."""
        if math.isfinite(number) and not self.length >= number:
            self.length = number

    def follow(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Takes the last value of each metric from rows in their order."""
        for row in rows:
            for column, value in row.items():
                number = number_of(value)
                if number is None or not column:
                    continue
                if column in STEPS:
                    self.reach(number)
                    continue
                self.metrics[str(column)] = number


def number_of(value: Any) -> float | None:
    """Returns a value as a number; infinity for one that is not finite."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        if value.strip().lower() in NOT_FINITE:
            return math.inf
        try:
            value = float(value)
        except ValueError:
            return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else math.inf


def typed(column: pd.Series[Any]) -> pd.Series[Any]:
    """Returns a column with numbers if all of its values are numbers.

    A text such as `nan` is a number that is not finite, and an empty cell is missing.
    """
    import numpy as np
    import pandas as pd

    if pd.api.types.is_bool_dtype(column):
        return column.astype(object)
    if pd.api.types.is_numeric_dtype(column):
        return column
    column = column.astype(object).map(
        lambda value: (
            str(value) if isinstance(value, list | dict | np.ndarray) else value
        )
    )
    texts = column.map(lambda value: value.strip() if isinstance(value, str) else value)
    texts = texts.where(texts != "", np.nan)
    lower = texts.map(lambda value: value.lower() if isinstance(value, str) else value)
    is_bad = lower.isin(NOT_FINITE)
    numbers = pd.to_numeric(texts.where(~is_bad, np.inf), errors="coerce")
    has_bools = texts.map(lambda value: isinstance(value, bool)).any()
    if (
        not has_bools
        and numbers.notna().sum() == texts.notna().sum()
        and numbers.notna().any()
    ):
        return numbers
    return texts


def of_curves(curves: Sequence[Curve], source: str) -> Runs:
    """Returns runs that were read one by one.

    Raises:
        AblateError: there is none.
    """
    import pandas as pd

    measured = [curve for curve in curves if curve.metrics]
    if not measured:
        raise AblateError(f"{source} has no run with a metric")
    settings = dict.fromkeys(name for curve in measured for name in curve.settings)
    metrics = dict.fromkeys(
        name for curve in measured for name in curve.metrics if name not in settings
    )
    frame = pd.DataFrame(
        [{**curve.metrics, **curve.settings} for curve in measured],
        columns=[*settings, *metrics],
    )
    for name in settings:
        frame[name] = typed(frame[name])
    notes: tuple[str, ...] = ()
    left = [curve.name for curve in curves if not curve.metrics]
    if left:
        notes = (f"Without a metric: {', '.join(first(left, 'runs'))}.",)
    return Runs(
        frame=frame,
        where=[curve.name for curve in measured],
        settings=frozenset(settings),
        metrics=frozenset(metrics),
        lengths=[curve.length for curve in measured],
        failed=[curve.failed for curve in measured],
        notes=notes,
    )
