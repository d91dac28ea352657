"""The effect of a row along sizes: at each one, its trend, and what it is worth.

Each row is compared with row 0 of its size, paired by seed. The noise of a difference is
modelled as the noise of its size times the noise of its row: the variance of row r at
size k is s_k t_r, fitted to the sample variances by maximum likelihood (a gamma model
with a logarithmic link). So a row with few seeds borrows from its other sizes and from
the other rows of its size. A row stands alone at a size if its own variance there is
larger than the fitted one by more than chance explains in `USUAL` of all cells.

The study's level is divided. A part of `1 - TREND_SHARE` is for the sizes: at each size,
each row is tested at a `rows x sizes` part of it (Bonferroni). That a row helps at
*every* size is an intersection-union test: each size at the row's full part (Berger
1982), which is no larger than the parts of its sizes together. The rest is for the
trends.

`make bench-across` measures the error rates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.records import LEVEL, Across, Level, StudyResults
from ablate.report.effect import Effect, compared
from ablate.report.effects import effects, level_of
from ablate.report.verdicts import (
    Estimate,
    Judged,
    Verdict,
    Withheld,
    rescaled,
    verdict_of,
)
from ablate.statistics import student
from ablate.statistics.noise import ROUNDING

Array = np.ndarray[Any, Any]

# The part of the level that is for trends. Chosen by power (docs/statistics.md).
TREND_SHARE = 0.25
# The share of sample variances with normal noise that are below the threshold from which
# on a row stands alone. Chosen by simulation of structured noise (`make bench-across`).
USUAL = 0.87
# Steps of the fit; it converges in fewer.
FITTING_STEPS = 30
# The level of the interval of an equal compute, for a row at a size alone.
EQUAL_LEVEL = 0.05
# The compute of row 0 is looked for at so many points between two sizes.
POINTS = 500


@dataclass(frozen=True)
class Size:
    """One size of a ladder.

    Attributes:
        across: the ladder, and which of its sizes this is.
        results: those of the study of this size.
        position: where it lies on the axis, in units that double.
        margin: the least difference that matters, as the space declares it.
    """

    across: Across
    results: StudyResults
    position: float
    margin: float

    @property
    def doublings(self) -> float:
        """The position on a scale on which a doubling is 1."""
        return math.log2(self.position)


@dataclass(frozen=True)
class Equal:
    """By which factor the axis of row 0 must grow until row 0 is as good as a row.

    Attributes:
        factor: None beyond the ladder.
        low, high: its interval at 95 %, for this row and size alone; None beyond the
            ladder.
    """

    factor: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class AtSize:
    """The effect of a row at one size.

    Attributes:
        size: as the document has it.
        position: where it lies on the axis.
        mean: the mean difference from row 0; None without a common seed.
        n: the seeds that both have.
        estimate: with an interval that holds for all rows and sizes at once; None
            without noise to measure.
        judged: adjusted p values and the verdict.
        equal: None if it cannot be computed.
    """

    size: Level
    position: float
    mean: float | None
    n: int
    estimate: Estimate | None = None
    judged: Judged | None = None
    equal: Equal | None = None

    @property
    def verdict(self) -> Verdict:
        return self.judged.verdict if self.judged else Verdict.INCONCLUSIVE


@dataclass(frozen=True)
class RowAcross:
    """The effect of a row along all sizes.

    Attributes:
        row: its number.
        changed: the levels in which it differs from row 0.
        at: the effect at each size, by position.
        trend: the change of the effect per doubling, with an interval that holds for
            all rows at once.
        has_trend: whether the trend is not 0.
        every: `helps` or `hurts`, if it does so at every size.
        withheld: why there is no verdict.
    """

    row: int
    changed: Mapping[str, Level | None]
    labels: Mapping[str, str]
    at: tuple[AtSize, ...]
    trend: Estimate | None = None
    has_trend: bool = False
    every: Verdict = Verdict.INCONCLUSIVE
    withheld: Withheld | None = None


def rows_across(sizes: Sequence[Size], margin: float) -> list[RowAcross]:
    """Returns the effect of each row along the sizes.

    Args:
        sizes: all sizes of a ladder.
        margin: the least difference that matters.
    """
    sizes = sorted(sizes, key=lambda size: size.position)
    by_row = [
        {effect.row: effect for effect in effects(size.results, margin)}
        for size in sizes
    ]
    numbers = [row for row in by_row[0] if all(row in rows for rows in by_row)]
    if not numbers:
        return []
    rows = {row: [rows[row] for rows in by_row] for row in numbers}
    tested, family = family_of_sizes(sizes)
    # A ladder is a family: rows that have no noise yet, or that were left out, count.
    planned = len(numbers)
    level = min(level_of(size.results) for size in sizes)
    whole = []
    for row in numbers:
        described = _described(sizes, rows[row])
        if family is not None and row in tested:
            whole.append(
                _judged(
                    described,
                    family,
                    tested.index(row),
                    sizes,
                    _Level(level=level, rows=planned, margin=margin),
                )
            )
            continue
        whole.append(described)
    return whole


def family_of_sizes(sizes: Sequence[Size]) -> tuple[list[int], Family | None]:
    """Returns the rows that have noise to measure at each size, and their differences.

    Args:
        sizes: all sizes of a ladder, by position.
    """
    rows = [
        cell.index
        for cell in sizes[0].results.cells[1:]
        if cell.same_as is None
        and cell.role in ("variant", "baseline")
        and _has_noise(sizes, cell.index)
    ]
    if not rows:
        return [], None
    return rows, Family.of([_differences(sizes, row) for row in rows])


@dataclass(frozen=True)
class _Level:
    """What a ladder may use of its level, and what its tests ask.

    Attributes:
        level: the probability of a false verdict; 0: there is no verdict.
        rows: the number of all rows that are compared.
        margin: the least difference that matters.
    """

    level: float
    rows: int
    margin: float

    @property
    def of_row(self) -> float:
        """What a row may use at all of its sizes together."""
        return (self.level or LEVEL) * (1 - TREND_SHARE) / self.rows

    @property
    def of_trend(self) -> float:
        """What the trend of a row may use."""
        return (self.level or LEVEL) * TREND_SHARE / self.rows


@dataclass(frozen=True)
class Family:
    """The differences of all rows at all sizes; arrays of rows by sizes.

    Attributes:
        mean: the mean difference.
        error: its standard error.
        freedom: the degrees of freedom of the standard error.
    """

    mean: Array
    error: Array
    freedom: Array

    @classmethod
    def of(cls, differences: Sequence[Sequence[Array]]) -> Family:
        """Returns the family of rows, each with its differences by seed at each size."""
        mean = np.array([[d.mean() for d in row] for row in differences])
        variance = np.array([[d.var(ddof=1) for d in row] for row in differences])
        count = np.array([[len(d) for d in row] for row in differences])
        fitted, freedom = fitted_variance(variance, count - 1)
        return cls(mean, np.sqrt(fitted / count), freedom)


def fitted_variance(variance: Array, freedom: Array) -> tuple[Array, Array]:
    """Returns the variance of each row at each size, from all of them.

    Args:
        variance: the sample variances, shape (..., rows, sizes).
        freedom: their degrees of freedom, of the same shape.

    Returns:
        the fitted variances and their degrees of freedom, of the same shape.
    """
    rows, sizes = variance.shape[-2:]
    of_row = variance.mean(axis=-1, keepdims=True)
    of_size = np.ones_like(variance[..., :1, :])
    for _ in range(FITTING_STEPS):
        of_size = (variance / of_row * freedom).sum(axis=-2, keepdims=True)
        of_size = of_size / freedom.sum(axis=-2, keepdims=True)
        of_row = (variance / of_size * freedom).sum(axis=-1, keepdims=True)
        of_row = of_row / freedom.sum(axis=-1, keepdims=True)
    fitted = of_row * of_size
    # All rows share row 0, so their variances are correlated: they count as fewer.
    independent = 3 * rows / (rows + 2)
    gained = independent * sizes / (independent + sizes - 1)
    alone = variance > _threshold(freedom) * fitted
    least = freedom.min(axis=(-2, -1), keepdims=True) * np.ones_like(freedom)
    return (
        np.where(alone, variance, fitted),
        np.where(alone, freedom, least * gained),
    )


def _threshold(freedom: Array) -> Array:
    """Returns the ratio of a sample variance to the true one that is not usual."""
    from scipy import special

    # The quantile of chi-squared, over its mean.
    quantile: Array = special.chdtri(freedom, 1 - USUAL) / freedom
    return quantile


def slope_weights(doublings: Array) -> Array:
    """Returns the weights of the effects in the slope of the least-squares line."""
    centred = doublings - doublings.mean()
    weights: Array = centred / (centred**2).sum()
    return weights


def _differences(sizes: Sequence[Size], row: int) -> list[Array]:
    """Returns the differences of a row to row 0, by seed, at each size."""
    by_size = []
    for size in sizes:
        cell, reference = size.results.cells[row], size.results.cells[0]
        seeds = sorted(cell.values.keys() & reference.values.keys())
        by_size.append(
            np.array([cell.values[seed] - reference.values[seed] for seed in seeds])
        )
    return by_size


def _has_noise(sizes: Sequence[Size], row: int) -> bool:
    """Whether a row has two differences or more at each size, which are not all equal."""
    for size, differences in zip(sizes, _differences(sizes, row), strict=True):
        if len(differences) < 2:
            return False
        largest = max(abs(value) for value in size.results.cells[0].values.values())
        if differences.std() <= ROUNDING * largest:
            return False
    return True


def _described(sizes: Sequence[Size], by_size: Sequence[Effect]) -> RowAcross:
    """Returns a row with its mean differences, and without a test."""
    withheld = [
        effect.withheld
        for effect in by_size
        if effect.withheld not in (None, Withheld.ACROSS)
    ]
    at = []
    for size, effect in zip(sizes, by_size, strict=True):
        cells = size.results.cells
        at.append(
            AtSize(
                size=size.across.size,
                position=size.position,
                mean=compared(cells[effect.row], cells[0]).mean,
                n=len(effect.seeds),
            )
        )
    return RowAcross(
        row=by_size[0].row,
        changed=by_size[0].changed,
        labels=by_size[0].labels,
        at=tuple(at),
        withheld=withheld[0] if withheld else None,
    )


def _judged(
    row: RowAcross, family: Family, number: int, sizes: Sequence[Size], may: _Level
) -> RowAcross:
    """Returns a row with its tests.

    Args:
        number: that of the row in the family.
    """
    direction = sizes[0].results.direction
    withheld = row.withheld
    if may.level == 0:
        withheld = withheld or Withheld.KNOWN
    tests = may.rows * len(sizes)
    # What the sizes of all rows may use together.
    whole = may.of_row * may.rows
    at, p_values = [], []
    for place, size in enumerate(row.at):
        mean, error, freedom = (
            float(array[number, place])
            for array in (family.mean, family.error, family.freedom)
        )
        estimate = Estimate.of(mean, error, freedom).at(whole / tests)
        p_values.append(estimate.p)
        p = min(1.0, estimate.p * tests)
        p_same = min(1.0, estimate.p_same(may.margin) * tests)
        verdict = verdict_of(mean, direction, p, p_same, whole)
        judged = Judged(
            p=rescaled(p, whole),
            p_same=rescaled(p_same, whole),
            verdict=Verdict.INCONCLUSIVE if withheld else verdict,
            level=whole / tests,
            withheld=withheld,
        )
        at.append(
            AtSize(
                size=size.size,
                position=size.position,
                mean=mean,
                n=size.n,
                estimate=estimate,
                judged=judged,
                equal=_equal(sizes, row.row, place),
            )
        )
    trend = _trend(family, number, sizes, may)
    every = Verdict.INCONCLUSIVE
    means = family.mean[number]
    if max(p_values) < may.of_row and (all(means > 0) or all(means < 0)):
        every = verdict_of(means[0], direction, 0.0, 1.0, 1.0)
    return RowAcross(
        row=row.row,
        changed=row.changed,
        labels=row.labels,
        at=tuple(at),
        trend=trend,
        has_trend=not withheld and trend.p < may.of_trend,
        every=Verdict.INCONCLUSIVE if withheld else every,
        withheld=withheld,
    )


def _trend(family: Family, number: int, sizes: Sequence[Size], may: _Level) -> Estimate:
    """Returns the slope of the effect of a row, per doubling."""
    weights = slope_weights(np.array([size.doublings for size in sizes]))
    parts = (weights * family.error[number]) ** 2
    # Satterthwaite (1946).
    freedom = parts.sum() ** 2 / (parts**2 / family.freedom[number]).sum()
    return Estimate.of(
        float(weights @ family.mean[number]),
        float(np.sqrt(parts.sum())),
        float(freedom),
    ).at(may.of_trend)


def _equal(sizes: Sequence[Size], row: int, place: int) -> Equal | None:
    """Returns by which factor row 0 must grow to be as good as a row at a size.

    Between two sizes, row 0 is not known. It lies in a band: between the chord of both
    sizes and the extended chord of the sizes beside them, as every convex curve does and
    every concave one, such as a power law with a floor. The interval has all points at
    which the row and this band do not differ: a test that is inverted, so that a flat
    line gives a wide interval, and not a wrong number. Each test is Student's t over the
    differences by seed. Row 0 is taken to improve with size, so an end is known only if
    row 0 is clearly worse than the row at the smallest size, or clearly better at the
    largest one.

    None if the sizes do not have two seeds in common.
    """
    cell = sizes[place].results.cells[row]
    references = [size.results.cells[0].values for size in sizes]
    seeds = sorted(set(cell.values).intersection(*references))
    if len(seeds) < 2:
        return None
    of_row = np.array([cell.values[seed] for seed in seeds])
    of_row_0 = np.array([[values[seed] for seed in seeds] for values in references])
    doublings = np.array([size.doublings for size in sizes])
    points = np.unique(
        np.concatenate(
            [
                np.linspace(left, right, POINTS)
                for left, right in itertools.pairwise(doublings)
            ]
        )
    )
    quantile = float(student.quantile(len(seeds) - 1, 1 - EQUAL_LEVEL / 2))
    sign = 1 if sizes[0].results.direction == "max" else -1
    better, worse = np.ones((2, len(points)), bool)
    curves = _curves_of_row_0(points, doublings, of_row_0)
    for curve in curves:
        gap = sign * (of_row[None, :] - curve)
        half = quantile * gap.std(axis=1, ddof=1) / math.sqrt(len(seeds))
        better &= gap.mean(axis=1) - half > 0
        worse &= gap.mean(axis=1) + half < 0
    # In the middle of the band.
    mean = of_row.mean() - (curves[0] + curves[1]).mean(axis=1) / 2
    here = doublings[place]
    # One test after the other from each end, until one does not reject. The ends are the
    # last points that reject, as they lie between these and the next ones.
    last = len(points) - 1
    low = last if better.all() else max(0, int(np.argmin(better)) - 1)
    high = 0 if worse.all() else min(last, last + 1 - int(np.argmin(worse[::-1])))
    low, high = min(low, high), max(low, high)
    is_above = float(of_row.mean() - of_row_0[place].mean()) > 0
    is_better = is_above == (sizes[0].results.direction == "max")
    # A better row is reached at a larger size, and a worse one at a smaller size.
    on_its_side = points >= here if is_better else points <= here
    crossings = np.flatnonzero(np.diff(np.sign(mean)) != 0)
    crossings = crossings[on_its_side[crossings] & on_its_side[crossings + 1]]
    factor = None
    if len(crossings):
        # The crossing that is nearest to the size of the row.
        nearest = crossings[np.abs(points[crossings] - here).argmin()]
        factor = float(2 ** (points[nearest] - here))
    return Equal(
        factor=factor,
        low=float(2 ** (points[low] - here)) if better[0] else None,
        high=float(2 ** (points[high] - here)) if worse[-1] else None,
    )


def _curves_of_row_0(points: Array, doublings: Array, values: Array) -> list[Array]:
    """Returns curves between which row 0 lies: the chords, and the edges of the band.

    Args:
        points: where, in doublings, (points).
        doublings: where the sizes are, (sizes).
        values: of row 0 by size and seed, (sizes, seeds).

    Returns:
        arrays of shape (points, seeds). The second one is the extended chord that is
        nearer to the chord. The third is the other one if it is on the other side.
    """
    last = len(doublings) - 2
    place = np.clip(np.searchsorted(doublings, points, side="right") - 1, 0, last)
    slopes = np.diff(values, axis=0) / np.diff(doublings)[:, None]

    def line(through: Array, slope: Array) -> Array:
        distance = (points - doublings[through])[:, None]
        extended: Array = values[through] + slopes[slope] * distance
        return extended

    chord = line(place, place)
    if last == 0:
        # With two sizes, nothing is known of how it bends: it lies between both.
        return [chord, values[place], values[place + 1]]
    from_left = line(place, np.maximum(place - 1, 0))
    from_right = line(place + 1, np.minimum(place + 1, last))
    # At the ends of the ladder, there is one neighbour.
    from_left = np.where((place == 0)[:, None], from_right, from_left)
    from_right = np.where((place == last)[:, None], from_left, from_right)
    # At a size, row 0 is known.
    is_size = np.isin(points, doublings)[:, None]
    from_left, from_right = (
        np.where(is_size, chord, each) for each in (from_left, from_right)
    )
    left, right = ((each - chord).mean(axis=1) for each in (from_left, from_right))
    is_nearer = (np.abs(left) <= np.abs(right))[:, None]
    nearer = np.where(is_nearer, from_left, from_right)
    farther = np.where(is_nearer, from_right, from_left)
    return [chord, nearer, np.where((left * right < 0)[:, None], farther, nearer)]
