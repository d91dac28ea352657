"""Estimates the chance that further seeds give a conclusive verdict."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ablate.statistics import spending, student
from ablate.statistics.noise import Family, null_of
from ablate.statistics.power import complete_look

# The largest number of further seeds that is worth suggesting.
MOST = 200
DRAWS = 1000
# The chance that is even in truth, by the number of seeds: with few of them, undecided
# rows are often those whose noise looks smaller than it is. Chosen by simulation
# (`decided_by_further` in benchmarks/trust.py).
EVEN = {2: 0.65, 3: 0.58, 4: 0.52}
EVEN_WITH_MORE = 0.48
# At so many numbers of seeds, and for so many rows, scores are simulated. Beyond the
# largest number they change by less than 3 %.
SIZES = 4
LARGEST_SIZE = 40
MOST_ROWS = 20

Array = np.ndarray[Any, Any]


def seeds_needed(family: Family, place: int, margin: float) -> int:
    """Returns the least number of further seeds that is enough.

    Enough is an even chance of a conclusive verdict. Returns one more than `MOST` if
    that many are not enough.

    Args:
        place: that of the row in `family.rows`.
    """
    even = EVEN.get(family.counts[place], EVEN_WITH_MORE)
    enough = np.flatnonzero(chances(family, place, margin) >= even)
    if len(enough):
        return int(enough[0]) + 1
    return MOST + 1


def runs_needed(
    difference: float,
    variances: tuple[float, float],
    counts: tuple[int, int],
    margin: float,
    level: float,
) -> int:
    """Returns how many further runs of both rows would decide an unpaired comparison.

    They would, if means and variances stay as they are. Returns one more than `MOST` if
    that many are not enough.

    Args:
        difference: of the means of the two rows.
        variances: of a run, for each row.
        counts: the number of runs of each row.
    """
    for more in range(1, MOST + 1):
        sizes = [count + more for count in counts]
        error = math.sqrt(
            sum(v / size for v, size in zip(variances, sizes, strict=True))
        )
        freedom = min(sizes) - 1
        differs = float(student.quantile(freedom, 1 - level / 2)) * error
        same = float(student.quantile(freedom, 1 - level)) * error
        if abs(difference) > differs or abs(difference) + same < margin:
            return more
    return MOST + 1


def chances(family: Family, place: int, margin: float) -> Array:
    """Returns the probability of a verdict after 1 to `MOST` further seeds.

    It simulates possible outcomes. Each draws a mean and a variance from their
    posterior given the seeds so far, under the usual flat prior (Student's t and scaled
    inverse chi-squared; Gelman et al., Bayesian Data Analysis, 3.2), and then further
    differences. Each outcome is tested as the study will be: whether the mean differs
    from 0 or stays within the margin. Equal arguments give equal numbers.
    """
    n = family.counts[place]
    # In units of the standard deviation of a difference, as it is estimated now.
    sd = float(family.found.error[place]) * math.sqrt(n)
    means, errors = _futures(n, family.freedom(place))
    distance = np.abs(means + float(family.found.mean[place]) / sd)
    limit = _critical(family.size, n, n + 1, n + MOST, family.share, family.cap)
    seeds: Array = (
        (distance / errors > limit) | ((margin / sd - distance) / errors > limit)
    ).mean(axis=0)
    return seeds


@lru_cache(maxsize=16)
def _futures(n: int, freedom: float) -> tuple[Array, Array]:
    """Returns simulated means of a row after further seeds, and their standard errors.

    Both have the shape (draws, further seeds). The means are deviations from that of now,
    and the unit is the standard deviation of now. All rows with equally many seeds and
    degrees of freedom have the same.

    Args:
        n: the number of seeds so far.
        freedom: the degrees of freedom of the variance.
    """
    generator = np.random.default_rng(0)
    variance = (freedom / generator.chisquare(freedom, DRAWS))[:, None]
    centre = generator.standard_normal((DRAWS, 1)) / math.sqrt(n)
    more = np.arange(1, MOST + 1)
    size = n + more
    sums = centre * more + generator.standard_normal((DRAWS, MOST)).cumsum(axis=1)
    # The degrees of freedom grow with the seeds.
    added = freedom * more / (n - 1)
    squares = freedom + variance * generator.chisquare(added, (DRAWS, MOST))
    means = np.sqrt(variance) * sums / size
    errors = np.sqrt(squares / (freedom + added) / size)
    return means, errors


def chance_at(family: Family, place: int, margin: float, seeds: int) -> float:
    """Returns the probability of a verdict at a larger number of seeds.

    The noise of the row is taken to be as it is estimated now: `chances` also counts
    that it may be larger, and so gives up too many rows whose first seeds look noisy.
    The mean at that number is then a Student's t around the mean so far.

    Args:
        place: that of the row in `family.rows`.
        seeds: the number, which is larger than the number so far.
    """
    n = family.counts[place]
    sd = float(family.found.error[place]) * math.sqrt(n)
    mean = abs(float(family.found.mean[place]))
    (score,) = _critical(family.size, n, seeds, seeds, family.share, family.cap)
    limit = float(score) * sd / math.sqrt(seeds)
    spread = sd * math.sqrt(1 / n - 1 / seeds)

    def below(value: float) -> float:
        degrees = family.freedom(place)
        return float(student.probability(degrees, (value - mean) / spread))

    chance = 1 - below(limit) + below(-limit)
    inside = margin - limit
    if inside > 0:
        chance += below(min(inside, limit)) - below(-min(inside, limit))
    return chance


@lru_cache(maxsize=64)
def _critical(
    rows: int, now: int, first: int, last: int, share: float, cap: float | None
) -> Array:
    """Returns the scores that will give a verdict, by the number of seeds.

    They are an array over the numbers from the first to the last. They are simulated
    for a few numbers of seeds, in which all rows have equally many, and interpolated
    between them.

    Args:
        rows: the number of rows of the family.
        now: the number of seeds at the present look.
    """
    size = np.arange(first, last + 1)
    simulated = min(rows, MOST_ROWS)
    # Scores are nearly straight lines over the reciprocal of the degrees of freedom.
    largest = max(size[0], min(size[-1], LARGEST_SIZE))
    known = np.unique(np.geomspace(size[0], largest, SIZES).round().astype(int))[::-1]
    scores = []
    for number in map(int, known):
        looks = [complete_look(simulated, each, number) for each in (now, number)]
        level = spending.spent(number) * simulated / rows
        found = null_of(looks, share, cap).quantile(level)
        if not math.isfinite(found):
            # A simulation has too few draws for a very small level.
            tail = (level - spending.spent(now) * simulated / rows) * share / rows / 2
            found = float(student.quantile(rows * (number - 1), 1 - tail))
        scores.append(found)
    return np.interp(1 / (size - 1), 1 / (known - 1), scores)
