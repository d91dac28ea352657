"""The effect of a cell: paired differences to the reference, and what they show.

Seeds are blocks: a seed determines initialisation, data order and augmentation of every
cell alike, so differences are taken seed by seed. The rows that a study tests form one
family: their noise is estimated together, and in a study without any effect, the
probability that some row says `helps` or `hurts` is at most the study's level
(`statistics/noise.py`, `records/generation.py`). Rows that the space names as primary are
tested before the others, one after the other, by Student's paired t. Comparisons with
controls have a reference each; they use Student's paired t, adjusted by Holm.

A row whose trials an earlier study declared has the effect of that study, with its
verdict and its interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from ablate.records import (
    LEVEL,
    RESOLVED,
    CellResult,
    Direction,
    Looks,
    Standing,
    Status,
    StudyResults,
)
from ablate.records.primary import CONTROLS, primary_rows
from ablate.report.confirmation import confirmed_study, unconfirmed_effect
from ablate.report.effect import Before, Effect, paired, unpaired
from ablate.report.family import family_of
from ablate.report.judge import Judge
from ablate.report.verdicts import Verdict, Withheld, verdicts_by_holm
from ablate.statistics.numbers import sd_of
from ablate.statistics.seeds_needed import runs_needed, seeds_needed

# Why a row has no verdict, by its standing.
WITHHELD = {
    Standing.KNOWN: Withheld.KNOWN,
    Standing.PARTIAL: Withheld.PARTIAL,
    Standing.FINAL: Withheld.FINAL,
}


def effects(
    results: StudyResults,
    margin: float,
    looks: Looks | None = None,
) -> list[Effect]:
    """Returns one effect per variant or baseline, in the order of the table.

    Each is compared with row 0. Folded cells and controls have none.

    Args:
        margin: the least difference that matters.
        looks: the numbers of seeds at which verdicts are taken, for a study that adds
            seeds until it is decided.
    """
    return _effects(results, margin, looks, {})


# The effects of earlier studies by their numbers in the store and by row.
Earlier = dict[int, dict[int, Effect]]


def _effects(
    results: StudyResults,
    margin: float,
    looks: Looks | None,
    earlier: Earlier,
) -> list[Effect]:
    """Returns the effects of a study.

    Args:
        earlier: the effects of earlier studies; those that are missing are added.
    """
    if not results.cells:
        return []
    for number, study in results.earlier.items():
        if number not in earlier:
            study_effects = _effects(study, margin, study.looks, earlier)
            earlier[number] = {effect.row: effect for effect in study_effects}
    tested = _tested(confirmed_study(results), margin, looks)
    by_row = {effect.row: effect for effect in tested}
    complete = []
    for cell in _compared_cells(results):
        effect = _shown(results, cell, earlier) or by_row.get(cell.index)
        if effect is None:
            effect = unconfirmed_effect(results, cell, results.cells[0])
        complete.append(_with_earlier(effect, results, cell, earlier))
    return complete


def _shown(results: StudyResults, cell: CellResult, earlier: Earlier) -> Effect | None:
    """Returns the effect of a row whose trials an earlier study declared."""
    row = results.generation.rows.get(cell.index)
    if row is None or row.standing is not Standing.SHOWN or not row.earlier:
        return None
    study, number = row.earlier[0]
    effect = earlier.get(study, {}).get(number)
    if effect is None:
        return None
    name = effect.shown_by or results.earlier[study].name
    return replace(
        effect,
        row=cell.index,
        against=results.cells[0].index,
        labels=results.labels,
        shown_by=name,
        shown_row=effect.shown_row if effect.shown_by else number,
    )


def _with_earlier(
    effect: Effect, results: StudyResults, cell: CellResult, earlier: Earlier
) -> Effect:
    """Returns an effect with the verdicts of earlier studies that differ from its own."""
    row = results.generation.rows.get(cell.index)
    if row is None:
        return effect
    before = []
    for study, number in row.earlier:
        other = earlier.get(study, {}).get(number)
        if other is None or other.shown_by or other.verdict is Verdict.INCONCLUSIVE:
            continue
        if other.verdict is not effect.verdict:
            name = results.earlier[study].name
            before.append(
                Before(study=name, verdict=other.verdict, seeds=len(other.seeds))
            )
    return replace(effect, before=tuple(before))


def _compared_cells(results: StudyResults) -> list[CellResult]:
    """Returns the cells that are compared with row 0."""
    return [
        cell
        for cell in results.cells[1:]
        if cell.same_as is None
        and cell.role in ("variant", "baseline")
        and cell.statuses
    ]


def _tested(results: StudyResults, margin: float, looks: Looks | None) -> list[Effect]:
    """Returns the effects of the rows that the study has effects of, in their order."""
    reference = results.cells[0]
    cells: list[CellResult] = []
    shown: list[CellResult] = []
    for cell in _compared_cells(results):
        standing = results.generation.standing(cell.index)
        (shown if standing is Standing.SHOWN else cells).append(cell)
    judge = Judge(
        direction=results.direction,
        margin=margin,
        looks=looks,
        level=results.generation.level,
        next_level=results.generation.next_level,
        left_out=results.generation.left_out,
        primary=primary_rows(results.primary, results.cells),
        others=shown,
        baseline_seeds=results.baseline_seeds,
    )
    every = (*cells, reference)
    if results.is_paired:
        tested = judge.effects(cells, reference)
    else:
        tested = _judged_by_holm(
            [unpaired(cell, reference) for cell in cells],
            results.direction,
            margin,
            results.generation.level,
            len(cells) + results.generation.left_out,
        )
        tested = [
            replace(
                effect,
                count_further=partial(_further_runs, effect, cell, reference, margin),
            )
            for effect, cell in zip(tested, cells, strict=True)
        ]
    is_open = results.searching or not all(map(_has_ended, every))
    judged = []
    for effect, cell in zip(tested, cells, strict=True):
        named = replace(effect, labels=results.labels)
        why = _barred(results, cell, reference)
        if (
            not results.is_paired
            and Status.FAILED in cell.outcomes | reference.outcomes
        ):
            why = why or Withheld.FAILED
        if why is None and looks is None and is_open:
            why = Withheld.UNFINISHED
        if why is None and results.is_judged_across and named.withheld is None:
            why = Withheld.ACROSS
        judged.append(named if why is None else named.without_verdict(why))
    return judged


# Trials that have no value although they ended, and the reason that they give.
SURVIVORS = {
    Status.DIVERGED: Withheld.DIVERGED,
    Status.PRUNED: Withheld.PRUNED,
    Status.ABANDONED: Withheld.ABANDONED,
}


def _has_ended(cell: CellResult) -> bool:
    """Whether no trial of the cell is open."""
    return all(status in RESOLVED for status in cell.statuses.values())


def _barred(
    results: StudyResults, cell: CellResult, reference: CellResult
) -> Withheld | None:
    """Returns why two cells get no verdict, however their trials end, or None."""
    for row in (cell, reference):
        standing = results.generation.standing(row.index)
        if standing in WITHHELD:
            return WITHHELD[standing]
    # A mean over the other seeds would be one of survivors.
    statuses = cell.outcomes | reference.outcomes
    for status, reason in SURVIVORS.items():
        if status in statuses:
            return reason
    return None


def control_effects(
    results: StudyResults,
    margin: float,
    looks: Looks | None = None,
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
    # Holm's test has no sequential version here, so each look gets an equal part.
    number = looks.number if looks else 1
    level = results.generation.level / number
    named = [replace(effect, labels=results.labels) for effect in paired_cells]
    judged = _judged_by_holm(named, results.direction, margin, level, len(named))
    if CONTROLS in results.primary:
        judged = [_if_allowed(results, effect, by_index) for effect in judged]
    if results.is_judged_across:
        judged = [effect.without_verdict(Withheld.ACROSS) for effect in judged]
    return [
        replace(effect, count_further=partial(_further, effect, by_index, margin))
        for effect in judged
    ]


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


def _judged_by_holm(
    effects: Sequence[Effect],
    direction: Direction,
    margin: float,
    level: float,
    number: int,
) -> list[Effect]:
    """Returns effects, judged as one family by separate tests.

    Args:
        number: of the comparisons of the family, those that are left out included.
    """
    # Bonferroni's intervals are simultaneous, and Holm's test refines Bonferroni's.
    effects = [
        replace(effect, estimate=effect.estimate.at((level or LEVEL) / number))
        if effect.estimate
        else effect
        for effect in effects
    ]
    estimates = [effect.estimate for effect in effects if effect.estimate]
    # A row without an estimate counts in the family too: otherwise the verdicts of the
    # others could change when it gets one.
    verdicts = iter(verdicts_by_holm(estimates, margin, direction, level, number))
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


def _further_runs(
    effect: Effect, cell: CellResult, reference: CellResult, margin: float
) -> int | None:
    """Returns the number of further runs that decide an unpaired comparison."""
    judged, estimate = effect.judged, effect.estimate
    if judged is None or estimate is None or judged.withheld:
        return None
    if effect.verdict is not Verdict.INCONCLUSIVE:
        return None
    runs = [list(row.values.values()) for row in (cell, reference)]
    first, second = (sd_of(values) ** 2 for values in runs)
    return runs_needed(
        estimate.value,
        (first, second),
        (len(runs[0]), len(runs[1])),
        margin,
        judged.level,
    )
