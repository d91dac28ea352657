"""Whether the mean of each row is better than a given number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ablate.errors import AblateError
from ablate.records import LEVEL, Level, StudyResults
from ablate.report import student
from ablate.report.noise import ROUNDING
from ablate.report.numbers import fixed, mean_of, sd_of
from ablate.report.summary import shown_levels
from ablate.report.table import Column, Table, tabulate
from ablate.report.verdicts import holm
from ablate.report.wording import percent


@dataclass(frozen=True)
class TargetTest:
    """A one-sided t test of the mean of a row against a number.

    Attributes:
        levels: those of the row.
        n: the number of runs.
        low, high: the interval of the mean at 95 %, for this row alone; None with fewer
            than two runs, or without noise.
        p: the p value, adjusted for all rows by Holm.
        reaches: whether the mean is better than the number, at the stated level.
    """

    row: int
    levels: Mapping[str, Level | None]
    n: int
    mean: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    reaches: bool = False


def target_tests(
    results: StudyResults, target: float, level: float
) -> list[TargetTest]:
    """Returns for each row whether its mean is better than a number.

    A row with a run that has no result is not tested: the others may be survivors.

    Args:
        level: the probability that any row is wrongly said to be better.

    Raises:
        AblateError: the number is not finite.
    """
    if not math.isfinite(target):
        raise AblateError(f"a target is a finite number, found {target}")
    tests = []
    sign = 1 if results.direction == "max" else -1
    raw: dict[int, float] = {}
    for cell in results.cells:
        values = list(cell.values.values())
        test = TargetTest(
            row=cell.index,
            levels=shown_levels(cell),
            n=len(values),
            mean=mean_of(values) if values else None,
        )
        spread = sd_of(values) if len(values) > 1 else 0.0
        if values and spread > ROUNDING * max(map(abs, values)):
            mean, freedom = mean_of(values), len(values) - 1
            error = spread / math.sqrt(len(values))
            half = float(student.quantile(freedom, 1 - LEVEL / 2)) * error
            test = replace(test, low=mean - half, high=mean + half)
            if len(values) == len(cell.statuses):
                score = sign * (target - mean) / error
                raw[cell.index] = float(student.probability(freedom, score))
        tests.append(test)
    adjusted = dict(zip(raw, holm(list(raw.values()), len(tests)), strict=True))
    return [
        replace(
            test,
            p=adjusted.get(test.row),
            reaches=adjusted.get(test.row, 1.0) < level,
        )
        for test in tests
    ]


def _level_column(factor: str) -> Column[TargetTest]:
    return Column(factor, lambda test: test.levels.get(factor), heading=factor)


def target_table(results: StudyResults, target: float, level: float) -> Table:
    """Returns the tests as a table."""
    digits = results.metric.digits
    better = "above" if results.direction == "max" else "below"

    def interval(test: TargetTest) -> str:
        if test.mean is None:
            return ""
        mean = fixed(test.mean, digits)
        if test.low is None or test.high is None:
            return mean
        return f"{mean} ({fixed(test.low, digits)} to {fixed(test.high, digits)})"

    columns: list[Column[TargetTest]] = [
        Column("row", lambda test: test.row, heading="row", right=True, kind=int),
        *map(_level_column, results.factors),
        Column("n", lambda test: test.n, heading="n", right=True, kind=int),
        Column(
            "mean",
            lambda test: test.mean,
            heading=f"{results.metric.title} (95 % interval)",
            text=interval,
            right=True,
            kind=float | None,
        ),
        Column("low", lambda test: test.low, kind=float | None),
        Column("high", lambda test: test.high, kind=float | None),
        Column(
            "p",
            lambda test: test.p,
            heading="p (adj.)",
            text=lambda test: "" if test.p is None else f"{test.p:.4f}",
            right=True,
            kind=float | None,
        ),
        Column(
            "reaches",
            lambda test: test.reaches,
            heading="verdict",
            text=lambda test: f"{better} {target:g}" if test.reaches else "not shown",
            kind=bool,
        ),
    ]
    return tabulate(
        columns,
        target_tests(results, target, level),
        notes=[
            f"{results.metric.title} {better} {target:g}: one-sided t tests of the mean of"
            f" each row, at {percent(level)} for all rows (Holm)."
        ],
    )
