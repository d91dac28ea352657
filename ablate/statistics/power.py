"""The difference that a number of seeds finds, before anything is trained."""

from __future__ import annotations

import math

import numpy as np

from ablate.statistics import kept, student
from ablate.statistics.noise import (
    MOST_ROWS,
    Extra,
    null_of,
    revision,
    standardise,
)

# The probability with which a difference is found.
POWER = 0.8
# Simulated numbers; more rows and seeds have fewer draws.
MOST_NUMBERS = 1_000_000


def detectable(
    rows: int, seeds: int, level: float, power: float = POWER, extra: int = 0
) -> float:
    """Returns the least difference of a row that is found with this probability.

    The unit is the standard deviation of a single training, which is equal in all
    cells. One row has the difference, the others have none.

    Args:
        rows: the number of rows that are compared with row 0.
        seeds: of each row, at least 2.
        level: of the test, such as 0.04.
        extra: the number of seeds that only row 0 has. They are worth the most if a
            seed does not shift all rows alike, which is what is simulated.
    """
    rules = revision(__file__)
    key = f"power {rules} {rows} {seeds} {power} {level} {extra}"
    sizes = kept.array(
        key, lambda: np.array(_detectable(rows, seeds, power, level, extra))
    )
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


def _detectable(rows: int, seeds: int, power: float, level: float, extra: int) -> float:
    present = np.ones((rows, seeds), dtype=bool)
    null = null_of(present, extra=extra)
    limit = null.quantile(level, rows)
    if not math.isfinite(limit):
        # The simulation has too few draws for this level, so no p value gets below it.
        return math.inf
    generator = np.random.default_rng(1)
    simulated = min(rows, MOST_ROWS)
    every = seeds + extra
    draws = max(500, MOST_NUMBERS // ((simulated + 1) * every))
    noise = generator.standard_normal((min(draws, 20_000), simulated + 1, every))
    more = None
    if extra:
        more = Extra(shared=noise[:, 0, :seeds], more=noise[:, 0, seeds:])
    noise = noise[..., :seeds]
    drawn = standardise(noise[:, 1:] - noise[:, :1], present[:simulated], more)
    # A difference moves the mean, and nothing else.
    needed = limit * drawn.error[:, 0] - drawn.mean[:, 0]
    return float(np.quantile(needed, power))
