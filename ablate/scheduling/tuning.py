"""Each row at its own best setting: which one that is, and the trials that follow.

First, each row tries all settings, on seeds that no table has. When all of these trials
of a row have a result, the setting with the best mean is the row's, and its trials of
the table follow. Other rows need not have ended. When row 0 has its setting, too, the
row is also trained at that one (`row 0`), to show what tuning changed.

A trial that failed is tried again by the next run, so its row has no setting before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ablate.records import (
    RESOLVED,
    AtSetting,
    Cell,
    Known,
    Plan,
    Status,
    Tune,
)
from ablate.report.tuning import best_setting


def with_settings(plan: Plan, known: Mapping[str, Known]) -> tuple[Plan, bool]:
    """Returns the plan with the trials that follow from the settings chosen so far.

    Args:
        plan: the plan of the space. The trials of its cells stand for their seeds.
        known: what is known of trials, with their epochs.

    Returns:
        the plan, and whether no other trials follow.
    """
    tune = plan.space.tune
    assert tune is not None
    # By row: the setting of each seed of the table.
    chosen = {
        cell.index: _settings(cell, tune, known) for cell in plan.cells if cell.trials
    }
    cells = tuple(_with_setting(cell, chosen) for cell in plan.cells)
    is_last = all(
        trial.hash in known and known[trial.hash].status in RESOLVED
        for cell in plan.cells
        for trial in (at.trial for at in cell.at_settings)
    )
    return Plan(plan.space, cells), is_last


def _with_setting(cell: Cell, chosen: Mapping[int, Mapping[int, int]]) -> Cell:
    """Returns a cell with its trials at the settings of its row and of row 0.

    Args:
        chosen: by row, the setting of each seed.
    """
    if not cell.trials:
        return cell
    of_row = chosen[cell.index]
    seeds = [trial.seed for trial in cell.trials if trial.seed in of_row]
    at_row_0: list[AtSetting] = []
    cost = cell.cost
    if cell.index and of_row and cost is not None:
        at_row_0 = [
            AtSetting(
                stage="row 0",
                setting=setting,
                trial=cell.by_setting[setting].at_seed(seed),
                cost=cost,
            )
            for seed, setting in chosen.get(0, {}).items()
            if seed in of_row
        ]
    return replace(
        cell,
        trials=tuple(cell.by_setting[of_row[seed]].at_seed(seed) for seed in seeds),
        settings=tuple(of_row[seed] for seed in seeds),
        at_settings=(*cell.at_settings, *at_row_0),
    )


def _settings(cell: Cell, tune: Tune, known: Mapping[str, Known]) -> dict[int, int]:
    """Returns the setting of each seed whose trials have all ended."""
    chosen: dict[int, int] = {}
    by_choice: dict[tuple[int, ...], int | None] = {}
    for seed in (trial.seed for trial in cell.trials):
        choosing = tune.seeds_that_choose(seed)
        if choosing not in by_choice:
            by_choice[choosing] = _choice(cell, tune, choosing, known)
        setting = by_choice[choosing]
        if setting is not None:
            chosen[seed] = setting
    return chosen


def _choice(
    cell: Cell, tune: Tune, seeds: tuple[int, ...], known: Mapping[str, Known]
) -> int | None:
    """Returns the best setting by the trials with some seeds; None: not all have ended."""
    scores: dict[int, list[float | None]] = {}
    for at in cell.at_settings:
        if at.trial.seed not in seeds:
            continue
        result = known.get(at.trial.hash)
        if result is None or result.status not in RESOLVED:
            return None
        if result.status == Status.FAILED:
            return None
        scores.setdefault(at.setting, []).append(score(result, tune))
    return best_setting(scores, tune.direction)


def score(known: Known, tune: Tune) -> float | None:
    """Returns by what a setting is chosen: the metric on the held-out images.

    It is that of the epoch whose weights are tested. None: the trial did not complete.
    """
    if known.status != Status.COMPLETED:
        return None
    for epoch in known.epochs:
        if epoch.number == known.selected_epoch:
            return epoch.metrics.get(tune.metric)
    return None
