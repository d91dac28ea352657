"""The results of a study: its cells, with the values of their trials."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from ablate.records import (
    VARIED,
    Before,
    CellResult,
    Comparison,
    Cost,
    Level,
    Looks,
    Metric,
    Seeds,
    Standing,
    Status,
    StudyResults,
)
from ablate.store.declarations import fresh_seeds, group_of
from ablate.store.rows import check_complete, check_metric, check_rows
from ablate.store.space_data import (
    across_of,
    chance_of,
    metrics_of,
    reported_of,
    tune_of,
)
from ablate.store.sql_tables import (
    all_cell_trials,
    architectures,
    cell_trials,
    cells,
    epoch_metrics,
    levels,
    studies,
    trial_metrics,
    trials,
    tuning_trials,
)

COSTS = tuple(field.name for field in fields(Cost))
# What a study always has.
NEEDED = ("created_at", "generation", "metric", "direction")


def final_values(
    connection: Connection, metric: Metric, study: int
) -> dict[str, float]:
    """Returns the final values of a metric by trial, of a study's completed trials."""
    of_study = (
        select(all_cell_trials.c.trial_hash)
        .join(cells, cells.c.id == all_cell_trials.c.cell_id)
        .where(cells.c.study_id == study)
    )
    if not metric.of:
        query = select(trial_metrics.c.trial_hash, trial_metrics.c.value).where(
            trial_metrics.c.name == metric.name,
            trial_metrics.c.trial_hash.in_(of_study),
        )
        return {row.trial_hash: row.value for row in connection.execute(query)}
    query = (
        select(epoch_metrics.c.trial_hash, epoch_metrics.c.value)
        .join(trials, trials.c.hash == epoch_metrics.c.trial_hash)
        .where(
            epoch_metrics.c.name == metric.of,
            epoch_metrics.c.epoch > trials.c.selected_epoch - metric.over,
            epoch_metrics.c.epoch <= trials.c.selected_epoch,
            trials.c.status == Status.COMPLETED,
            trials.c.hash.in_(of_study),
        )
        .order_by(epoch_metrics.c.trial_hash, epoch_metrics.c.epoch)
    )
    last: dict[str, list[float]] = defaultdict(list)
    for row in connection.execute(query):
        last[row.trial_hash].append(row.value)
    return {key: metric.mean(values) for key, values in last.items()}


class _Ended(NamedTuple):
    """What is known of the trial of a cell and a seed."""

    seed: int
    status: Status
    value: float | None
    setting: int | None


def read_results(
    connection: Connection,
    study: Any,
    *,
    alone: bool = False,
) -> StudyResults:
    """Returns the results of a study, and those of the earlier ones of its group.

    Args:
        study: its row in the table `studies`.
        alone: without the earlier ones.
    """
    name = study["name"]
    check_complete(name, "the study", [itemgetter(*NEEDED)(study)])
    of_study = cells.c.study_id == study["id"]
    rows = (
        connection.execute(
            select(cells, *(architectures.c[n] for n in COSTS))
            .join(
                architectures,
                architectures.c.hash == cells.c.architecture_hash,
                isouter=True,
            )
            .where(of_study)
            .order_by(cells.c.number)
        )
        .mappings()
        .all()
    )
    check_rows(
        name, [(row["number"], row["same_as"], row["control_of"]) for row in rows]
    )
    # A row that cannot be built has no network.
    built = [row for row in rows if row["architecture_hash"]]
    check_complete(name, "the costs", map(itemgetter(*COSTS), built))
    of_cells = connection.execute(
        select(levels.c.cell_id, levels.c.factor, levels.c.level, levels.c.read)
        .join(cells, cells.c.id == levels.c.cell_id)
        .where(of_study)
        .order_by(levels.c.position)
    ).all()
    check_complete(name, "the levels", of_cells)
    by_cell_levels: dict[int, dict[str, Level]] = defaultdict(dict)
    unread: dict[int, set[str]] = defaultdict(set)
    for cell, factor, level, is_read in of_cells:
        by_cell_levels[cell][factor] = level
        if not is_read:
            unread[cell].add(factor)
    space = study["space"]
    check_metric(name, study["metric"], space)
    metrics = metrics_of(space)
    metric = {metric.name: metric for metric in metrics}[study["metric"]]
    by_cell_trials = _trials(connection, study, metric)
    fresh = frozenset(fresh_seeds(space))
    cell_results = tuple(
        _cell_result(
            row,
            by_cell_levels[row["id"]],
            unread[row["id"]],
            by_cell_trials[row["id"]],
            fresh,
        )
        for row in rows
    )
    if space.get("tune"):
        cell_results = _with_choices(connection, study["id"], rows, cell_results, space)
    earlier = () if alone else earlier_studies(connection, study)
    before = Before(
        generation=study["generation"],
        rows={
            row["number"]: Comparison(
                standing=Standing(row["standing"]),
                key=row["key"],
                repeats=row["repeats"],
            )
            for row in rows
        },
        studies=earlier,
    )
    return StudyResults(
        name=name,
        question=study["question"],
        expect=study["expect"],
        source=study["source"],
        metric=metric,
        metrics=metrics,
        direction=study["direction"],
        document=study["document"],
        factors=tuple(dict.fromkeys(factor for _, factor, _, _ in of_cells)),
        cells=cell_results,
        before=before,
        # Those that are named after results have no effect.
        primary=() if earlier else tuple(space.get("primary") or ()),
        looks=_looks(space),
        searching=bool(space.get("strategy")) and study["finished_at"] is None,
        confirmation_seeds=tuple(sorted(fresh)),
        baseline_seeds=space.get("baseline_seeds"),
        tune=tune_of(space),
        across=across_of(space),
        reported=reported_of(space),
        vary=tuple(space.get("vary") or VARIED),
        labels=space.get("labels") or {},
        chance=chance_of(space, study["metric"]),
    )


def _with_choices(
    connection: Connection,
    study: int,
    rows: Sequence[Any],
    cell_results: Sequence[CellResult],
    space: Mapping[str, Any],
) -> tuple[CellResult, ...]:
    """Returns the cells with the seeds that wait for a setting, and lost choices."""
    query = (
        select(cells.c.number, func.count())
        .join(tuning_trials, tuning_trials.c.cell_id == cells.c.id)
        .join(trials, trials.c.hash == tuning_trials.c.trial_hash)
        .where(cells.c.study_id == study, tuning_trials.c.stage == "tuning")
        .where(trials.c.status == Status.ABANDONED)
        .group_by(cells.c.number)
    )
    abandoned = {row[0]: row[1] for row in connection.execute(query)}
    seeds = Seeds(
        numbers=tuple(space.get("seeds", ())), baseline=space.get("baseline_seeds")
    )
    complete = []
    for row, cell in zip(rows, cell_results, strict=True):
        # A row that is folded or infeasible has no key.
        numbers: tuple[int, ...] = ()
        if row["key"]:
            numbers = seeds.numbers if cell.index else seeds.of_row_0
        complete.append(
            replace(
                cell,
                statuses={**dict.fromkeys(numbers, Status.PLANNED), **cell.statuses},
                abandoned=abandoned.get(cell.index, 0),
            )
        )
    return tuple(complete)


def _looks(space: Mapping[str, Any]) -> Looks | None:
    looks = space.get("looks")
    if not looks:
        return None
    return Looks(first=looks["first"], most=looks["most"], step=looks["step"])


def earlier_studies(
    connection: Connection, study: Mapping[str, Any]
) -> tuple[StudyResults, ...]:
    """Returns the results of the studies of a group that were declared before one."""
    return studies_of_groups(connection, (group_of(study),), study["created_at"])


def studies_of_groups(
    connection: Connection,
    groups: Sequence[int],
    before: datetime,
    *,
    without: int | None = None,
) -> tuple[StudyResults, ...]:
    """Returns the results of the studies of groups, in the order of their declarations.

    Args:
        before: only those that were declared before this time.
        without: a study that is left out.
    """
    query = (
        select(studies)
        .where(
            func.coalesce(studies.c.group_id, studies.c.id).in_(groups),
            studies.c.created_at < before,
            studies.c.id.is_distinct_from(without),
        )
        .order_by(studies.c.created_at, studies.c.id)
    )
    rows = connection.execute(query).mappings().all()
    return tuple(read_results(connection, dict(row), alone=True) for row in rows)


def _trials(
    connection: Connection, study: Mapping[str, Any], metric: Metric
) -> dict[int, list[_Ended]]:
    """Returns the trials of a study by the key of their cell, in the order of seeds."""
    rows = connection.execute(
        select(
            cell_trials.c.cell_id,
            cell_trials.c.seed,
            cell_trials.c.setting,
            trials.c.status,
            trials.c.hash,
        )
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .join(trials, trials.c.hash == cell_trials.c.trial_hash)
        .where(cells.c.study_id == study["id"])
        .order_by(cell_trials.c.seed)
    ).all()
    check_complete(
        study["name"], "the trials", [(row.cell_id, row.seed, row.hash) for row in rows]
    )
    values = final_values(connection, metric, study["id"])
    by_cell: dict[int, list[_Ended]] = defaultdict(list)
    for cell, seed, setting, status, key in rows:
        by_cell[cell].append(
            _Ended(
                seed=seed,
                status=Status(status),
                value=values.get(key),
                setting=setting,
            )
        )
    return by_cell


def _cell_result(
    row: Any,
    levels_: Mapping[str, Level],
    unread: set[str],
    trained: Sequence[_Ended],
    fresh: frozenset[int] = frozenset(),
) -> CellResult:
    """Returns the result of a cell.

    Args:
        fresh: seeds on which a search confirms its best cells. If a cell other than
            row 0 has some, only these are its result: the others chose it.
    """
    # The seeds that chose a cell favour it. They would bias its mean, so they are kept
    # apart from those that confirm it.
    chose: Mapping[int, float] = {}
    if row["number"] > 0 and any(trial.seed in fresh for trial in trained):
        chose = _values(trial for trial in trained if trial.seed not in fresh)
        trained = [trial for trial in trained if trial.seed in fresh]
    return CellResult(
        index=row["number"],
        levels=levels_,
        unread=frozenset(unread),
        role=row["role"],
        note=row["note"],
        same_as=row["same_as"],
        control_of=row["control_of"],
        cost=(
            Cost(*(row[name] for name in COSTS)) if row["params"] is not None else None
        ),
        statuses={trial.seed: trial.status for trial in trained},
        settings={
            trial.seed: trial.setting for trial in trained if trial.setting is not None
        },
        values=_values(trained),
        search_values=chose,
    )


def _values(trained: Iterable[_Ended]) -> dict[int, float]:
    """Returns the values of completed trials by seed."""
    return {
        trial.seed: trial.value
        for trial in trained
        # A store from elsewhere may contain what training refuses.
        if trial.status == Status.COMPLETED
        and trial.value is not None
        and math.isfinite(trial.value)
    }
