"""The effect of a cell: paired differences to the reference, and what they show.

Seeds are blocks: a seed determines initialisation, data order and augmentation of every
cell alike, so differences are taken seed by seed. The verdicts follow from all studies
that compare the rows (`report.ledger`). Comparisons with controls have a reference
each; they use Student's paired t, adjusted by Holm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ablate.records import LEVEL, RESOLVED, CellResult, Status, StudyResults
from ablate.records.primary import CONTROLS
from ablate.report.confirmation import unconfirmed_effect
from ablate.report.effect import Effect, paired
from ablate.report.family import family_of
from ablate.report.ledger import SURVIVORS, WITHHELD, Ledger, by_holm, compared_cells
from ablate.report.verdicts import Verdict, Withheld
from ablate.statistics import spending
from ablate.statistics.seeds_needed import seeds_needed


def effects(results: StudyResults, margin: float) -> list[Effect]:
    """Returns one effect per variant or baseline, in the order of the table.

    Each is compared with row 0. Folded cells and controls have none.

    Args:
        margin: the least difference that matters.
    """
    if not results.cells:
        return []
    ledger = Ledger(margin)
    for earlier in results.before.studies:
        ledger.add(earlier, shown=False)
    tested = {effect.row: effect for effect in ledger.add(results)}
    return [
        tested.get(cell.index) or unconfirmed_effect(results, cell, results.cells[0])
        for cell in compared_cells(results)
    ]


def level_of(results: StudyResults) -> float:
    """Returns the level of comparisons that are not those of rows with row 0.

    A look spends what the seeds since the last one allow. If rows are added on the same
    seeds, it has half of what is left. All looks together have less than 5 %.
    """
    if results.before.is_whole:
        return LEVEL
    now = _seeds(results)
    earlier = [seeds for seeds in map(_seeds, results.before.studies) if seeds > 1]
    before = max(earlier, default=0)
    if results.looks is not None:
        before = max(before, *(at for at in results.looks.at if at < now), 0)
    level = spending.FIRST * max(_spent(now) - _spent(before), 0.0)
    if earlier:
        level += (1 - spending.FIRST) * _spent(now) / 2 ** len(earlier)
    return level


def _seeds(results: StudyResults) -> int:
    """Returns the largest number of seeds that a row has."""
    return max((len(row.values) for row in compared_cells(results)), default=0)


def _spent(seeds: int) -> float:
    return spending.spent(seeds) if seeds > 1 else 0.0


def _barred(
    results: StudyResults, cell: CellResult, reference: CellResult
) -> Withheld | None:
    """Returns why two cells get no verdict, however their trials end, or None."""
    for row in (cell, reference):
        comparison = results.before.rows.get(row.index)
        if row.index and comparison is not None and comparison.standing in WITHHELD:
            return WITHHELD[comparison.standing]
    # A mean over the other seeds would be one of survivors.
    statuses = cell.outcomes | reference.outcomes
    for status, reason in SURVIVORS.items():
        if status in statuses:
            return reason
    return None


def _has_ended(cell: CellResult) -> bool:
    """Whether no trial of the cell is open."""
    return all(status in RESOLVED for status in cell.statuses.values())


def control_effects(
    results: StudyResults,
    margin: float,
    *,
    declared: bool = False,
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
    named = [replace(effect, labels=results.labels) for effect in paired_cells]
    judged = by_holm(named, results.direction, margin, level_of(results), len(named))
    share = spending.FIRST / max(len(named), 1)
    if CONTROLS in results.primary:
        judged = [_if_allowed(results, effect, by_index) for effect in judged]
    if results.is_judged_across:
        judged = [effect.without_verdict(Withheld.ACROSS) for effect in judged]
    return [
        replace(
            effect, count_further=partial(_further, effect, by_index, margin, share)
        )
        for effect in judged
    ]


def _further(
    effect: Effect, cells: Mapping[int, CellResult], margin: float, share: float
) -> int | None:
    """Returns the number of further seeds of a pair that has a control of its own."""
    undecided = effect.verdict is Verdict.INCONCLUSIVE and not effect.withheld
    if effect.judged is None or not undecided:
        return None
    reference = cells[effect.against].values
    pair = family_of(reference, [cells[effect.row].values], share=share)
    return None if pair is None else seeds_needed(pair, 0, margin)


def _if_allowed(
    results: StudyResults, effect: Effect, cells: Mapping[int, CellResult]
) -> Effect:
    """Returns a primary comparison, without its verdict if it can have none now."""
    row, against = cells[effect.row], cells[effect.against]
    why = _barred(results, row, against)
    if why is not None:
        return effect.without_verdict(why)
    if results.searching or not all(map(_has_ended, results.cells)):
        return effect.without_verdict(Withheld.UNFINISHED)
    if any(Status.FAILED in cell.statuses.values() for cell in results.cells):
        return effect.without_verdict(Withheld.FAILED)
    return effect
