"""The effect of a cell: paired differences to the reference, and what they show.

Seeds are blocks: a seed determines initialisation, data order and augmentation of every
cell alike, so differences are taken seed by seed (Student's paired t). The verdicts of
one study form a family. Their p values are adjusted by Holm, so that in a study without
any effect, the probability that some row says `helps` or `hurts` is at most 5 %.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablate.records import CellResult, Cost, Level, Looks, Status, StudyResults
from ablate.report.seeds_needed import seeds_needed
from ablate.report.summary import shown_levels
from ablate.report.verdicts import Estimate, Judged, Verdict, judge


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
    """Returns the effects of variants compared with the baseline at equal cost.

    A variant is compared with its control, or with the baseline if that is nearest in
    cost. Empty for a study without controls.
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
        if cell.role == "variant" and cell.same_as is None and cell.statuses
    ]
    if controls and baseline:
        pairs = [(cell, controls.get(cell.index, baseline)) for cell in variants]
    else:
        pairs = []
    compared_cells = [
        compared(cell, by_index[other.same_as] if other.same_as is not None else other)
        for cell, other in pairs
        if other
    ]
    return _judged(compared_cells, results.direction, margin, looks, predict)


def compared(cell: CellResult, reference: CellResult) -> Effect:
    """Returns the effect of a cell compared with its reference, without a verdict.

    It is paired over the seeds that both have.
    """
    shared = tuple(sorted(set(cell.values) & set(reference.values)))
    differences = [cell.values[seed] - reference.values[seed] for seed in shared]
    levels = shown_levels(cell)
    others = shown_levels(reference)
    missing = Counter(
        state.value for state in cell.statuses.values() if state != Status.COMPLETED
    )
    estimate = None
    # Differences of accuracies that are equal on paper differ in their last bits.
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
    effects: Sequence[Effect],
    direction: str,
    margin: float,
    looks: Looks | None,
    predict: bool,
) -> list[Effect]:
    """Returns the effects with their verdicts, judged as one family."""
    estimates = [effect.estimate for effect in effects if effect.estimate]
    # A row without an estimate counts in the family too: otherwise the verdicts of the
    # others could change when it gets one.
    verdicts = iter(
        judge(estimates, margin, direction, looks.number if looks else 1, len(effects))
    )
    whole = [
        replace(effect, judged=next(verdicts)) if effect.estimate else effect
        for effect in effects
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
    return seeds_needed(
        len(effect.seeds), effect.estimate.value, sd, margin, effect.judged.level
    )
