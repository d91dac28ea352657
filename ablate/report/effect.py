"""The difference of a cell to the one that it is compared with, seed by seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ablate.records import CellResult, Cost, Level, Status
from ablate.report.summary import shown_levels
from ablate.report.verdicts import Estimate, Judged, Verdict, Withheld
from ablate.statistics.noise import ROUNDING
from ablate.statistics.numbers import mean_of, sd_of

# A row with a smaller chance of a conclusive verdict gets no further seeds. Chosen by
# simulation (docs/trust.md, Seeds until decided).
LEAST_CHANCE = 0.1


@dataclass(frozen=True)
class Effect:
    """The difference of a cell to the reference, in units of the metric.

    Attributes:
        row, against: the cell and the cell that it is compared with.
        changed: the levels in which the cell differs from the reference; None if its
            model does not read the factor.
        seeds: the seeds that both have completed.
        extra: the number of further seeds of the reference that the mean uses.
        apart: the number of runs of the reference, if they are not paired.
        mean: mean of the differences; None without any.
        estimate: None with fewer than two seeds, or if all differences are equal, as
            there is no spread to test against.
        judged: adjusted p values and verdict.
        count_further: returns `further`; None if there is a verdict or no estimate.
        chance: the probability of a conclusive verdict at the last look, if the row gets
            all seeds until then; None if no look is left.
        primary: whether the space names the row as a primary comparison.
        left_out: number of seeds without a value, by state; no mean includes them.
        cost, reference_cost: the costs of both.
        shown_by: the study whose look this is, if it is an earlier one of the group.
        shown_row: the row there.
        labels: what factors and levels are called.
    """

    row: int
    against: int
    changed: Mapping[str, Level | None]
    seeds: tuple[int, ...]
    extra: int = 0
    apart: int | None = None
    mean: float | None = None
    estimate: Estimate | None = None
    judged: Judged | None = None
    count_further: Callable[[], int | None] | None = field(
        default=None, compare=False, repr=False
    )
    chance: float | None = None
    primary: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)
    cost: Cost | None = None
    reference_cost: Cost | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    shown_by: str = ""
    shown_row: int = 0

    @cached_property
    def further(self) -> int | None:
        """The number of further seeds that give an even chance of a conclusive verdict.

        It is more than `seeds_needed.MOST` if that many are not enough; None if there is
        a verdict or no estimate. It is simulated when it is first asked for.
        """
        return self.count_further() if self.count_further is not None else None

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

    @property
    def p_adjusted(self) -> float | None:
        """The p value adjusted for the family; None if the row is not in it."""
        if self.judged is None or not self.judged.level:
            return None
        return self.judged.p

    @property
    def withheld(self) -> Withheld | None:
        """Why there is no verdict, although there is an estimate."""
        return self.judged.withheld if self.judged is not None else None

    @property
    def is_given_up(self) -> bool:
        """Whether the row gets no further seeds, although it has no verdict."""
        return self.chance is not None and self.chance < LEAST_CHANCE

    @property
    def is_step_down(self) -> bool:
        """Whether the row has a verdict of a difference although its interval contains 0.

        Holm's test then decides: it leaves out rows that are already decided.
        """
        if self.estimate is None or self.verdict not in (Verdict.HELPS, Verdict.HURTS):
            return False
        return self.estimate.low <= 0 <= self.estimate.high

    def without_verdict(self, why: Withheld) -> Effect:
        """Returns the effect with its estimate and p values, but without a verdict."""
        if self.judged is None:
            return self
        judged = replace(self.judged, verdict=Verdict.INCONCLUSIVE, withheld=why)
        return replace(self, judged=judged, count_further=None, chance=None)


def differences_with_extra(effects: Iterable[Effect]) -> dict[int, float | None]:
    """Returns the differences from a row 0 that has extra seeds, by row."""
    return {effect.row: effect.mean for effect in effects if effect.extra}


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
        mean=mean_of(differences) if differences else None,
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
    error = sd_of(differences) / math.sqrt(len(differences))
    estimate = Estimate.of(effect.mean, error, len(differences) - 1)
    return replace(effect, estimate=estimate)


def unpaired(cell: CellResult, reference: CellResult) -> Effect:
    """Returns the difference of two means over runs that have nothing in common.

    The estimate is Welch's, with the smaller of both degrees of freedom. So the interval
    holds whatever the two variances are (Mickey and Brown, Ann. Math. Stat. 37, 1966);
    with Welch's own degrees of freedom and three runs, up to 13 % of families of seven
    rows would have a false verdict.
    """
    effect = replace(
        compared(cell, reference),
        seeds=tuple(sorted(cell.values)),
        apart=len(reference.values),
    )
    values = [list(row.values.values()) for row in (cell, reference)]
    if not all(values):
        return replace(effect, mean=None)
    effect = replace(effect, mean=mean_of(values[0]) - mean_of(values[1]))
    if min(map(len, values)) < 2:
        return effect
    dust = ROUNDING * max(abs(value) for row in values for value in row)
    if all(max(row) - min(row) <= dust for row in values):
        return effect
    # Not by the sum of squares, which may be too small a number.
    error = math.hypot(*(sd_of(row) / math.sqrt(len(row)) for row in values))
    estimate = Estimate.of(effect.mean or 0.0, error, min(map(len, values)) - 1)
    return replace(effect, estimate=estimate)


def _both(cell: CellResult, reference: CellResult, seed: int) -> tuple[float, float]:
    return cell.values[seed], reference.values[seed]
