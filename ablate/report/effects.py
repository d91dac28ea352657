"""The effect of a cell: paired differences to the reference, and what they show.

Seeds are blocks: a seed determines initialisation, data order and augmentation of every
cell alike, so differences are taken seed by seed. The rows of a study form one family:
their noise is estimated together, and in a study without any effect, the probability
that some row says `helps` or `hurts` is at most 5 % (`report/noise.py`). Rows that the
space names as primary are tested before the others, one after the other, by Student's
paired t. Comparisons with controls have a reference each; they use Student's paired t,
adjusted by Holm.

A study that is declared again after its rows could be compared gets a new phase. Each
phase has its share of the 5 %, and a verdict is taken when all trials of its phase have
ended. A row keeps what an earlier phase has shown (`records/history.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ablate.primary import CONTROLS, primary_rows
from ablate.records import (
    RESOLVED,
    CellResult,
    Direction,
    Looks,
    Phase,
    Status,
    StudyResults,
)
from ablate.report.confirmation import confirmed_study, unconfirmed_effect
from ablate.report.effect import Effect, paired
from ablate.report.judge import Judge
from ablate.report.noise import family_of
from ablate.report.seeds_needed import seeds_needed
from ablate.report.verdicts import (
    LEVEL,
    Verdict,
    Withheld,
    verdict_of,
    verdicts_by_holm,
)


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
    if not results.cells:
        return []
    tested = _tested(confirmed_study(results), margin, looks, predict=predict)
    by_row = {effect.row: effect for effect in tested}
    return [
        by_row.get(cell.index) or unconfirmed_effect(results, cell, results.cells[0])
        for cell in _compared_cells(results)
    ]


def _compared_cells(results: StudyResults) -> list[CellResult]:
    """Returns the cells that are compared with row 0."""
    return [
        cell
        for cell in results.cells[1:]
        if cell.same_as is None
        and cell.role in ("variant", "baseline")
        and cell.statuses
    ]


def _tested(
    results: StudyResults, margin: float, looks: Looks | None, *, predict: bool
) -> list[Effect]:
    """Returns the effects of the cells that are one family, in their order."""
    reference = results.cells[0]
    cells = _compared_cells(results)
    phases = _Phases(results, cells, reference, results.history.margin(margin))
    found = phases.last(looks, predict=predict)
    earlier = [
        phases.earlier(number)
        for number, phase in enumerate(results.history.phases[:-1])
        if phase.finished
    ]
    combined = []
    for effect, cell in zip(found, cells, strict=True):
        before = [phase[effect.row] for phase in earlier if effect.row in phase]
        named = replace(effect, labels=results.labels)
        combined.append(phases.combined(named, before, cell))
    return combined


# Why a verdict is only a matter of time.
NOT_YET = (Withheld.UNFINISHED, Withheld.FAILED)
# Trials that have no value although they ended, and the reason that they give.
SURVIVORS = {
    Status.DIVERGED: Withheld.DIVERGED,
    Status.PRUNED: Withheld.PRUNED,
}


@dataclass(frozen=True)
class _Phases:
    """The verdicts of a study in each of its phases.

    All phases compare the rows that the study has now. An earlier phase has the seeds
    whose trials ended in it or before it.
    """

    results: StudyResults
    cells: Sequence[CellResult]
    reference: CellResult
    margin: float

    def last(self, looks: Looks | None, *, predict: bool) -> list[Effect]:
        """Returns the effects in the present phase."""
        present = self._judge(self.results.history.last, looks, predict=predict)
        found = present.effects(self.cells, self.reference)
        every = (*self.cells, self.reference)
        is_open = self.results.searching or not all(map(_has_ended, every))
        if looks is None and is_open:
            return [effect.without_verdict(Withheld.UNFINISHED) for effect in found]
        return found

    def earlier(self, number: int) -> dict[int, Effect]:
        """Returns the effects in a phase that has ended, by row.

        Rows that were not complete then have none.
        """
        phase = self.results.history.phases[number]
        reference = _until(self.reference, number)
        cells = [_until(cell, number) for cell in self.cells]
        complete = [
            cell for cell in cells if _was_complete(cell, phase) and not was_known(cell)
        ]
        if not _was_complete(reference, phase) or self._is_chosen(number):
            return {}
        judge_at = self._judge(number, phase.looks, predict=False)
        found = judge_at.effects(complete, reference)
        return {effect.row: effect for effect in found}

    def _is_chosen(self, number: int) -> bool:
        """Whether row 0 has chosen seeds in a phase."""
        first = self.results.history.chosen_from
        return first is not None and first <= number

    def _judge(self, number: int, looks: Looks | None, *, predict: bool) -> Judge:
        phase = self.results.history.phases[number]
        return Judge(
            direction=self.results.direction,
            margin=self.margin,
            looks=looks,
            predict=predict,
            phase=number,
            final=self.results.history.final,
            rows=phase.rows,
            primary=primary_rows(phase.primary, self.results.cells),
        )

    def combined(
        self, effect: Effect, earlier: Sequence[Effect], cell: CellResult
    ) -> Effect:
        """Returns an effect with what earlier phases have shown of it.

        The shares of the phases add up to 5 %, so the smallest of its p values counts.
        """
        judged, estimate = effect.judged, effect.estimate
        if judged is None or estimate is None:
            return effect
        is_known = was_known(cell) or self._is_chosen(self.results.history.last)
        why = _barred(self.results, cell, self.reference)
        if why is not None:
            return effect.without_verdict(Withheld.KNOWN if is_known else why)
        if is_known:
            judged = replace(
                judged, verdict=Verdict.INCONCLUSIVE, withheld=Withheld.KNOWN
            )
            effect = replace(effect, judged=judged, further=None)
        before = [
            one.judged
            for one in earlier
            if one.judged is not None
            and one.estimate is not None
            and one.withheld not in NOT_YET
            # An earlier finding that the seeds since contradict is given up.
            and one.estimate.value * estimate.value > 0
        ]
        if not before:
            return effect
        now = [] if judged.withheld in NOT_YET or is_known else [judged]
        p = min(one.p for one in (*before, *now))
        p_same = 1.0
        if abs(estimate.value) < self.margin:
            p_same = min(one.p_same for one in (*before, *now))
        verdict = verdict_of(estimate.value, self.results.direction, p, p_same, LEVEL)
        if verdict is Verdict.INCONCLUSIVE:
            return replace(effect, judged=replace(judged, p=p, p_same=p_same))
        decided = replace(
            judged,
            p=p,
            p_same=p_same,
            verdict=verdict,
            # A phase after final seeds has no level of its own.
            level=judged.level or max(one.level for one in before),
            withheld=None,
            kept=judged.verdict is not verdict,
        )
        return replace(effect, judged=decided, further=None)


def _until(cell: CellResult, phase: int) -> CellResult:
    """Returns the cell with the seeds whose trials ended in a phase or before it."""
    return cell.with_seeds(
        [seed for seed in cell.statuses if cell.phase_of.get(seed, 0) <= phase]
    )


def _was_complete(cell: CellResult, phase: Phase) -> bool:
    """Whether a cell had all of its seeds when a phase ended.

    A failed trial may have been tried again later.

    Args:
        cell: as it was at the end of the phase.
    """
    if phase.looks is None:
        return set(phase.seeds) <= set(cell.statuses)
    # The cell got as many seeds as its last look has.
    return sorted(cell.statuses) == list(range(len(cell.statuses)))


def _has_ended(cell: CellResult) -> bool:
    """Whether no trial of the cell is open."""
    return all(status in RESOLVED for status in cell.statuses.values())


def _barred(
    results: StudyResults, cell: CellResult, reference: CellResult
) -> Withheld | None:
    """Returns why two cells get no verdict in any phase, or None if they may."""
    if results.history.changed:
        return Withheld.CHANGED
    # A mean over the other seeds would be one of survivors.
    statuses = {*cell.statuses.values(), *reference.statuses.values()}
    for status, reason in SURVIVORS.items():
        if status in statuses:
            return reason
    return None


def was_known(cell: CellResult) -> bool:
    """Whether results of the cell may be the reason to compare it.

    A single known seed says nothing of its noise.

    Args:
        cell: with its seeds at the time in question.
    """
    return len(cell.known & set(cell.statuses)) > 1


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
    # Without a control of its own, a variant costs what the baseline costs, or the
    # baseline is the network nearest to it in cost.
    if baseline and (controls or declared):
        pairs = [(cell, controls.get(cell.index, baseline)) for cell in variants]
    else:
        pairs = []
    paired_cells = [
        paired(cell, by_index[other.same_as] if other.same_as is not None else other)
        for cell, other in pairs
        if other
    ]
    # Holm's test has no sequential version here, so each look gets an equal part.
    number = looks.number if looks else 1
    level = LEVEL * results.history.share / number
    named = [replace(effect, labels=results.labels) for effect in paired_cells]
    found = _judged_by_holm(named, results.direction, margin, level)
    if CONTROLS in results.history.primary:
        found = [_if_allowed(results, effect, by_index) for effect in found]
    if not predict:
        return found
    return [
        replace(effect, further=_further(effect, by_index, margin)) for effect in found
    ]


def _if_allowed(
    results: StudyResults, effect: Effect, cells: Mapping[int, CellResult]
) -> Effect:
    """Returns a primary comparison, without its verdict if it can have none now."""
    row, against = cells[effect.row], cells[effect.against]
    if was_known(row) or was_known(against):
        return effect.without_verdict(Withheld.KNOWN)
    why = _barred(results, row, against)
    if why is not None:
        return effect.without_verdict(why)
    if results.searching or not all(map(_has_ended, results.cells)):
        return effect.without_verdict(Withheld.UNFINISHED)
    if any(Status.FAILED in cell.statuses.values() for cell in results.cells):
        return effect.without_verdict(Withheld.FAILED)
    return effect


def _judged_by_holm(
    effects: Sequence[Effect], direction: Direction, margin: float, level: float
) -> list[Effect]:
    """Returns effects that have references of their own, judged as one family."""
    # Bonferroni's intervals are simultaneous, and Holm's test refines Bonferroni's.
    effects = [
        replace(effect, estimate=effect.estimate.at((level or LEVEL) / len(effects)))
        if effect.estimate
        else effect
        for effect in effects
    ]
    estimates = [effect.estimate for effect in effects if effect.estimate]
    # A row without an estimate counts in the family too: otherwise the verdicts of the
    # others could change when it gets one.
    verdicts = iter(verdicts_by_holm(estimates, margin, direction, level, len(effects)))
    return [
        replace(effect, judged=next(verdicts)) if effect.estimate else effect
        for effect in effects
    ]


def _further(
    effect: Effect, cells: Mapping[int, CellResult], margin: float
) -> int | None:
    """Returns the number of further seeds of a pair that has a control of its own."""
    undecided = effect.verdict is Verdict.INCONCLUSIVE and not effect.withheld
    if effect.judged is None or not undecided:
        return None
    reference = cells[effect.against].values
    pair = family_of(reference, [cells[effect.row].values], planned=1)
    if pair is None:
        return None
    return seeds_needed(pair, 0, margin, effect.judged.level)
