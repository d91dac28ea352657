"""The rows of a study as the arrays that `ablate.statistics` takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ablate.machine import cache
from ablate.records import LEVEL, StudyResults
from ablate.statistics import kept, noise
from ablate.statistics.noise import Family

Array = np.ndarray[Any, Any]
# Simulations are in the user's cache folder.
kept.keep_with(cache.array)


def family_of(
    baseline: Mapping[int, float],
    compared: Sequence[Mapping[int, float]],
    rows: int | None = None,
    share: float = 1.0,
) -> Family | None:
    """Compares rows, values by seed, with a baseline, at one look with the whole level.

    Args:
        rows: the number of rows of the family, with those that have no values.
        share: see `ablate.statistics.noise.null_of`.
    """
    seeds = _shared_seeds(baseline, compared)
    of_baseline = [baseline[seed] for seed in seeds]
    values = np.vstack([of_baseline, _by_seed(compared, seeds)])
    present = ~np.isnan(values)
    missing = (rows or len(compared)) - len(compared)
    empty = np.zeros((missing, len(seeds)), dtype=bool)
    look = noise.Look(
        present=np.concatenate([present[1:], empty]),
        baseline=present[0],
        tested=np.arange(len(compared) + missing) < len(compared),
        level=LEVEL,
    )
    filled = np.concatenate([values, np.full(empty.shape, np.nan)])
    return noise.family_of(filled, [look], share)


def sd_of_training(results: StudyResults) -> float | None:
    """Returns the standard deviation of a single training, pooled over all cells.

    Seeds are blocks. None if there are not two seeds with values in two cells.
    """
    reference, *others = results.cells
    rows = [
        cell.values
        for cell in others
        if cell.same_as is None
        and cell.role != "control"
        and len(set(cell.values) & set(reference.values)) > 1
    ]
    seeds = _shared_seeds(reference.values, rows)
    baseline = np.array([reference.values[seed] for seed in seeds])
    return noise.pooled_sd(baseline, _by_seed(rows, seeds))


def _shared_seeds(
    baseline: Mapping[int, float], rows: Sequence[Mapping[int, float]]
) -> list[int]:
    """Returns the seeds that the baseline and some row have."""
    return sorted(set(baseline).intersection(set().union(*rows)))


def _by_seed(rows: Sequence[Mapping[int, float]], seeds: Sequence[int]) -> Array:
    """Returns values by row and seed; nan where there is none."""
    values = [[row.get(seed, math.nan) for seed in seeds] for row in rows]
    return np.array(values).reshape(len(rows), len(seeds))
