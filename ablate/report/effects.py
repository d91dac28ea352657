"""The effect of a cell: paired differences to the reference, and what they show.

Seeds are blocks: a seed determines initialisation, data order and augmentation of every
cell alike, so differences are taken seed by seed. The rows of a study form one family:
their noise is estimated together, and in a study without any effect, the probability
that some row says `helps` or `hurts` is at most 5 % (`report/noise.py`). Comparisons
with controls have a reference each; they use Student's paired t, adjusted by Holm.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablate.records import (
    RESOLVED,
    CellResult,
    Cost,
    Direction,
    Level,
    Looks,
    Status,
    StudyResults,
)
from ablate.report.noise import ROUNDING, Family, RowTest, family_of
from ablate.report.seeds_needed import seeds_needed
from ablate.report.summary import shown_levels
from ablate.report.verdicts import (
    LEVEL,
    Estimate,
    Judged,
    Verdict,
    judge,
    level_of_look,
    verdict_of,
)


@dataclass(frozen=True)
class Effect:
    """The difference of a cell to the reference, in units of the metric.

    Attributes:
        row, against: the cell and the cell that it is compared with.
        changed: the levels in which the cell differs from the reference; None if its
            model does not read the factor.
        seeds: the seeds that both have completed.
        mean: mean of the differences; None without any.
        estimate: None with fewer than two seeds, or if all differences are equal, as
            there is no spread to test against.
        judged: adjusted p values and verdict.
        further: number of further seeds that give an even chance of a verdict; more
            than `seeds_needed.MOST` if that many are not enough; None if there is a
            verdict or no estimate.
        alone: whether the noise of the row is so unusual that only its own seeds count.
        left_out: number of seeds without a value, by state; no mean includes them.
        cost, reference_cost: the costs of both.
    """

    row: int
    against: int
    changed: Mapping[str, Level | None]
    seeds: tuple[int, ...]
    mean: float | None = None
    estimate: Estimate | None = None
    judged: Judged | None = None
    further: int | None = None
    alone: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)
    cost: Cost | None = None
    reference_cost: Cost | None = None

    @property
    def delta_flops(self) -> int | None:
        """FLOPs of the cell minus FLOPs of the reference; None if unknown."""
        if self.cost is None or self.reference_cost is None:
            return None
        if not self.cost.flops or not self.reference_cost.flops:
            # Not counted.
            return None
        return self.cost.flops - self.reference_cost.flops

    @property
    def verdict(self) -> Verdict:
        if self.judged is not None:
            return self.judged.verdict
        return Verdict.INCONCLUSIVE


def effects(
    results: StudyResults,
    margin: float,
    looks: Looks | None = None,
    *,
    predict: bool = True,
) -> list[Effect]:
    """Returns one effect per variant or baseline, in the order of the table.

    Each is compared with row 0. Folded cells and controls have none.

    Args:
        margin: the least difference that matters.
        looks: the numbers of seeds at which verdicts are taken, for a study that adds
            seeds until it is decided.
        predict: estimate the number of further seeds (some ms per undecided cell).
    """
    reference = results.cells[0] if results.cells else None
    if reference is None:
        return []
    cells = [
        cell
        for cell in results.cells[1:]
        if cell.same_as is None
        and cell.role in ("variant", "baseline")
        and cell.statuses
    ]
    judge_at = Judge(
        direction=results.direction, margin=margin, looks=looks, predict=predict
    )
    if looks is None:
        return judge_at.together(cells, reference, look=0)
    return judge_at.in_looks(cells, reference, looks)


@dataclass(frozen=True)
class Judge:
    """Takes the verdicts on rows that are compared with one reference."""

    direction: Direction
    margin: float
    looks: Looks | None
    predict: bool

    def together(
        self,
        cells: Sequence[CellResult],
        reference: CellResult,
        look: int,
        decided: Collection[Effect] = (),
    ) -> list[Effect]:
        """Returns the effects of one family, in the order of the cells.

        Args:
            decided: rows with a verdict from an earlier look. Which rows are left
                depends on their values, so a row without a difference still counts
                when others are tested for one, and the other way round.
        """
        same = sum(effect.verdict is Verdict.SAME for effect in decided)
        whole = [compared(cell, reference) for cell in cells]
        tested = [number for number, one in enumerate(whole) if len(one.seeds) > 1]
        family = family_of(
            reference.values,
            [cells[number].values for number in tested],
            planned=len(cells) + same,
            planned_same=len(cells) + len(decided) - same,
        )
        if family is None:
            return whole
        tests = family.tests(self.margin, LEVEL)
        for row, (number, test) in enumerate(zip(tested, tests, strict=True)):
            if test is not None:
                whole[number] = self._judged(whole[number], family, row, test, look)
        return whole

    def _judged(
        self, effect: Effect, family: Family, row: int, test: RowTest, look: int
    ) -> Effect:
        """Returns the effect with its estimate and verdict."""
        level = level_of_look(self.looks, look)
        verdict = verdict_of(
            test.mean, self.direction, test.p_adjusted, test.p_same, level
        )
        further = None
        if self.predict and verdict is Verdict.INCONCLUSIVE:
            further = seeds_needed(family, row, self.margin, level)
        estimate = Estimate(
            value=test.mean,
            low=test.low,
            high=test.high,
            error=test.error,
            freedom=family.freedom(row),
            p=test.p,
        )
        judged = Judged(
            p=test.p_adjusted, p_same=test.p_same, verdict=verdict, level=level
        )
        return replace(
            effect,
            estimate=estimate,
            judged=judged,
            further=further,
            alone=test.alone,
        )

    def in_looks(
        self, cells: Sequence[CellResult], reference: CellResult, looks: Looks
    ) -> list[Effect]:
        """Returns the effects of a study that adds seeds to undecided rows.

        A verdict is taken from the seeds of its look, and later looks do not change it:
        a row that is decided gets no further seeds.
        """
        decided: dict[int, Effect] = {}
        open_ = list(cells)
        found: list[Effect] = []
        for look, count in enumerate(looks.at):
            found = self.together(
                [_first_seeds(cell, count) for cell in open_],
                _first_seeds(reference, count),
                look,
                decided.values(),
            )
            if not any(_has_more(cell, count) for cell in open_):
                if not all(_is_complete(cell, count) for cell in (*open_, reference)):
                    found = [_undecided(effect) for effect in found]
                break
            decided |= {
                effect.row: effect
                for effect in found
                if effect.verdict is not Verdict.INCONCLUSIVE
            }
            open_ = [cell for cell in open_ if cell.index not in decided]
        by_row = decided | {effect.row: effect for effect in found}
        return [by_row[cell.index] for cell in cells]


def _first_seeds(cell: CellResult, count: int) -> CellResult:
    """Returns the cell with its first seeds only."""
    return replace(
        cell,
        statuses={seed: one for seed, one in cell.statuses.items() if seed < count},
        values={seed: value for seed, value in cell.values.items() if seed < count},
    )


def _is_complete(cell: CellResult, count: int) -> bool:
    """Whether the trials of a look have ended."""
    return all(
        status in RESOLVED for seed, status in cell.statuses.items() if seed < count
    )


def _undecided(effect: Effect) -> Effect:
    """Returns the effect without its verdict: its look is not complete."""
    if effect.judged is None:
        return effect
    judged = replace(effect.judged, verdict=Verdict.INCONCLUSIVE)
    return replace(effect, judged=judged, further=None)


def _has_more(cell: CellResult, count: int) -> bool:
    return any(seed >= count for seed in cell.statuses)


def control_effects(
    results: StudyResults,
    margin: float,
    looks: Looks | None = None,
    *,
    declared: bool = False,
    predict: bool = True,
) -> list[Effect]:
    """Returns the effects of variants compared with the baseline at equal cost.

    A variant is compared with its control, or with the baseline if that is nearest in
    cost. Empty for a study without controls.

    Args:
        declared: whether the space asks for controls. The baseline may be nearest to
            every variant, and then no cell is a control.
    """
    controls = {
        cell.control_of: cell for cell in results.cells if cell.control_of is not None
    }
    by_index = {cell.index: cell for cell in results.cells}
    baseline = results.baseline
    variants = [
        cell
        for cell in results.cells
        if cell.role == "variant" and cell.same_as is None and cell.statuses
    ]
    if baseline and (controls or declared):
        pairs = [(cell, controls.get(cell.index, baseline)) for cell in variants]
    else:
        pairs = []
    paired_cells = [
        paired(cell, by_index[other.same_as] if other.same_as is not None else other)
        for cell, other in pairs
        if other
    ]
    found = _judged_by_holm(paired_cells, results.direction, margin, looks)
    if not predict:
        return found
    return [
        replace(effect, further=_further(effect, by_index, margin)) for effect in found
    ]


def compared(cell: CellResult, reference: CellResult) -> Effect:
    """Returns the mean difference of a cell and its reference, over shared seeds.

    The effect has no estimate and no verdict.
    """
    shared = tuple(sorted(set(cell.values) & set(reference.values)))
    differences = [cell.values[seed] - reference.values[seed] for seed in shared]
    levels = shown_levels(cell)
    others = shown_levels(reference)
    missing = Counter(
        state.value for state in cell.statuses.values() if state != Status.COMPLETED
    )
    return Effect(
        row=cell.index,
        against=reference.index,
        changed={
            name: level for name, level in levels.items() if level != others.get(name)
        },
        seeds=shared,
        mean=statistics.fmean(differences) if differences else None,
        left_out=dict(sorted(missing.items())),
        cost=cell.cost,
        reference_cost=reference.cost,
    )


def paired(cell: CellResult, reference: CellResult) -> Effect:
    """Returns `compared` with an estimate by Student's paired t, without a verdict."""
    effect = compared(cell, reference)
    if effect.mean is None:
        return effect
    both = [_both(cell, reference, seed) for seed in effect.seeds]
    differences = [value - other for value, other in both]
    # Differences of accuracies that are equal on paper differ in their last bits.
    dust = ROUNDING * max(abs(value) for pair in both for value in pair)
    if max(differences) - min(differences) <= dust:
        return effect
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    estimate = Estimate.of(effect.mean, error, len(differences) - 1)
    return replace(effect, estimate=estimate)


def _both(cell: CellResult, reference: CellResult, seed: int) -> tuple[float, float]:
    return cell.values[seed], reference.values[seed]


def _judged_by_holm(
    effects: Sequence[Effect], direction: Direction, margin: float, looks: Looks | None
) -> list[Effect]:
    """Returns effects that have references of their own, judged as one family."""
    estimates = [effect.estimate for effect in effects if effect.estimate]
    # A row without an estimate counts in the family too: otherwise the verdicts of the
    # others could change when it gets one.
    level = LEVEL / looks.number if looks else LEVEL
    verdicts = iter(judge(estimates, margin, direction, level, len(effects)))
    return [
        replace(effect, judged=next(verdicts)) if effect.estimate else effect
        for effect in effects
    ]


def _further(
    effect: Effect, cells: Mapping[int, CellResult], margin: float
) -> int | None:
    """Returns the number of further seeds of a pair that has a control of its own."""
    if effect.judged is None or effect.verdict is not Verdict.INCONCLUSIVE:
        return None
    reference = cells[effect.against].values
    pair = family_of(reference, [cells[effect.row].values], planned=1)
    if pair is None:
        return None
    return seeds_needed(pair, 0, margin, effect.judged.level)
