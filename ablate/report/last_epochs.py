"""How much less a mean over the last epochs differs from seed to seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ablate.records import Metric
from ablate.statistics import student

# The number of epochs that is tried.
EPOCHS = 5
# A smaller gain is not worth another metric, and one this improbable may be chance.
MOST_SHARE = 0.8
LEVEL = 0.05

Values = Mapping[int, Mapping[int, float]]
Array = np.ndarray[Any, Any]


def variance_share(last: Values, mean: Values) -> tuple[float, float] | None:
    """Returns the share of the variance that a mean over the last epochs leaves.

    The variance is that of a training, with seeds as blocks, as differences paired by
    seed see it. Also returns a one-sided p value against no gain: two variances of the
    same trainings are equal if their sum and difference are uncorrelated (Pitman 1939;
    Morgan 1939).

    Args:
        last, mean: values by row and seed. Only rows with the same seeds as row 0 count.

    Returns None with fewer than two such rows or three seeds, or without any spread.
    """
    seeds = sorted(last.get(0, {}).keys() & mean.get(0, {}).keys())
    # A folded row has no values of its own.
    both = last.keys() & mean.keys()
    rows = [row for row in last if row in both]
    rows = [row for row in rows if {*seeds} <= last[row].keys() & mean[row].keys()]
    freedom = (len(rows) - 1) * (len(seeds) - 1)
    if len(seeds) < 3 or freedom < 3:
        return None
    single = _residuals(last, rows, seeds)
    averaged = _residuals(mean, rows, seeds)
    variance, left = float((single**2).sum()), float((averaged**2).sum())
    if variance == 0 or left == 0:
        return None
    total, change = single + averaged, single - averaged
    size = math.sqrt(float((total**2).sum() * (change**2).sum()))
    if size == 0:
        return None
    correlation = min(float((total * change).sum()) / size, 1 - 1e-12)
    score = correlation * math.sqrt((freedom - 1) / (1 - correlation**2))
    return left / variance, float(student.probability(freedom - 1, -score))


def last_epochs_note(metric: Metric, last: Values, mean: Values) -> list[str]:
    """Returns a note if a mean over the last epochs needs clearly fewer seeds."""
    share = variance_share(last, mean)
    if share is None or share[0] > MOST_SHARE or share[1] >= LEVEL:
        return []
    return [
        f"The mean over the last {EPOCHS} epochs has {100 * share[0]:.0f} % of the"
        f" variance of the last epoch, so that about as large a share of the seeds"
        f" suffices. For another study: metric: {{{metric.name}: {{over: {EPOCHS}}}}}"
    ]


def _residuals(values: Values, rows: list[int], seeds: list[int]) -> Array:
    """Returns what rows and seeds do not explain, shape (rows, seeds)."""
    table = np.array([[values[row][seed] for seed in seeds] for row in rows])
    table = table - table.mean(axis=1, keepdims=True)
    residuals: Array = table - table.mean(axis=0, keepdims=True)
    return residuals
