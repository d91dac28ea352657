"""Seeds until decided: inconclusive cells get more seeds, the others keep theirs.

An inconclusive cell that more seeds are unlikely to decide gets no further seeds. It
stays in the family of rows that are tested, so giving it up adds no false verdict.

Which cells have which seeds is a function of the plan and of results, never of timing.
Recomputed after a kill, it is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ablate.records import (
    Before,
    Cell,
    CellResult,
    Known,
    Metric,
    Plan,
    Status,
    StudyResults,
)
from ablate.report.effects import effects
from ablate.report.verdicts import Verdict, Withheld
from ablate.scheduling.growing import is_resolved

# Why a row has no verdict that more seeds could bring.
NO_SEED_HELPS = (
    Withheld.KNOWN,
    Withheld.PARTIAL,
    Withheld.DIVERGED,
    Withheld.PRUNED,
    Withheld.ABANDONED,
    Withheld.FAILED,
)


def granted(
    plan: Plan, known: Mapping[str, Known], before: Before
) -> tuple[Plan, bool]:
    """Returns the plan with the seeds granted so far, and whether they are final.

    All cells begin with the first number of seeds. When all these trials are resolved,
    verdicts are taken. Inconclusive cells that are not given up, their controls and the
    reference continue to the next number, if there is one.
    """
    looks = plan.space.seeds.looks
    assert looks is not None
    counts = {cell.index: looks.first for cell in plan.cells if cell.trials}
    counts[0] = max(looks.first, plan.space.seeds.baseline or 0)
    # Replays all looks from the first one instead of storing where the study stands:
    # the same results always grant the same seeds.
    for count in (*looks.at[1:], None):
        cut = Plan(
            plan.space,
            tuple(
                replace(cell, trials=cell.trials[: counts.get(cell.index, 0)])
                for cell in plan.cells
            ),
        )
        if not all(is_resolved(trial, known) for trial in cut.trials):
            return cut, False
        # Seeds that are known cost nothing, and a study of before may have them.
        ahead = {
            cell.index
            for cell in plan.cells
            if any(
                is_resolved(trial, known)
                for trial in cell.trials[counts.get(cell.index, 0) :]
            )
        }
        going_on = _undecided(cut, known, before, ahead)
        if not going_on or count is None:
            return cut, True
        counts |= {
            index: max(count, counts[index]) for index in going_on if index in counts
        }
    raise AssertionError("a bug: the last look did not end the study")


def _undecided(
    plan: Plan,
    known: Mapping[str, Known],
    before: Before,
    ahead: Collection[int],
) -> set[int]:
    """Returns the inconclusive cells and those that they are compared with.

    Args:
        ahead: cells with results for further seeds, which are not given up.
    """
    verdicts = effects(
        results_of(plan, known, before),
        plan.space.criterion.margin,
    )
    most = max((len(cell.trials) for cell in plan.cells[1:]), default=0)
    # A cell that was decided at an earlier look has fewer seeds than the reference. Its
    # verdict is final, and it gets no further seeds.
    counts = {cell.index: len(cell.trials) for cell in plan.cells}
    undecided = [
        effect
        for effect in verdicts
        if effect.verdict is Verdict.INCONCLUSIVE
        and effect.withheld not in NO_SEED_HELPS
        and (effect.row in ahead or not effect.is_given_up)
        and counts[effect.row] == most
    ]
    if all(effect.withheld is Withheld.NOT_TESTED for effect in undecided):
        # They wait for a primary comparison that gets no further seeds.
        return set()
    open_ = {effect.row for effect in undecided}
    # A variant cannot be compared further than its control goes.
    controls = {
        cell.index if cell.same_as is None else cell.same_as
        for cell in plan.cells
        if cell.control_of in open_
    }
    return open_ | controls | {0}


def _cell_result(cell: Cell, known: Mapping[str, Known], metric: Metric) -> CellResult:
    """Returns the result of a planned cell, from what is known of its trials."""
    known_by_seed = {
        trial.seed: known[trial.hash] for trial in cell.trials if trial.hash in known
    }
    return CellResult(
        index=cell.index,
        levels=cell.levels,
        unread=cell.unread,
        role=cell.role,
        note=cell.note,
        same_as=cell.same_as,
        cost=cell.cost,
        statuses={
            trial.seed: (
                known_by_seed[trial.seed].status
                if trial.seed in known_by_seed
                else Status.PLANNED
            )
            for trial in cell.trials
        },
        values={
            seed: value
            for seed, trial in known_by_seed.items()
            if trial.status == Status.COMPLETED
            and (value := trial.value(metric)) is not None
        },
        control_of=cell.control_of,
    )


def results_of(
    plan: Plan, known: Mapping[str, Known], before: Before | None = None
) -> StudyResults:
    """Returns a plan with its known results, in the form that the store returns.

    Args:
        before: what was declared before; by default nothing.
    """
    space = plan.space
    if before is None:
        before = Before()
    cells = tuple(
        _cell_result(cell, known, space.criterion.compared) for cell in plan.cells
    )
    return StudyResults(
        name=space.name,
        question=space.claim.question,
        expect=space.claim.expect,
        source=space.claim.source,
        metric=space.criterion.compared,
        metrics=space.criterion.metrics,
        direction=space.criterion.direction,
        factors=tuple(space.factors.levels),
        cells=cells,
        document=space.document,
        before=before,
        primary=() if before.studies else space.criterion.primary,
        looks=space.seeds.looks,
        baseline_seeds=space.seeds.baseline,
    )
