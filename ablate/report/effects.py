"""What a cell does: paired differences to the reference, how sure they are, and what
may be said of them.

Seeds are blocks: a seed sets initialisation, data order and augmentation of every cell
alike, so differences are taken seed by seed (Student's paired t). The verdicts of one
study are a family: p values are adjusted by Holm, so that in a study in which nothing
has an effect, `helps` or `hurts` is said anywhere with a probability of at most 5 %.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablate.records import CellResult, Cost, Level, Looks, Status, StudyResults
from ablate.report.further import further_seeds
from ablate.report.summary import shown_levels
from ablate.report.verdicts import Estimate, Judged, Verdict, judge


@dataclass(frozen=True)
class Effect:
    """The difference of a cell to the reference, in units of the metric (per cent
    points for top1 and top5).

    Attributes:
        row, against: the cell and what it is compared with.
        changed: the levels in which the cell differs from the reference, None where its
            model does not read the factor.
        seeds: those that both have completed.
        mean: of the differences; None where there are none.
        estimate: None below two seeds, or where all differences are equal, so that
            there is no spread to test against.
        judged: adjusted p values and verdict.
        further: seeds that would as likely as not decide it, more than `MOST` where
            those would not do; None where it is
        decided or not estimated.
        left_out: number of seeds without a value by their state: they are in no mean.
        cost, reference_cost: what both cost.
    """

    row: int
    against: int
    changed: Mapping[str, Level | None]
    seeds: tuple[int, ...]
    mean: float | None = None
    estimate: Estimate | None = None
    judged: Judged | None = None
    further: int | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    cost: Cost | None = None
    reference_cost: Cost | None = None

    @property
    def delta_flops(self) -> int | None:
        """FLOPs more than the reference."""
        if self.cost and self.reference_cost:
            return self.cost.flops - self.reference_cost.flops
        return None

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
    """One effect a variant that repeats no other cell, in the order of the table, all
    to the first row.

    Args:
        margin: the least difference that counts as one.
        looks: at which numbers of seeds verdicts are taken, where more seeds are added
            until something is decided.
        predict: estimate the further seeds (some ms an undecided cell).
    """
    reference = results.cells[0] if results.cells else None
    if reference is None:
        return []
    cells = [
        cell
        for cell in results.cells[1:]
        if cell.same_as is None and cell.role in ("variant", "baseline") and cell.states
    ]
    return _judged(
        [compared(cell, reference) for cell in cells],
        results.direction,
        margin,
        looks,
        predict,
    )


def control_effects(
    results: StudyResults,
    margin: float,
    looks: Looks | None = None,
    *,
    predict: bool = True,
) -> list[Effect]:
    """The same against the baseline of the same cost: a variant's control, or the
    baseline where that is nearest in cost; none in a study without controls.
    """
    controls = {
        cell.control_of: cell for cell in results.cells if cell.control_of is not None
    }
    by_index = {cell.index: cell for cell in results.cells}
    baseline = next(
        (cell for cell in results.cells if cell.role in ("reference", "baseline")), None
    )
    variants = [
        cell
        for cell in results.cells
        if cell.role == "variant" and cell.same_as is None and cell.states
    ]
    if controls and baseline:
        pairs = [(cell, controls.get(cell.index, baseline)) for cell in variants]
    else:
        pairs = []
    found = [
        compared(cell, by_index[other.same_as] if other.same_as is not None else other)
        for cell, other in pairs
        if other
    ]
    return _judged(found, results.direction, margin, looks, predict)


def compared(cell: CellResult, reference: CellResult) -> Effect:
    """A cell beside its reference, paired over the seeds that both have; judged by
    nobody yet.
    """
    shared = tuple(sorted(set(cell.values) & set(reference.values)))
    differences = [cell.values[seed] - reference.values[seed] for seed in shared]
    levels = shown_levels(cell)
    others = shown_levels(reference)
    missing = Counter(
        state.value for state in cell.states.values() if state != Status.COMPLETED
    )
    estimate = None
    # Equal differences of accuracies differ in their last bits.
    if differences and max(differences) - min(differences) > 1e-9 * max(
        1.0, *(abs(value) for value in differences)
    ):
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        estimate = Estimate.of(
            statistics.fmean(differences), error, len(differences) - 1
        )
    return Effect(
        row=cell.index,
        against=reference.index,
        changed={
            name: level for name, level in levels.items() if level != others.get(name)
        },
        seeds=shared,
        mean=statistics.fmean(differences) if differences else None,
        estimate=estimate,
        left_out=dict(sorted(missing.items())),
        cost=cell.cost,
        reference_cost=reference.cost,
    )


def _judged(
    found: Sequence[Effect],
    direction: str,
    margin: float,
    looks: Looks | None,
    predict: bool,
) -> list[Effect]:
    """Effects with their verdicts, as one family."""
    estimates = [effect.estimate for effect in found if effect.estimate]
    # A row without an estimate yet is one of the family: what was said of the others
    # holds when it has one.
    verdicts = iter(
        judge(estimates, margin, direction, looks.number if looks else 1, len(found))
    )
    whole = [
        replace(effect, judged=next(verdicts)) if effect.estimate else effect
        for effect in found
    ]
    if not predict:
        return whole
    return [replace(effect, further=_further(effect, margin)) for effect in whole]


def _further(effect: Effect, margin: float) -> int | None:
    if (
        effect.estimate is None
        or effect.judged is None
        or effect.verdict is not Verdict.INCONCLUSIVE
    ):
        return None
    sd = effect.estimate.error * math.sqrt(len(effect.seeds))
    return further_seeds(
        len(effect.seeds), effect.estimate.value, sd, margin, effect.judged.level
    )
