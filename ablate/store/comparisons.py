"""What the studies of a store compare, as `ablate.store.lineage` needs it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select

from ablate.identity import content_hash
from ablate.records import (
    RESOLVED,
    RESULT,
    VARIED,
    Cell,
    Seeds,
    Space,
    Standing,
    Status,
    Trial,
    Tune,
    base_name,
    confirmation_seeds,
)
from ablate.records.plain import decisive, to_data
from ablate.store.lineage import Comparisons, Earlier, History, Row
from ablate.store.sql_tables import (
    all_cell_trials,
    cell_trials,
    cells,
    studies,
    trials,
    tuning_trials,
)

# What identifies a trial beside its architecture and its seed.
IDENTITY = ("recipe", "data", "code", "start", "teacher", "vary")
# States in which a trial shows what it measured.
SHOWING = (Status.COMPLETED, Status.DIVERGED, Status.PRUNED)
CHUNK = 500


def key_of_trial(trial: Trial) -> str:
    """Returns what identifies a planned trial beside its seed."""
    return _key(
        trial.architecture.hash,
        {
            "recipe": trial.canonical_recipe,
            "data": trial.data.canonical(),
            "code": dict(trial.code),
            "start": trial.start.identity if trial.start else None,
            "teacher": trial.teacher.identity if trial.teacher else None,
            "vary": trial.vary if trial.vary != VARIED else None,
        },
    )


def key_of_row(row: Any) -> str:
    """Returns what identifies a stored trial beside its seed."""
    return _key(row.architecture_hash, {name: getattr(row, name) for name in IDENTITY})


def _key(architecture: str, identity: Mapping[str, Any]) -> str:
    # The seed decides on the split.
    data = without_split(identity["data"])
    code = {
        part: version
        for part, version in (identity["code"] or {}).items()
        if part != RESULT
    }
    values = plain({**identity, "data": data, "code": code})
    return content_hash([architecture, values])


def without_split(data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns data without the seed of their split."""
    return {key: value for key, value in data.items() if key != "split"}


def comparisons_of(space: Space, rows: Sequence[Row]) -> Comparisons:
    """Returns the comparisons of a space, row 0 first."""
    return Comparisons(
        reference=rows[0],
        rows=rows[1:],
        metric=f"{space.criterion.metric} {space.criterion.direction}",
        grows=space.seeds.looks is not None,
        final=space.seeds.final,
        paired=space.reported is None or space.reported.is_paired,
    )


def rows_of(space: Space, planned: Iterable[Cell]) -> list[Row]:
    """Returns the rows of planned cells, with the trials that verdicts are taken from.

    If a search confirms its best cells, these are the trials with fresh seeds.
    """
    fresh = space.confirmation_seeds
    rows = []
    for cell in planned:
        if cell.base is not None:
            rows.append(_tuned_row(space, cell))
            continue
        hashes = {
            trial.seed: trial.hash
            for trial in cell.trials
            if not fresh or trial.seed in fresh
        }
        if hashes:
            key = key_of_trial(cell.trials[0])
            rows.append(Row(number=cell.index, key=key, trials=hashes))
    return rows


def _tuned_row(space: Space, cell: Cell) -> Row:
    """Returns a row that chooses its setting by results."""
    assert cell.base is not None
    key = key_of_trial(cell.base)
    seeds = space.seeds.numbers if cell.index else space.seeds.of_row_0
    return Row(
        number=cell.index,
        key=key,
        trials=_chosen_trials(key, to_data(space)["tune"], seeds),
        settings=tuple(map(key_of_trial, cell.by_setting)),
    )


def _chosen_trials(
    key: str, tune: Mapping[str, Any], seeds: Iterable[int]
) -> dict[int, str]:
    """Returns hashes that stand for the trials of a row at the setting that it chooses.

    Two studies with equal ones choose in the same way, and have the same trials.

    Args:
        key: what identifies the row.
        tune: the section as plain data.
    """
    choice = plain(decisive(Tune, tune))
    return {seed: content_hash([key, choice, seed]) for seed in seeds}


def networks_of(planned: Iterable[Cell]) -> dict[int, str]:
    """Returns the hash of the architecture of each planned cell that has trials."""
    return {
        cell.index: cell.trials[0].architecture.hash for cell in planned if cell.trials
    }


def networks_of_settings(planned: Iterable[Cell]) -> set[str]:
    """Returns the hashes of the architectures at the settings that rows try."""
    return {trial.architecture.hash for cell in planned for trial in cell.by_setting}


def trained_before(
    connection: Connection, networks: Iterable[str], moment: datetime
) -> dict[str, dict[int, str]]:
    """Returns the trials of networks that had results before a time.

    They are by the key of their row and by seed.
    """
    listed = sorted(networks)
    trained: dict[str, dict[int, str]] = defaultdict(dict)
    for start in range(0, len(listed), CHUNK):
        query = _results_of(listed[start : start + CHUNK], moment)
        for row in connection.execute(query):
            trained[key_of_row(row)][row.seed] = row.hash
    return trained


def _results_of(networks: Sequence[str], moment: datetime) -> Select[Any]:
    """Returns the query of the trials of networks that showed a result before a time."""
    return select(
        trials.c.hash,
        trials.c.seed,
        trials.c.architecture_hash,
        *(trials.c[name] for name in IDENTITY),
    ).where(
        trials.c.architecture_hash.in_(networks),
        trials.c.status.in_(SHOWING),
        trials.c.ended_at < moment,
    )


def choosing_trials(connection: Connection) -> frozenset[str]:
    """Returns the hashes of the trials that only choose settings of rows."""
    query = select(tuning_trials.c.trial_hash).where(
        tuning_trials.c.stage == "tuning",
        tuning_trials.c.trial_hash.not_in(select(cell_trials.c.trial_hash)),
    )
    return frozenset(connection.execute(query).scalars())


def reported_before(
    connection: Connection, networks: Iterable[str], moment: datetime
) -> dict[str, set[str]]:
    """Returns the hashes of all trials that showed a result before a time.

    They are by the key of their row. A seed may have several.
    """
    listed = sorted(networks)
    reported: dict[str, set[str]] = defaultdict(set)
    for start in range(0, len(listed), CHUNK):
        for row in connection.execute(
            _results_of(listed[start : start + CHUNK], moment)
        ):
            reported[key_of_row(row)].add(row.hash)
    return reported


def history(
    connection: Connection,
    network: str,
    moment: datetime,
    study: int | None,
    name: str = "",
) -> History:
    """Returns the studies that were declared before a study.

    Args:
        network: the hash of the architecture of row 0.
        moment: when the study was declared.
        study: the number of the study, if it is stored.
        name: of a study that was trained elsewhere; its generations were declared
            before.
    """
    having = (
        select(cells.c.study_id)
        .join(studies, studies.c.id == cells.c.study_id)
        .where(cells.c.architecture_hash == network, studies.c.created_at < moment)
        .distinct()
    )
    named = {
        row.id
        for row in connection.execute(
            select(studies.c.id, studies.c.name).where(studies.c.created_at < moment)
        )
        if name and base_name(row.name) == name
    }
    numbers = ({row[0] for row in connection.execute(having)} | named) - {study}
    stored = connection.execute(
        select(studies)
        .where(studies.c.id.in_(numbers))
        .order_by(studies.c.created_at.desc(), studies.c.id.desc())
    )
    earlier = []
    for row in stored.all():
        declared = stored_comparisons(connection, row)
        if declared is not None:
            earlier.append(
                Earlier(
                    study=row.id,
                    lineage=row.id if row.lineage is None else row.lineage,
                    declared=declared,
                    open=_open(connection, row.id),
                    same_name=row.id in named,
                )
            )
    return History(studies=earlier, spent=_spent(connection, moment, study))


def _spent(
    connection: Connection, moment: datetime, study: int | None
) -> dict[int, float]:
    """Returns the level that each lineage has used, with studies that have other rows."""
    tests = (
        select(cells.c.id)
        .where(cells.c.study_id == studies.c.id, cells.c.number > 0)
        .where(cells.c.standing == Standing.TESTED, cells.c.same_as.is_(None))
        .exists()
    )
    lineage = func.coalesce(studies.c.lineage, studies.c.id)
    levels = (
        select(lineage, func.sum(studies.c.level))
        .where(studies.c.created_at < moment, tests)
        .group_by(lineage)
    )
    if study is not None:
        levels = levels.where(studies.c.id != study)
    return {row[0]: row[1] for row in connection.execute(levels)}


def _open(connection: Connection, study: int) -> frozenset[str]:
    """Returns the trials of a study that have not ended."""
    query = (
        select(trials.c.hash)
        .join(all_cell_trials, all_cell_trials.c.trial_hash == trials.c.hash)
        .join(cells, cells.c.id == all_cell_trials.c.cell_id)
        .where(cells.c.study_id == study, trials.c.status.not_in(RESOLVED))
    )
    return frozenset(connection.execute(query).scalars())


def stored_comparisons(connection: Connection, study: Any) -> Comparisons | None:
    """Returns the comparisons of a stored study; None: it has no row 0."""
    space = study.space
    if space.get("tune"):
        rows = _stored_tuned_rows(connection, study.id, space)
    else:
        rows = stored_rows(connection, study.id, fresh_seeds(space))
    if not rows or rows[0].number != 0:
        return None
    return Comparisons(
        reference=rows[0],
        rows=rows[1:],
        metric=f"{study.metric} {study.direction}",
        # Its rows, or their seeds, follow from results.
        grows=bool(space.get("looks") or space.get("strategy")),
        paired=(space.get("reported") or {}).get("is_paired", True),
    )


def fresh_seeds(space: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the fresh seeds on which a search confirms its best cells.

    Args:
        space: the space as `ablate.records.plain` describes it.
    """
    strategy = space.get("strategy")
    if not strategy:
        return ()
    return confirmation_seeds(space.get("seeds", ()), strategy.get("confirm"))


def stored_rows(
    connection: Connection,
    study: int,
    fresh: Collection[int],
    only: int | None = None,
) -> list[Row]:
    """Returns the rows of a stored study, in their order.

    Args:
        fresh: the seeds that verdicts are taken from, if they are not all seeds.
        only: the number of the one row that is read.
    """
    of_study = cells.c.study_id == study
    if only is not None:
        of_study &= cells.c.number == only
    numbers: dict[int, dict[int, str]] = defaultdict(dict)
    for number, seed, key in connection.execute(
        select(cells.c.number, cell_trials.c.seed, cell_trials.c.trial_hash)
        .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
        .where(of_study)
    ):
        if not fresh or seed in fresh:
            numbers[number][seed] = key
    keys = stored_keys(connection, of_study)
    return [
        Row(number=number, key=keys[number], trials=numbers[number])
        for number in sorted(numbers)
    ]


def _stored_tuned_rows(
    connection: Connection, study: int, space: Mapping[str, Any]
) -> list[Row]:
    """Returns the rows of a stored study that choose their settings, in their order."""
    seeds = [int(seed) for seed in space.get("seeds", ())]
    of_row_0 = Seeds(tuple(seeds), baseline=space.get("baseline_seeds")).of_row_0
    keys = connection.execute(
        select(cells.c.number, cells.c.key)
        .where(cells.c.study_id == study, cells.c.key != "")
        .order_by(cells.c.number)
    )
    return [
        Row(
            number=row.number,
            key=row.key,
            trials=_chosen_trials(
                row.key, space["tune"], seeds if row.number else of_row_0
            ),
        )
        for row in keys.all()
    ]


def stored_keys(
    connection: Connection, condition: ColumnElement[bool]
) -> dict[int, str]:
    """Returns what identifies the trials of each cell beside their seeds."""
    # All trials of a cell have the same key.
    some = (
        select(cells.c.number, func.min(cell_trials.c.trial_hash).label("hash"))
        .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
        .where(condition)
        .group_by(cells.c.number)
        .subquery()
    )
    query = select(
        some.c.number,
        trials.c.architecture_hash,
        *(trials.c[name] for name in IDENTITY),
    ).join(trials, trials.c.hash == some.c.hash)
    keys = {row.number: key_of_row(row) for row in connection.execute(query)}
    # Rows that choose their settings have trials of several keys, or none yet.
    declared = select(cells.c.number, cells.c.key).where(condition, cells.c.key != "")
    return keys | {row.number: row.key for row in connection.execute(declared)}


def plain(value: Any) -> Any:
    """Returns a value with lists in place of tuples, as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
