"""The difference that a number of seeds finds, before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ablate.statistics import kept, spending
from ablate.statistics.noise import (
    MOST_ROWS,
    Look,
    null_of,
    revision,
    scores_of,
)

Array = np.ndarray[Any, Any]
# The probability with which a difference is found.
POWER = 0.8
# Simulated numbers; more rows and seeds have fewer draws.
MOST_NUMBERS = 1_000_000


def complete_look(
    rows: int, seeds: int, columns: int, baseline: int = 0, others: int = 0
) -> Look:
    """Returns a look at which all rows of a family have the same seeds.

    Args:
        rows: of the family.
        seeds: of each row.
        columns: the largest number of seeds at any look.
        baseline: the number of seeds of the baseline; 0: that of the rows.
        others: rows beside the family, which tell of the noise.
    """
    number = np.arange(columns)
    of_baseline = max(baseline, seeds)
    return Look(
        present=np.broadcast_to(number < seeds, (rows + others, columns)),
        baseline=number < of_baseline,
        tested=np.ones(rows, dtype=bool),
        level=spending.spent(spending.seeds_of(seeds, of_baseline)),
    )


def detectable(
    rows: int,
    seeds: Sequence[int],
    *,
    baseline: int = 0,
    others: int = 0,
    share: float = spending.FIRST,
    cap: float | None = None,
    power: float = POWER,
) -> float:
    """Returns the least difference of a row that is found with this probability.

    The unit is the standard deviation of a single training, which is equal in all
    cells. One row has the difference, the others have none.

    Args:
        rows: the number of rows of the family.
        seeds: of each row, at least 2, at each look.
        baseline: the number of seeds of the baseline; 0: that of the rows. More are
            worth the most if a seed does not shift all rows alike, which is what is
            simulated.
        others: rows beside the family, which tell of the noise.
        share, cap: see `noise.null_of`.
    """
    needed = _needed(rows, tuple(seeds), baseline, others, share, cap)
    return float(np.quantile(needed, power))


def power_of(
    difference: float,
    rows: int,
    seeds: Sequence[int],
    *,
    baseline: int = 0,
    others: int = 0,
    share: float = spending.FIRST,
    cap: float | None = None,
) -> float:
    """Returns the probability with which a difference is found; see `detectable`."""
    needed = _needed(rows, tuple(seeds), baseline, others, share, cap)
    return float((needed < difference).mean())


def _needed(
    rows: int,
    seeds: tuple[int, ...],
    baseline: int,
    others: int,
    share: float,
    cap: float | None,
) -> Array:
    """Returns the least difference that each of many simulated studies finds."""
    rows = min(rows, MOST_ROWS)
    columns = max(*seeds, baseline)
    looks = [complete_look(rows, each, columns, baseline, others) for each in seeds]
    arguments = f"{rows} {seeds} {baseline} {others} {share} {cap}"
    code = revision(__file__, spending.__file__)

    def make() -> Array:
        generator = np.random.default_rng(1)
        size = (rows + others + 1) * columns
        draws = int(np.clip(MOST_NUMBERS // size, 500, 20_000))
        drawn = generator.standard_normal((draws, rows + others + 1, columns))
        needed = np.full(draws, np.inf)
        for number, look in enumerate(looks):
            limit = null_of(looks[: number + 1], share, cap).quantile(look.level)
            found = scores_of(drawn, look)
            # A difference moves the mean, and nothing else.
            needed = np.minimum(needed, limit * found.error[:, 0] - found.mean[:, 0])
        return needed.astype(np.float32)

    return kept.array(f"power {code} {arguments}", make)
