"""Whether the runs of each row are better than a given number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from scipy.stats import binom

from ablate.errors import AblateError
from ablate.records import LEVEL, CellResult, Level, StudyResults
from ablate.report.numbers import fixed, p_text
from ablate.report.summary import shown_levels
from ablate.report.table import Column, Table, tabulate
from ablate.report.wording import percent
from ablate.statistics import student
from ablate.statistics.noise import ROUNDING
from ablate.statistics.numbers import mean_of, sd_of
from ablate.statistics.verdicts import holm


@dataclass(frozen=True)
class TargetTest:
    """Two tests of the runs of a row against a number.

    Attributes:
        levels: those of the row.
        n: the number of runs, with those that have no result.
        reached: how many runs are better than the number. One without a result is not.
        p: of the exact sign test: the probability of so many runs, if each is better
            with probability one half at most. It holds for any noise.
        mean: None without a result.
        low, high: the interval of the mean at 95 %, for this row alone, if results are
            normal; None with fewer than two runs, or without noise.
        p_mean: of the one-sided t test of the mean, if results are normal; None if a run
            has no result, as the others may be survivors.
        reaches: whether p is below the stated level: most runs are better.

    Both p values are adjusted for all rows by Holm.
    """

    row: int
    levels: Mapping[str, Level | None]
    n: int
    reached: int
    p: float
    mean: float | None
    low: float | None = None
    high: float | None = None
    p_mean: float | None = None
    reaches: bool = False


def target_tests(
    results: StudyResults, target: float, level: float
) -> list[TargetTest]:
    """Returns for each row whether its runs are better than a number.

    Args:
        level: the probability that any row is wrongly said to be better.

    Raises:
        AblateError: the number is not finite.
    """
    if not math.isfinite(target):
        raise AblateError(f"a target is a finite number, found {target}")
    sign = 1 if results.direction == "max" else -1
    tests = [_test(cell, sign, target) for cell in results.cells]
    by_sign = holm([test.p for test in tests], len(tests))
    means = {test.row: test.p_mean for test in tests if test.p_mean is not None}
    by_mean = dict(zip(means, holm(list(means.values()), len(tests)), strict=True))
    return [
        replace(test, p=float(p), p_mean=by_mean.get(test.row), reaches=bool(p < level))
        for test, p in zip(tests, by_sign, strict=True)
    ]


def _test(cell: CellResult, sign: int, target: float) -> TargetTest:
    """Returns the tests of one row, with p values of their own."""
    values = list(cell.values.values())
    runs = len(cell.statuses)
    reached = sum(sign * value > sign * target for value in values)
    test = TargetTest(
        row=cell.index,
        levels=shown_levels(cell),
        n=runs,
        reached=reached,
        p=float(binom.sf(reached - 1, runs, 0.5)),
        mean=mean_of(values) if values else None,
    )
    spread = sd_of(values) if len(values) > 1 else 0.0
    if not values or spread <= ROUNDING * max(map(abs, values)):
        return test
    mean, freedom = mean_of(values), len(values) - 1
    error = spread / math.sqrt(len(values))
    half = float(student.quantile(freedom, 1 - LEVEL / 2)) * error
    test = replace(test, low=mean - half, high=mean + half)
    if len(values) < runs:
        return test
    score = sign * (target - mean) / error
    return replace(test, p_mean=float(student.probability(freedom, score)))


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
        Column("n", lambda test: test.n, kind=int),
        Column(
            "reached",
            lambda test: test.reached,
            heading=f"{better} {target:g}",
            text=lambda test: f"{test.reached} of {test.n}",
            right=True,
            kind=int,
        ),
        Column(
            "p",
            lambda test: test.p,
            heading="p (sign, adj.)",
            text=lambda test: p_text(test.p),
            right=True,
            kind=float,
        ),
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
            "p_mean",
            lambda test: test.p_mean,
            heading="p (t, adj.)",
            text=lambda test: p_text(test.p_mean),
            right=True,
            kind=float | None,
        ),
        Column(
            "reaches",
            lambda test: test.reaches,
            heading="verdict",
            text=lambda test: (
                f"most {better} {target:g}" if test.reaches else "not shown"
            ),
            kind=bool,
        ),
    ]
    return tabulate(
        columns,
        target_tests(results, target, level),
        notes=[
            f"Verdict: whether most runs of a row are {better} {target:g}, by an exact sign"
            f" test at {percent(level)} for all rows (Holm); it holds for any noise, and"
            " needs five runs at least.",
            "p (t): one-sided t test of the mean. It holds if results are normal; rare bad"
            " or skewed runs make it too small, and few runs cannot show them.",
        ],
    )
