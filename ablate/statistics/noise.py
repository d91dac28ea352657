"""The noise of rows with few seeds, estimated from all rows and calibrated.

With three seeds, a row alone says almost nothing about its own noise: two degrees of
freedom. The other rows say more, but only if their noise is like its own. This module
uses all rows, and holds its error rate while their noise varies as in real trainings.

How: rows are compared with the baseline by their differences, paired by seed. The
variance of a difference is half of the variance pooled over all cells, 0.3 of the row's
own and 0.2 of the baseline's, plus twice what the row's own or the baseline's exceeds
twice the pooled one. So a row with unusual noise is judged mostly by its own seeds.

The baseline may have more seeds than the rows (`Extra`). Its mean is then two thirds of
the mean over all of its seeds, which has less noise, and one third of the mean over the
seeds that a row shares with it, which pairs. The weights are fixed in advance: with few
seeds, estimated ones find fewer differences.

The p values come from a simulation, not from a table. It draws studies without effects,
with as many rows and seeds as the study has, under each noise of a fixed set (`NOISES`).
A p value is the share of such studies in which some row is as extreme, under the noise
of the set for which it is largest. This is a single-step maximum-statistic adjustment
(Westfall and Young, Resampling-Based Multiple Testing, 1993): the rows form one family,
and their correlation through the common baseline is part of the simulation.

What would break it: using means of the rows in the choice of a variance (the simulation
has no effects), or treating data and simulation by different code. Both go through
`standardise`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache as cache_once
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ablate.statistics import kept, student
from ablate.statistics.numbers import scale_of

Array = np.ndarray[Any, Any]

# The shares of the pooled variance, the row's own and the baseline's, and how much more
# counts what one of the last two exceeds a multiple of the pooled one. Chosen by power
# at three to twelve seeds; the error rate does not depend on them (docs/statistics.md).
POOLED, OWN, BASELINE = 0.5, 0.3, 0.2
EXCESS, UNUSUAL = 2.0, 2.0


@dataclass(frozen=True)
class Noise:
    """A noise that is simulated.

    Attributes:
        baseline, row: the variances of the baseline and of one row, as multiples of that
            of the other cells.
        spread: the standard deviation of the logarithm of the variances of all cells.
        allowed: the probability of an error under this noise, as a multiple of the level.
    """

    baseline: float = 1.0
    row: float = 1.0
    spread: float = 0.0
    allowed: float = 1.0


# In stored trainings and in public logs, the logarithm of the variance has a standard
# deviation of 0.4 to 0.6 over rows; 9 times the variance is rare, 25 times an accident.
NOISES = (
    Noise(),
    Noise(spread=1.0),
    Noise(row=4.0),
    Noise(baseline=4.0),
    Noise(row=9.0),
    Noise(baseline=9.0),
    Noise(row=25.0, allowed=1.4),
    Noise(baseline=25.0, allowed=1.4),
)
# The share of the mean over all seeds in the mean of a reference with extra seeds.
ALL_SEEDS = 2 / 3
# Simulated studies per noise. Large families have fewer, within the limit on numbers.
DRAWS = 20_000
LEAST_DRAWS = 5_000
MOST_NUMBERS = 1_500_000
# The most rows that are simulated together.
MOST_ROWS = 200
# A relative spread below this is rounding error: four units in the last place of a number
# in single precision, in which many losses are computed.
ROUNDING = 5e-7


@dataclass(frozen=True)
class Extra:
    """The values of a reference that has more seeds than the rows.

    Attributes:
        shared: the values at the seeds of the rows, shape (..., seeds).
        more: the values at its other seeds, shape (..., extra seeds).
    """

    shared: Array
    more: Array

    @property
    def variance(self) -> Array:
        """The variance of a training of the reference, with that of its seed."""
        values = np.concatenate([self.shared, self.more], axis=-1)
        variance: Array = values.var(axis=-1, ddof=1)
        return variance

    def in_units_of(self, scale: float) -> Extra:
        """Returns the values around their mean, divided by a scale."""
        centre = self.shared.mean(axis=-1, keepdims=True)
        return Extra(
            shared=(self.shared - centre) / scale,
            more=(self.more - centre) / scale,
        )


@dataclass(frozen=True)
class Standardised:
    """Differences to a reference in units of their standard error.

    Each array has the shape (..., rows).

    Attributes:
        mean: the mean difference over the seeds that a row shares with the baseline.
        error: its standard error.
        score: `mean / error`.
        freedom: the degrees of freedom of a row's own standard error.
        sd: the standard deviation of a single training, pooled over all cells, shape
            (...).
    """

    mean: Array
    error: Array
    score: Array
    freedom: Array
    sd: Array


def standardise(
    differences: Array, present: Array, extra: Extra | None = None
) -> Standardised:
    """Standardises differences, of a study or of many simulated ones.

    Args:
        differences: shape (..., rows, seeds), row minus reference.
        present: shape (rows, seeds), which differences exist. Each row has at least
            two.
        extra: the values of a reference that has more seeds.
    """
    noise = variances(differences, present)
    counts = noise.counts
    means, by_row = noise.means, noise.by_row
    pooled = noise.pooled[..., None]
    reference = noise.reference[..., None]
    rest = np.zeros(())
    if extra is not None:
        weight = _weight(extra, counts)
        means = means + weight * _shift(extra, present)
        # What is left of the reference by seed, if it counts less.
        left = differences + weight[:, None] * extra.shared[..., None, :]
        by_row = variances(left, present).by_row
        total = extra.variance[..., None]
        pooled = _with_less_of_reference(pooled / 2, total, weight)
        reference = _with_less_of_reference(reference / 2, total, weight)
        rest = weight**2 * total / extra.more.shape[-1]
    variance = POOLED * pooled + OWN * by_row + BASELINE * reference
    for own in (by_row, reference):
        variance = variance + EXCESS * np.maximum(own - UNUSUAL * pooled, 0.0)
    if len(counts) == 1:
        # Without other rows, all three are the same.
        variance = by_row
    error = np.sqrt(variance / counts + rest)
    own_freedom = np.broadcast_to(counts - 1.0, error.shape)
    if extra is not None:
        own_freedom = _satterthwaite(
            (by_row / counts, counts - 1.0),
            (rest, extra.shared.shape[-1] + extra.more.shape[-1] - 1.0),
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = means / error
    # Rounded accuracies can be equal by chance: no noise is no information.
    ratio = np.where(error > 0, ratio, 0.0)
    return Standardised(
        mean=means,
        error=error,
        score=ratio,
        freedom=own_freedom,
        sd=np.sqrt(noise.pooled / 2),
    )


def _weight(extra: Extra, counts: Array) -> Array:
    """Returns the weight of the extra seeds in the mean of the reference, by row."""
    more = extra.more.shape[-1]
    weight: Array = ALL_SEEDS * more / (counts + more)
    return weight


def _shift(extra: Extra, present: Array) -> Array:
    """Returns by how much extra seeds with a weight of 1 change each difference."""
    shared = np.where(present, extra.shared[..., None, :], 0.0).sum(axis=-1)
    shift: Array = shared / present.sum(axis=1) - extra.more.mean(axis=-1)[..., None]
    return shift


def _with_less_of_reference(training: Array, total: Array, weight: Array) -> Array:
    """Returns the variance of a row minus the reference with a weight below 1.

    Args:
        training: the variance of a training, without that of its seed.
        total: the same with that of its seed.
        weight: that of the extra seeds.
    """
    seed = np.maximum(total - training, 0.0)
    variance: Array = training * (1 + (1 - weight) ** 2) + weight**2 * seed
    return variance


def _satterthwaite(*parts: tuple[Array, Array | float]) -> Array:
    """Returns the degrees of freedom of a sum of variances (Satterthwaite 1946).

    Args:
        parts: each variance with its degrees of freedom.
    """
    total = sum(variance for variance, _ in parts)
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = total**2 / sum(variance**2 / own for variance, own in parts)
    # Without any noise there is no test.
    return np.where(total > 0, degrees, 1.0)


@dataclass(frozen=True)
class Variances:
    """The noise of differences, estimated in three ways.

    Attributes:
        means: the mean difference of each row, shape (..., rows).
        by_row: the variance of a difference by the row alone, shape (..., rows).
        pooled: by all cells, with seeds as blocks, shape (...).
        reference: by the baseline against the mean of the rows, shape (...).
        counts: the number of seeds of each row.
        seeds: the number of seeds that some row has.
        freedom: the degrees of freedom of `pooled`.
    """

    means: Array
    by_row: Array
    pooled: Array
    reference: Array
    counts: Array
    seeds: int
    freedom: int


def variances(differences: Array, present: Array) -> Variances:
    """Returns the noise of differences; arguments as for `standardise`."""
    counts = present.sum(axis=1)
    means = np.where(present, differences, 0.0).sum(axis=-1) / counts
    centred = np.where(present, differences - means[..., None], 0.0)
    by_row = (centred**2).sum(axis=-1) / (counts - 1)

    # What the rows have in common, seed by seed, comes from the reference.
    rows = present.sum(axis=0)
    used = rows > 0
    common = centred.sum(axis=-2)[..., used]
    rows = rows[used]
    freedom = int(counts.sum()) - len(counts)
    squares = (centred**2).sum(axis=(-2, -1)) - (common**2 / (rows + 1)).sum(axis=-1)
    shared = ((common / rows) ** 2 * rows / (rows + 1)).sum(axis=-1)
    return Variances(
        means=means,
        by_row=by_row,
        pooled=2 * squares / freedom,
        reference=2 * shared / max(len(rows) - 1, 1),
        counts=counts,
        seeds=len(rows),
        freedom=freedom,
    )


@dataclass(frozen=True)
class Null:
    """The largest absolute score of all rows in simulated studies without effects.

    Attributes:
        largest: sorted scores, shape (draws,), each the largest of its rank under any
            noise. Empty for a single row, whose score is Student's t.
        freedom: the degrees of freedom of a single row.
        rows: the number of rows that are simulated.
    """

    largest: Array
    freedom: int
    rows: int = 1

    @property
    def is_exact(self) -> bool:
        """Whether there is a single row, so that no simulation is needed."""
        return len(self.largest) == 0

    def p(self, score: float, rows: int) -> float:
        """Returns the p value of the largest absolute score of so many rows."""
        if self.is_exact:
            return min(1.0, 2 * rows * self._tail(abs(score)))
        return self._p_of_largest(abs(score), rows)

    def p_above(self, score: float, rows: int) -> float:
        """Returns the p value of the largest signed score of so many rows.

        With several rows, it is that of the largest absolute score: true differences
        can have both signs, and the common baseline then makes one of them large.
        """
        if self.is_exact:
            return min(1.0, rows * self._tail(score))
        return self._p_of_largest(score, rows)

    def _tail(self, score: float) -> float:
        return float(student.probability(self.freedom, -score))

    def _p_of_largest(self, score: float, rows: int) -> float:
        # Bonferroni for more rows than are simulated.
        return min(1.0, _share_above(self.largest, score) * rows / self.rows)

    def quantile(self, level: float, rows: int) -> float:
        """Returns the absolute score whose p value is at most this level."""
        level *= self.rows / rows
        if self.is_exact:
            return float(student.quantile(self.freedom, 1 - level / 2))
        # As many draws as may be at or above the score.
        above = int(level * (len(self.largest) + 1)) - 1
        if above < 0:
            return math.inf
        return math.nextafter(float(self.largest[-1 - above]), math.inf)


def _share_above(scores: Array, score: float) -> float:
    """Returns the share of draws at or above a score, under the worst noise.

    The study itself counts as one of the draws, so that no p value is 0 (Phipson and
    Smyth 2010).
    """
    above = len(scores) - int(np.searchsorted(scores, score))
    return (above + 1) / (len(scores) + 1)


def null_of(
    present: Array, tested: int | None = None, given_up: int = 0, extra: int = 0
) -> Null:
    """Returns the simulation for a pattern of seeds.

    Args:
        present: shape (rows, seeds).
        tested: the number of rows that are tested, by default all.
        given_up: the number of rows after them that got no further seeds at an earlier
            look. They count as if they had all seeds. Further rows only tell of the
            noise.
        extra: the number of seeds that only the reference has.
    """
    # The tested row with the fewest seeds comes first: it is the one with the larger
    # noise.
    counts = present.sum(axis=1)
    tested = len(counts) if tested is None else tested
    number = np.arange(len(counts))
    kind = (number >= tested).astype(int) + (number >= tested + given_up)
    order = np.lexsort((counts, kind))[:MOST_ROWS]
    simulated = present[order]
    complete = tuple(map(int, np.flatnonzero(kind[order] == 1)))
    # Seeds of the same rows are alike. Patterns with their numbers name a simulation, so
    # that studies of equal shape share it.
    seeds, repeats = np.unique(simulated, axis=1, return_counts=True)
    patterns = tuple(tuple(map(bool, row)) for row in seeds)
    return _simulated(patterns, tuple(map(int, repeats)), complete, extra)


# A simulation takes up to 8 MB.
@lru_cache(maxsize=16)
def _simulated(
    patterns: tuple[tuple[bool, ...], ...],
    repeats: tuple[int, ...],
    complete: tuple[int, ...],
    extra: int,
) -> Null:
    present = np.repeat(np.array(patterns, dtype=bool), repeats, axis=1)
    freedom = int(present.sum()) - len(present)
    if len(present) == 1 and not extra:
        return Null(largest=np.empty(0), freedom=freedom)
    key = f"noise {revision()} {patterns} {repeats} {complete} {extra}"
    largest = kept.array(key, lambda: _largest_scores(present, complete, extra))
    # In double precision, as the scores that are looked up.
    return Null(largest=largest.astype(np.float64), freedom=freedom, rows=len(present))


@cache_once
def revision(*more: str) -> str:
    """Returns what a simulation depends on besides its arguments.

    Args:
        more: files with code of the simulation, besides this module.
    """
    files = [Path(file) for file in (__file__, student.__file__, *more)]
    code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return f"{code} numpy {np.__version__}"


def _largest_scores(present: Array, complete: Sequence[int], extra: int) -> Array:
    """Simulates studies without effects; returns `Null.largest` in single precision.

    Args:
        complete: rows whose scores are those that they have with all seeds.
        extra: the number of seeds that only the reference has.
    """
    rows, seeds = present.shape
    seeds += extra
    size = (rows + 1) * seeds
    draws = int(np.clip(MOST_NUMBERS // size, LEAST_DRAWS, DRAWS))
    # In parts that fit into the cache of a processor.
    part = max(1, min(draws, 400_000 // size))
    # The same draws every time: a p value does not change when it is computed again.
    generator = np.random.default_rng(0)
    largest = []
    for start in range(0, draws, part):
        number = min(part, draws - start)
        values = generator.standard_normal((number, rows + 1, seeds))
        spread = generator.standard_normal((number, rows + 1, 1))
        scores = np.empty((len(NOISES), number))
        for noise, of_noise in zip(NOISES, scores, strict=True):
            drawn = _drawn(values, spread, noise)
            of_rows = np.abs(_scores(drawn, present))
            if complete:
                full = _scores(drawn, np.ones_like(present))
                of_rows[:, complete] = np.abs(full[:, complete])
            of_noise[:] = of_rows.max(axis=-1)
        largest.append(scores)
    return _worst(np.concatenate(largest, axis=1)).astype(np.float32)


def _drawn(values: Array, spread: Array, noise: Noise) -> Array:
    """Returns simulated results, shape (draws, rows + 1, seeds), the baseline first.

    The one noisy row is that with the fewest seeds, whose own variance is known least.

    Args:
        values: standard normal, of the same shape.
        spread: standard normal, shape (draws, rows + 1, 1).
    """
    scale = np.exp(noise.spread / 2 * spread)
    scale[:, 0] *= math.sqrt(noise.baseline)
    scale[:, 1] *= math.sqrt(noise.row)
    drawn: Array = values * scale
    return drawn


def _scores(drawn: Array, present: Array) -> Array:
    """Returns scores, shape (draws, rows)."""
    seeds = present.shape[1]
    base = drawn[:, 0]
    extra = None
    if base.shape[1] > seeds:
        extra = Extra(shared=base[:, :seeds], more=base[:, seeds:])
    differences = drawn[:, 1:, :seeds] - base[:, None, :seeds]
    return standardise(differences, present, extra).score


def _worst(scores: Array) -> Array:
    """Returns sorted scores, each the largest of its rank under any noise.

    Under a noise that allows a multiple of the level, a score has the rank of that
    multiple.

    Args:
        scores: shape (noises, draws).
    """
    scores = np.sort(scores, axis=1)[:, ::-1]
    draws = scores.shape[1]
    ranks = np.arange(draws)
    worst = np.zeros(draws)
    for noise, of_noise in zip(NOISES, scores, strict=True):
        rank = np.minimum((ranks + 1) * noise.allowed, draws).astype(int) - 1
        worst = np.maximum(worst, of_noise[rank])
    return worst[::-1]


@dataclass(frozen=True)
class RowTest:
    """What the simulation shows of the difference of a row.

    Attributes:
        mean, low, high: the mean difference and its interval.
        error: the standard error of the mean.
        p: p value against no difference, of this row alone, by Student's t.
        p_adjusted: the same, adjusted for all rows.
        p_same: p value against a difference of at least the margin, adjusted.
    """

    mean: float
    low: float
    high: float
    error: float
    p: float
    p_adjusted: float
    p_same: float


@dataclass(frozen=True)
class Family:
    """The rows of a study, compared with one reference.

    Attributes:
        found: their standardised differences.
        counts: the number of seeds of each row.
        null: the simulation for this pattern of seeds.
        planned: the number of rows that are tested for a difference in all, with those
            that are not in this family.
        planned_same: the same for rows that are tested for no difference.
        tested: the number of rows that are tested.
        given_up: the number of rows after them that got no further seeds at an earlier
            look. They count as if they had all seeds. Further rows only tell of the
            noise.
    """

    found: Standardised
    counts: tuple[int, ...]
    null: Null
    planned: int
    planned_same: int
    tested: int
    given_up: int = 0

    @property
    def pooled_freedom(self) -> int:
        """Degrees of freedom of the pooled variance."""
        return sum(self.counts) - len(self.counts)

    def freedom(self, row: int) -> float:
        """Returns the degrees of freedom of a row's variance (Satterthwaite 1946)."""
        degrees = float(self.found.freedom[row])
        if len(self.counts) == 1:
            return degrees
        return 1 / (POOLED**2 / self.pooled_freedom + (OWN**2 + BASELINE**2) / degrees)

    @property
    def _rows(self) -> int:
        return self.tested + self.given_up

    def quantile(self, level: float) -> float:
        """Returns how many standard errors a difference must have at this level."""
        return self.null.quantile(level * self._rows / self.planned, self._rows)

    def tests(self, margin: float, level: float) -> list[RowTest | None]:
        """Returns the test of each row; None if it has no noise.

        All intervals of the family together contain the true differences with a
        probability of 1 minus the level. An interval excludes 0 exactly if the p value
        of the row is below the level.

        Args:
            margin: the least difference that matters.
            level: that of the intervals, all together.
        """
        found = self.found
        quantile = self.quantile(level)
        tests: list[RowTest | None] = []
        for row in range(self.tested):
            mean, error = float(found.mean[row]), float(found.error[row])
            if error == 0:
                tests.append(None)
                continue
            # The smaller of two one-sided tests decides (Schuirmann 1987).
            within = (margin - abs(mean)) / error
            differs = self.null.p(mean / error, self._rows)
            same = self.null.p_above(within, self._rows)
            own = -abs(mean) / error
            test = RowTest(
                mean=mean,
                low=mean - quantile * error,
                high=mean + quantile * error,
                error=error,
                p=2 * float(student.probability(self.freedom(row), own)),
                # Bonferroni for the rows that are not in this family.
                p_adjusted=min(1.0, differs * self.planned / self._rows),
                p_same=min(1.0, same * self.planned_same / self._rows),
            )
            tests.append(test)
        return tests


def family_of(
    baseline: Array,
    rows: Array,
    planned: int,
    planned_same: int | None = None,
    others: Array | None = None,
    given_up: Array | None = None,
    extra: Sequence[float] = (),
) -> Family | None:
    """Compares rows with a baseline, paired by seed.

    Returns None if there is no noise to measure: there is no row, or the differences of
    each row are all equal.

    Args:
        baseline: shape (seeds,).
        rows: shape (rows, seeds); nan: the row has no value at that seed. Each row
            shares at least two seeds with the baseline.
        planned: the number of rows that are tested for a difference in all, with those
            that have no values yet.
        planned_same: the same for the test for no difference; by default `planned`.
        others: rows that are not tested. Only their noise counts.
        given_up: rows that got no further seeds at an earlier look.
        extra: values of the baseline at seeds that no row has.
    """
    if not len(rows):
        return None
    none = np.empty((0, len(baseline)))
    given_up = none if given_up is None else given_up
    others = none if others is None else others
    values = np.concatenate([rows, given_up, others])
    differences, present, dust = _differences(baseline, values)
    # Squares of very large numbers have no float.
    scale = scale_of(differences[present])
    more = None
    if extra:
        more = Extra(shared=baseline, more=np.array(extra)).in_units_of(scale)
    drawn = standardise(differences / scale, present, more)
    exact = drawn.error <= dust / scale
    if exact[: len(rows)].all():
        return None
    drawn = replace(
        drawn,
        mean=drawn.mean * scale,
        error=np.where(exact, 0.0, drawn.error * scale),
        score=np.where(exact, 0.0, drawn.score),
        sd=drawn.sd * scale,
    )
    return Family(
        found=drawn,
        counts=tuple(map(int, present.sum(axis=1))),
        null=null_of(present, len(rows), len(given_up), len(extra)),
        planned=planned,
        planned_same=planned if planned_same is None else planned_same,
        tested=len(rows),
        given_up=len(given_up),
    )


def pooled_sd(baseline: Array, rows: Array) -> float | None:
    """Returns the standard deviation of a single training, pooled over all cells.

    Seeds are blocks. None if there is no noise to measure.

    Args:
        baseline, rows: as for `family_of`.
    """
    if not len(rows):
        return None
    differences, present, dust = _differences(baseline, rows)
    scale = scale_of(differences[present])
    sd = scale * float(np.sqrt(variances(differences / scale, present).pooled / 2))
    return sd if sd > dust else None


def _differences(baseline: Array, rows: Array) -> tuple[Array, Array, float]:
    """Returns differences and which exist, shape (rows, seeds), and what is rounding.

    Accuracies that are equal on paper differ in their last bits.
    """
    largest = max(float(np.nanmax(np.abs(rows))), float(np.abs(baseline).max()))
    return rows - baseline, ~np.isnan(rows), ROUNDING * largest
