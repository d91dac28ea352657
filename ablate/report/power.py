"""The difference that a number of seeds finds, before anything is trained."""

from __future__ import annotations

import math

import numpy as np

from ablate.machine import cache
from ablate.records import StudyResults
from ablate.report import student, verdicts
from ablate.report.noise import (
    ALONE_GAIN,
    MOST_ROWS,
    null_of,
    pooled_sd,
    revision,
    standardise,
)

# The probability with which a difference is found.
POWER = 0.8
# Simulated numbers; more rows and seeds have fewer draws.
MOST_NUMBERS = 1_000_000


def detectable(rows: int, seeds: int, level: float, power: float = POWER) -> float:
    """Returns the least difference of a row that is found with this probability.

    The unit is the standard deviation of a single training, which is equal in all
    cells. One row has the difference, the others have none.

    Args:
        rows: the number of rows that are compared with row 0.
        seeds: of each row, at least 2.
        level: of the test, such as 0.04 (`verdicts.level_of_look`).
    """
    rules = revision(__file__, verdicts.__file__)
    key = f"power {rules} {rows} {seeds} {power} {level}"
    sizes = cache.array(key, lambda: np.array(_detectable(rows, seeds, power, level)))
    return float(sizes)


def detectable_alone(seeds: int, level: float, power: float = POWER) -> float:
    """Returns the same for a row that is the first primary comparison.

    It is tested by Student's paired t, whose power follows the noncentral t.

    Args:
        seeds: of the row and of row 0, at least 2.
        level: as for `detectable`.
    """
    from scipy import optimize, stats

    freedom = seeds - 1
    limit = float(student.quantile(freedom, 1 - level / 2))

    def missing(size: float) -> float:
        probability = stats.nct.sf(limit, freedom, size * math.sqrt(seeds / 2))
        return power - float(probability)

    largest = 1.0
    while missing(largest) > 0:
        largest *= 2
    return float(optimize.brentq(missing, 0.0, largest))


def _detectable(rows: int, seeds: int, power: float, level: float) -> float:
    present = np.ones((rows, seeds), dtype=bool)
    null = null_of(present)
    limit = null.quantile(level, rows)
    if not math.isfinite(limit):
        # The simulation has too few draws for this level, so no p value gets below it.
        return math.inf
    generator = np.random.default_rng(1)
    simulated = min(rows, MOST_ROWS)
    draws = max(500, MOST_NUMBERS // ((simulated + 1) * seeds))
    noise = generator.standard_normal((min(draws, 20_000), simulated + 1, seeds))
    drawn = standardise(noise[:, 1:] - noise[:, :1], present[:simulated])
    tail = ALONE_GAIN * float(student.probability(null.freedom, -limit))
    limit_alone = -float(student.quantile(seeds - 1, tail))
    limits = np.where(drawn.alone[:, 0], limit_alone, limit)
    # A difference moves the mean, and nothing else.
    needed = limits * drawn.error[:, 0] - drawn.mean[:, 0]
    return float(np.quantile(needed, power))


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
    return pooled_sd(reference.values, rows)
