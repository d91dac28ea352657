"""The noise of rows with few seeds, estimated from all rows and calibrated.

With three seeds, a row alone says almost nothing about its own noise: two degrees of
freedom. The other rows say more, but only if their noise is like its own. This module
uses all rows, and holds its error rate while their noise varies as in real trainings.

How: rows are compared with the baseline by their differences, paired by seed. The
variance of a difference is half of the variance pooled over all cells, 0.3 of the row's
own and 0.2 of the baseline's; more than that if the row's own is more than twice the
pooled one, or the baseline's more than 1.7 times. So a row with unusual noise is judged
mostly by its own seeds.

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
OWN_EXCESS, OWN_USUAL = 2.3, 2.0
BASELINE_EXCESS, BASELINE_USUAL = 1.5, 1.7


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
    Noise(row=9.0, allowed=1.15),
    Noise(baseline=9.0, allowed=1.15),
    Noise(row=25.0, allowed=1.5),
    Noise(baseline=25.0, allowed=1.5),
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
    """

    mean: Array
    error: Array
    score: Array
    freedom: Array


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
    variance += OWN_EXCESS * np.maximum(by_row - OWN_USUAL * pooled, 0.0)
    variance += BASELINE_EXCESS * np.maximum(reference - BASELINE_USUAL * pooled, 0.0)
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
class Look:
    """Which results a look at a family of rows has, and what it may spend.

    Attributes:
        present: shape (rows, seeds): whether a row has a result at a seed. The rows of
            the family come first; the others only tell of the noise.
        baseline: the same of the baseline, shape (seeds,).
        tested: shape (family,): whether a row is tested. The other rows of the family
            count as if they had all seeds: they have no results yet, or got no further
            seeds because of what they showed.
        level: the probability of an error in all looks up to this one.
    """

    present: Array
    baseline: Array
    tested: Array
    level: float


@dataclass(frozen=True)
class Null:
    """The largest absolute score of a family in simulated studies without effects.

    Attributes:
        largest: sorted scores, shape (draws,), each the largest of its rank under any
            noise; infinite where an earlier look was wrong. Empty for a single row at
            its first look, whose score is Student's t.
        freedom: the degrees of freedom of a single row.
        share: what share of the level a single row has.
        more: how many times more rows there are than were simulated.
    """

    largest: Array
    freedom: int
    share: float
    more: float = 1.0

    @property
    def is_exact(self) -> bool:
        """Whether no simulation is needed."""
        return len(self.largest) == 0

    def p(self, score: float) -> float:
        """Returns the p value of a score, for all rows and looks."""
        if self.is_exact:
            tail = float(student.probability(self.freedom, -abs(score)))
            return min(1.0, 2 * tail / self.share)
        return self._p_of_largest(abs(score))

    def p_above(self, score: float) -> float:
        """Returns the p value of a signed score.

        With several rows, it is that of the absolute score: true differences can have
        both signs, and the common baseline then makes one of them large.
        """
        if self.is_exact:
            tail = float(student.probability(self.freedom, -score))
            return min(1.0, tail / self.share)
        return self._p_of_largest(score)

    def _p_of_largest(self, score: float) -> float:
        # The study itself counts as one of the draws, so that no p value is 0 (Phipson
        # and Smyth 2010).
        above = len(self.largest) - int(np.searchsorted(self.largest, score)) + 1
        return min(1.0, above / (len(self.largest) + 1) * self.more)

    def quantile(self, level: float) -> float:
        """Returns the absolute score whose p value is at most this level."""
        if self.is_exact:
            return float(student.quantile(self.freedom, 1 - level * self.share / 2))
        # As many draws as may be at or above the score.
        above = int(level / self.more * (len(self.largest) + 1)) - 1
        if above < 0:
            return math.inf
        return math.nextafter(float(self.largest[-1 - above]), math.inf)


def null_of(
    looks: Sequence[Look], share: float = 1.0, cap: float | None = None
) -> Null:
    """Returns the simulation for the looks at a family, up to the last one.

    Args:
        looks: with the same rows and seeds each. A row has at least the seeds of the
            look before.
        share: what share of the level the family has.
        cap: the same under the noises in which one row of the family is noisy. Only one
            row of a study can be the noisy one, so families may share the rest: the sum
            of their shares may be larger than 1.
    """
    family = len(looks[0].tested)
    last = looks[-1]
    counts = last.present[:family].sum(axis=1)
    # The tested row with the fewest seeds comes first: it is the one with the larger
    # noise.
    rest = np.arange(family, len(last.present))
    order = np.concatenate([np.lexsort((counts, ~last.tested)), rest])
    simulated = min(family, MOST_ROWS)
    order = np.concatenate([order[:simulated], order[family:]])[:MOST_ROWS]
    rows = np.concatenate(
        [np.concatenate([look.baseline[None], look.present[order]]) for look in looks]
    )
    # Seeds of the same rows are alike. Patterns with their numbers name a simulation, so
    # that studies of equal shape share it.
    patterns, repeats = np.unique(rows, axis=1, return_counts=True)
    largest = _simulated(
        tuple(tuple(map(bool, row)) for row in patterns),
        tuple(map(int, repeats)),
        tuple(tuple(map(bool, look.tested[order[:simulated]])) for look in looks),
        tuple(look.level for look in looks),
        share,
        share if cap is None else cap,
    )
    return Null(
        largest=largest,
        freedom=int(counts.max()) - 1,
        share=share,
        more=family / simulated,
    )


# A simulation takes less than a MB.
@lru_cache(maxsize=64)
def _simulated(
    patterns: tuple[tuple[bool, ...], ...],
    repeats: tuple[int, ...],
    tested: tuple[tuple[bool, ...], ...],
    levels: tuple[float, ...],
    share: float,
    cap: float,
) -> Array:
    """Returns `Null.largest`; the arguments are what it depends on."""
    number = len(tested)
    every = np.repeat(np.array(patterns, dtype=bool), repeats, axis=1)
    every = every.reshape(number, -1, every.shape[1])
    looks = [
        Look(
            present=present[1:],
            baseline=present[0],
            tested=np.array(which, dtype=bool),
            level=level,
        )
        for present, which, level in zip(every, tested, levels, strict=True)
    ]
    (first, *further) = looks
    seeds = first.present.any(axis=0)
    if not further and len(first.present) == 1 and not (first.baseline & ~seeds).any():
        return np.empty(0)
    # The levels of earlier looks decide which draws are left, and nothing else does.
    key = (
        f"looks {revision()} {patterns} {repeats} {tested} {levels[:-1]} {share} {cap}"
    )
    largest = kept.array(key, lambda: _largest_scores(looks, share, cap))
    # In double precision, as the scores that are looked up.
    return largest.astype(np.float64)


@cache_once
def revision(*more: str) -> str:
    """Returns what a simulation depends on besides its arguments.

    Args:
        more: files with code of the simulation, besides this module.
    """
    files = [Path(file) for file in (__file__, student.__file__, *more)]
    code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return f"{code} numpy {np.__version__}"


def _largest_scores(looks: Sequence[Look], share: float, cap: float) -> Array:
    """Simulates studies without effects; returns `Null.largest` in single precision."""
    rows, seeds = looks[0].present.shape
    size = (rows + 1) * seeds
    draws = int(np.clip(MOST_NUMBERS // size, LEAST_DRAWS, DRAWS))
    # In parts that fit into the cache of a processor.
    part = max(1, min(draws, 400_000 // size))
    # Where all rows have the same noise, a family of one row is as good as another one
    # with the same seeds.
    alike = np.zeros(rows, dtype=bool)
    alike[0] = True
    if len(looks[0].tested) == 1:
        alike = np.all(
            [(look.present == look.present[0]).all(axis=1) for look in looks], axis=0
        )
    # The same draws every time: a p value does not change when it is computed again.
    generator = np.random.default_rng(0)
    parts: list[list[Array]] = [[] for _ in NOISES]
    for start in range(0, draws, part):
        number = min(part, draws - start)
        values = generator.standard_normal((number, rows + 1, seeds))
        spread = generator.standard_normal((number, rows + 1, 1))
        for noise, of_noise in zip(NOISES, parts, strict=True):
            drawn = _drawn(values, spread, noise)
            only = alike if noise.row == 1 else alike & (np.arange(rows) == 0)
            of_noise.append(np.stack([_largest(drawn, look, only) for look in looks]))
    scores = [np.concatenate(part_of_noise, axis=1) for part_of_noise in parts]
    allowed = [noise.allowed * (cap if noise.row > 1 else share) for noise in NOISES]
    # What an earlier look finds is wrong already, whatever this one shows.
    wrong = [np.zeros(of_noise.shape[1], dtype=bool) for of_noise in scores]
    for number, look in enumerate(looks[:-1]):
        limit = Null(_left(scores, wrong, number, allowed), 0, share).quantile(
            look.level
        )
        for before, found in zip(wrong, scores, strict=True):
            before |= found[number] >= limit
    return _left(scores, wrong, len(looks) - 1, allowed).astype(np.float32)


def _left(
    scores: Sequence[Array],
    wrong: Sequence[Array],
    look: int,
    allowed: Sequence[float],
) -> Array:
    """Returns the sorted scores of a look; infinite where an earlier one was wrong."""
    left = [
        np.where(before, np.inf, found[look])
        for before, found in zip(wrong, scores, strict=True)
    ]
    return _worst(left, allowed)


def _drawn(values: Array, spread: Array, noise: Noise) -> Array:
    """Returns simulated results, shape (draws, rows + 1, seeds), the baseline first.

    The one noisy row is the first one.

    Args:
        values: standard normal, of the same shape.
        spread: standard normal, shape (draws, rows + 1, 1).
    """
    scale = np.exp(noise.spread / 2 * spread)
    scale[:, 0] *= math.sqrt(noise.baseline)
    scale[:, 1] *= math.sqrt(noise.row)
    drawn: Array = values * scale
    return drawn


def _largest(drawn: Array, look: Look, alike: Array) -> Array:
    """Returns the largest absolute score of the family at a look, shape (draws,).

    Args:
        alike: for a family of one row, the rows that are as good as it. Each has a
            score for each draw.
    """
    if len(look.tested) == 1 and look.tested[0]:
        scores = _scores(drawn, look.present, look.baseline)
        return np.abs(scores[:, alike]).ravel()
    tested = np.flatnonzero(look.tested)
    largest = np.zeros(len(drawn))
    if len(tested):
        scores = _scores(drawn, look.present, look.baseline)
        largest = np.abs(scores[:, tested]).max(axis=1)
    counted = np.flatnonzero(~look.tested)
    if len(counted):
        seeds = look.present.any(axis=0)
        full = np.broadcast_to(seeds, look.present.shape)
        scores = _scores(drawn, full, look.baseline)
        largest = np.maximum(largest, np.abs(scores[:, counted]).max(axis=1))
    return largest


def _scores(drawn: Array, present: Array, baseline: Array) -> Array:
    """Returns scores, shape (draws, rows); 0 for a row with fewer than two seeds."""
    rows = present.sum(axis=1) > 1
    scores = np.zeros((len(drawn), len(present)))
    scores[:, rows] = _standardised(drawn, present, baseline).score
    return scores


def scores_of(drawn: Array, look: Look) -> Standardised:
    """Returns simulated results as they are seen at a look, at which all rows have seeds.

    Args:
        drawn: shape (draws, rows + 1, seeds), the baseline first.
    """
    return _standardised(drawn, look.present, look.baseline)


def _standardised(drawn: Array, present: Array, baseline: Array) -> Standardised:
    rows = present.sum(axis=1) > 1
    seeds = present[rows].any(axis=0)
    base = drawn[:, 0]
    extra = None
    if (baseline & ~seeds).any():
        extra = Extra(shared=base[:, seeds], more=base[:, baseline & ~seeds])
    differences = drawn[:, 1:][:, rows][..., seeds] - base[:, None, seeds]
    return standardise(differences, present[rows][:, seeds], extra)


def _worst(scores: Sequence[Array], allowed: Sequence[float]) -> Array:
    """Returns sorted scores, each the largest of its rank under any noise.

    Args:
        scores: those under each noise, shape (draws,).
        allowed: the level under each noise, as a multiple of the level.
    """
    draws = max(map(len, scores))
    shares = np.arange(1, draws + 1) / draws
    worst = np.zeros(draws)
    for multiple, of_noise in zip(allowed, scores, strict=True):
        falling = np.sort(of_noise)[::-1]
        rank = (shares * multiple * len(falling) + 1e-9).astype(int)
        # Without a rank, no draw may be above the score.
        limit = np.where(rank > 0, falling[np.clip(rank, 1, len(falling)) - 1], np.inf)
        worst = np.maximum(worst, limit)
    return worst[::-1]


@dataclass(frozen=True)
class RowTest:
    """What the simulation shows of the difference of a row.

    Attributes:
        mean, low, high: the mean difference and its interval, for all rows and looks.
        error: the standard error of the mean.
        p: p value against no difference, of this row alone, by Student's t.
        p_adjusted: the same, adjusted for all rows and looks.
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
    """The rows of a family at a look, compared with one baseline.

    Attributes:
        found: their standardised differences; those of rows without a test are last.
        rows: the numbers of the tested rows.
        counts: the number of seeds of each row in `found`.
        null: the simulation.
        level: the probability of an error up to this look.
        size: the number of rows of the family, with those that are not tested.
        share, cap: see `null_of`.
    """

    found: Standardised
    rows: tuple[int, ...]
    counts: tuple[int, ...]
    null: Null
    level: float
    size: int
    share: float
    cap: float | None

    @property
    def pooled_freedom(self) -> int:
        """Degrees of freedom of the pooled variance."""
        return sum(self.counts) - len(self.counts)

    def freedom(self, place: int) -> float:
        """Returns the degrees of freedom of a row's variance (Satterthwaite 1946).

        Args:
            place: that of the row in `rows`.
        """
        degrees = float(self.found.freedom[place])
        if len(self.counts) == 1:
            return degrees
        return 1 / (POOLED**2 / self.pooled_freedom + (OWN**2 + BASELINE**2) / degrees)

    def tests(self, margin: float, level: float | None = None) -> list[RowTest | None]:
        """Returns the test of each row in `rows`; None if it has no noise.

        All intervals of the family, at all of its looks, contain the true differences
        with a probability of 1 minus the level. An interval excludes 0 exactly if the
        adjusted p value is below the level.

        Args:
            margin: the least difference that matters.
            level: that of the intervals; by default the level of the look.
        """
        found = self.found
        quantile = self.null.quantile(self.level if level is None else level)
        tests: list[RowTest | None] = []
        for place in range(len(self.rows)):
            mean, error = float(found.mean[place]), float(found.error[place])
            if error == 0:
                tests.append(None)
                continue
            # The smaller of two one-sided tests decides (Schuirmann 1987).
            within = (margin - abs(mean)) / error
            own = student.probability(self.freedom(place), -abs(mean) / error)
            test = RowTest(
                mean=mean,
                low=mean - quantile * error,
                high=mean + quantile * error,
                error=error,
                p=2 * float(own),
                p_adjusted=self.null.p(mean / error),
                p_same=self.null.p_above(within),
            )
            tests.append(test)
        return tests


def family_of(
    values: Array, looks: Sequence[Look], share: float = 1.0, cap: float | None = None
) -> Family | None:
    """Compares the rows of a family with a baseline, paired by seed.

    Returns None if there is no noise to measure: no row is tested, or the differences
    of each row are all equal.

    Args:
        values: shape (rows + 1, seeds), the baseline first.
        looks: those at the family so far. The last one says which values count.
        share, cap: see `null_of`.
    """
    look = looks[-1]
    tested = np.flatnonzero(look.tested)
    if not len(tested):
        return None
    counts = look.present.sum(axis=1)
    others = np.setdiff1d(np.flatnonzero(counts > 1), tested)
    order = np.concatenate([tested, others])
    present = look.present[order]
    seeds = present.any(axis=0)
    present = present[:, seeds]
    baseline = values[0, seeds]
    rows = np.where(present, values[1:][order][:, seeds], np.nan)
    differences, dust = rows - baseline, _dust(baseline, rows)
    # Squares of very large numbers have no float.
    scale = scale_of(differences[present])
    more = None
    if (look.baseline & ~seeds).any():
        extra = values[0, look.baseline & ~seeds]
        more = Extra(shared=baseline, more=extra).in_units_of(scale)
    found = standardise(differences / scale, present, more)
    exact = found.error <= dust / scale
    if exact[: len(tested)].all():
        return None
    found = replace(
        found,
        mean=found.mean * scale,
        error=np.where(exact, 0.0, found.error * scale),
        score=np.where(exact, 0.0, found.score),
    )
    return Family(
        found=found,
        rows=tuple(map(int, tested)),
        counts=tuple(map(int, counts[order])),
        null=null_of(looks, share, cap),
        level=look.level,
        size=len(look.tested),
        share=share,
        cap=cap,
    )


def pooled_sd(baseline: Array, rows: Array) -> float | None:
    """Returns the standard deviation of a single training, pooled over all cells.

    Seeds are blocks. None if there is no noise to measure.

    Args:
        baseline: shape (seeds,).
        rows: shape (rows, seeds); nan: the row has no value at that seed. Each row has
            at least two.
    """
    if not len(rows):
        return None
    differences = rows - baseline
    present = ~np.isnan(rows)
    scale = scale_of(differences[present])
    sd = scale * float(np.sqrt(variances(differences / scale, present).pooled / 2))
    return sd if sd > _dust(baseline, rows) else None


def _dust(baseline: Array, rows: Array) -> float:
    """Returns the spread that is rounding: accuracies that are equal on paper differ in
    their last bits.
    """
    largest = max(float(np.nanmax(np.abs(rows))), float(np.abs(baseline).max()))
    return ROUNDING * largest
