"""Stores a plan: the study, its cells, their architectures and trials.

What it guarantees: after `put_cells`, the stored cells with the numbers of the plan are
exactly those of the plan, and no trial was removed. Trials are shared between studies
by their hash, so a result survives every change of a study.

How: each stored cell carries a digest of all that was planned for it. Cells with an
equal digest are left alone; changed ones are deleted and inserted again. What happens
to stored cells that the plan does not have depends on `rest`.

What would break it: a property of a cell that is stored but missing in `_digest`,
because a change of it would go unnoticed; or a caller outside a transaction that
excludes other drivers (`database.exclude_drivers`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, Literal

from sqlalchemy import Connection, Insert, Table, delete, insert, select, update

from ablate.identity import Canonical, content_hash
from ablate.own import registry
from ablate.records import (
    VARIED,
    Cell,
    Comparison,
    Space,
    Status,
    Trial,
    generation_name,
    is_number,
)
from ablate.records.plain import to_data
from ablate.store import views
from ablate.store.declarations import (
    Declaration,
    comparisons_of,
    join_groups,
    key_of_trial,
    refuse_other_study,
)
from ablate.store.moment import now
from ablate.store.sql_tables import (
    architectures,
    cell_trials,
    cells,
    levels,
    sources,
    studies,
    trials,
    tuning_trials,
)
from ablate.store.wide_views import drop_view, put_stored

CHUNK = 500
# What happens to stored cells that the plan does not have.
#
# "remove": the plan lists every cell of the study, so they are left over from an
# earlier declaration.
#
# "keep": the plan is an extension.
#
# "keep unless changed": the plan of a search has only the cells that this driver knows,
# and another driver may have stored more. But if a common cell has changed, the search
# was declared differently, and its later proposals followed from cells that no longer
# exist.
Rest = Literal["remove", "keep", "keep unless changed"]


def put_study(
    connection: Connection, space: Space, file: str, declaration: Declaration
) -> int:
    """Stores a study that is declared. Returns its number.

    If it becomes a new generation, the one before gets a name of its own, as `mine@1`.
    """
    refuse_other_study(connection, space, file)
    values = {
        "question": space.claim.question,
        "expect": space.claim.expect,
        "source": space.claim.source,
        "metric": space.criterion.metric,
        "direction": space.criterion.direction,
        "document": space.document,
        "space": to_data(space),
        "file": file,
        "updated_at": now(),
        "finished_at": None,
        "declaration": declaration.digest,
    }
    placed = {
        "created_at": declaration.moment,
        "generation": declaration.before.generation,
        "group_id": None,
    }
    if declaration.study is not None:
        if not declaration.is_same:
            values |= placed
        of_study = studies.c.id == declaration.study
        connection.execute(update(studies).where(of_study).values(**values))
        if not declaration.is_same:
            join_groups(connection, declaration.study, declaration.groups)
        return declaration.study
    if declaration.retired is not None:
        _retire(connection, declaration.retired)
    made = connection.execute(
        insert(studies).values(
            name=space.name,
            results_view=free_view(connection, space.name),
            **values,
            **placed,
        )
    )
    study = key_of(made)
    join_groups(connection, study, declaration.groups)
    return study


def _retire(connection: Connection, study: int) -> None:
    """Gives a study the name of an earlier generation, and its view another one."""
    of_study = studies.c.id == study
    row = connection.execute(select(studies).where(of_study)).mappings().one()
    drop_view(connection, row["results_view"])
    name = generation_name(row["name"], row["generation"])
    values = {"name": name, "results_view": free_view(connection, name)}
    connection.execute(update(studies).where(of_study).values(**values))
    put_stored(connection, {**row, **values})


def free_view(connection: Connection, name: str) -> str:
    """Returns a name for the wide view of a study that no other study has.

    Two names may become one once they are reduced to letters, digits and underscores.
    """
    view = views.results_view_name(name)
    taken = set(connection.execute(select(studies.c.results_view)).scalars())
    number, free = 1, view
    while free in taken:
        number += 1
        free = f"{view}_{number}"
    return free


def put_cells(
    connection: Connection,
    study: int,
    planned: Sequence[Cell],
    revision: int,
    again: Sequence[Status],
    rest: Rest,
    begun: Collection[str] = (),
    *,
    fresh: Collection[int] = (),
    compared: Mapping[int, Comparison] | None = None,
) -> None:
    """Stores cells that are not stored yet, with their architectures and trials.

    No trial is removed.

    Args:
        again: states of trials that should be trained again, unless they have `begun`
            in this run.
        rest: what happens to the study's other cells; see `Rest`.
        fresh: the seeds on which a search confirms its best cells.
        compared: the comparison of each row; a cell that is stored and not among them
            keeps its own.
    """
    rows = connection.execute(
        select(cells.c.number, cells.c.digest).where(cells.c.study_id == study)
    )
    stored: dict[int, str] = {row[0]: row[1] for row in rows}
    digests = {cell.index: _digest(cell) for cell in planned}
    changed = [
        number
        for number, digest in digests.items()
        if stored.get(number, digest) != digest
    ]
    if rest == "remove" or (rest == "keep unless changed" and changed):
        # Cells are deleted before new ones are inserted, because a number is unique
        # within a study.
        changed += [number for number in stored if number not in digests]
    new = [cell for cell in planned if stored.get(cell.index) != digests[cell.index]]
    kept = comparisons_of(connection, study)
    kept.update(compared or {})
    for start in range(0, len(changed), CHUNK):
        gone = cells.c.number.in_(changed[start : start + CHUNK])
        connection.execute(delete(cells).where(cells.c.study_id == study, gone))
    # For all planned cells, not only new ones: costs may have been counted by an older
    # revision of the rules, and trials may be due again.
    _architectures(connection, planned, revision)
    _trials(
        connection,
        [
            trial
            for cell in planned
            for trial in cell.all_trials
            if trial.hash not in begun
        ],
        again,
    )
    _cells(connection, study, new, digests, kept, fresh)


def put_comparisons(
    connection: Connection, study: int, compared: Mapping[int, Comparison]
) -> None:
    """Stores what is known of rows that are stored."""
    for number, row in compared.items():
        connection.execute(
            update(cells)
            .where(cells.c.study_id == study, cells.c.number == number)
            .values(standing=row.standing, repeats=row.repeats)
        )


def _digest(cell: Cell) -> str:
    if cell.architecture and cell.cost:
        architecture = cell.architecture.hash
    else:
        architecture = None
    # A list of pairs instead of a mapping: the order of the levels is that of the
    # columns, and it must count.
    levels_: list[Canonical] = [[name, level] for name, level in cell.levels.items()]
    trained: list[Canonical] = [[trial.seed, trial.hash] for trial in cell.trials]
    planned: list[Canonical] = [cell.role, cell.control_of, cell.same_as, cell.note]
    if cell.at_settings:
        # Cells without tuning keep their digests.
        planned.append(list(cell.settings))
        planned += [
            [at.stage, at.setting, at.trial.seed, at.trial.hash]
            for at in cell.at_settings
        ]
    return content_hash([*planned, architecture, sorted(cell.unread), levels_, trained])


def _architectures(
    connection: Connection, planned: Sequence[Cell], revision: int
) -> None:
    by_hash = {
        cell.architecture.hash: (cell.architecture, cell.cost)
        for cell in planned
        if cell.architecture and cell.cost
    }
    for cell in planned:
        # Settings that a row tries may be those of its network, such as drop rates.
        networks = [(at.trial.architecture, at.cost) for at in cell.at_settings]
        if cell.cost:
            networks += [(trial.architecture, cell.cost) for trial in cell.by_setting]
        for network, cost in networks:
            by_hash.setdefault(network.hash, (network, cost))
    stored = existing(
        connection, architectures.c.hash, list(by_hash), architectures.c.cost_revision
    )
    rows = [
        {**asdict(architecture), **asdict(cost), "hash": key, "cost_revision": revision}
        for key, (architecture, cost) in by_hash.items()
        if key not in stored
    ]
    insert_all(connection, architectures, rows)
    flops = existing(
        connection, architectures.c.hash, list(stored), architectures.c.flops
    )
    for key, counted_by in stored.items():
        # A rule of the user for an operator may have changed.
        if counted_by != revision or flops[key] != by_hash[key][1].flops:
            counted = {**asdict(by_hash[key][1]), "cost_revision": revision}
            connection.execute(
                update(architectures)
                .where(architectures.c.hash == key)
                .values(**counted)
            )


def _trials(
    connection: Connection, planned: Sequence[Trial], again: Sequence[Status]
) -> None:
    planned_by_hash = {trial.hash: trial for trial in planned}
    stored = existing(connection, trials.c.hash, list(planned_by_hash), trials.c.status)
    rows = (
        {
            "hash": key,
            "architecture_hash": trial.architecture.hash,
            "recipe": trial.canonical_recipe,
            "data": trial.data.canonical(),
            "code": dict(trial.code),
            "start": trial.start.identity if trial.start else None,
            "teacher": trial.teacher.identity if trial.teacher else None,
            "vary": trial.vary if trial.vary != VARIED else None,
            "seed": trial.seed,
            "epochs": trial.recipe.epochs,
            "status": Status.PLANNED,
            "epochs_done": 0,
        }
        for key, trial in planned_by_hash.items()
        if key not in stored
    )
    insert_all(connection, trials, rows)
    for key in (key for key, status in stored.items() if status in again):
        # The conditions are checked again inside the update: another driver may have
        # leased or trained the trial since it was read.
        free = (
            (trials.c.hash == key)
            & trials.c.owner.is_(None)
            & trials.c.status.in_(again)
        )
        connection.execute(update(trials).where(free).values(status=Status.PLANNED))


def _chose(cell: Cell, fresh: Collection[int]) -> set[int]:
    """Returns the seeds that chose a cell, if it is confirmed on fresh ones."""
    seeds = {trial.seed for trial in cell.trials}
    is_confirmed = cell.index > 0 and not seeds.isdisjoint(fresh)
    return seeds.difference(fresh) if is_confirmed else set()


def _key(cell: Cell) -> str:
    if cell.base is not None:
        return key_of_trial(cell.base)
    return key_of_trial(cell.trials[0]) if cell.trials else ""


def _cells(
    connection: Connection,
    study: int,
    new: Sequence[Cell],
    digests: Mapping[int, str],
    compared: Mapping[int, Comparison],
    fresh: Collection[int],
) -> None:
    tested = Comparison()
    rows = (
        {
            "study_id": study,
            "number": cell.index,
            "role": cell.role,
            "architecture_hash": (
                cell.architecture.hash if cell.architecture and cell.cost else None
            ),
            "same_as": cell.same_as,
            "control_of": cell.control_of,
            "note": cell.note,
            "digest": digests[cell.index],
            "standing": compared.get(cell.index, tested).standing,
            "repeats": compared.get(cell.index, tested).repeats,
            "key": _key(cell),
        }
        for cell in new
    )
    insert_all(connection, cells, rows)
    # A search adds one cell at a time to thousands; reading all their IDs each time
    # would take quadratic time.
    first = min((cell.index for cell in new), default=0)
    of_study = (cells.c.study_id == study) & (cells.c.number >= first)
    ids = {
        number: key
        for key, number in connection.execute(
            select(cells.c.id, cells.c.number).where(of_study)
        )
    }
    level_rows = (row for cell in new for row in _level_rows(cell, ids[cell.index]))
    insert_all(connection, levels, level_rows)
    chose = {cell.index: _chose(cell, fresh) for cell in new}
    trial_rows = (
        {
            "cell_id": ids[cell.index],
            "seed": trial.seed,
            "trial_hash": trial.hash,
            "setting": setting,
            "chose": trial.seed in chose[cell.index],
        }
        for cell in new
        for trial, setting in itertools.zip_longest(cell.trials, cell.settings)
    )
    insert_all(connection, cell_trials, trial_rows)
    tuning_rows = (
        {
            "cell_id": ids[cell.index],
            "stage": at.stage,
            "setting": at.setting,
            "seed": at.trial.seed,
            "trial_hash": at.trial.hash,
        }
        for cell in new
        for at in cell.at_settings
    )
    insert_all(connection, tuning_trials, tuning_rows)


def _level_rows(cell: Cell, cell_id: int) -> Iterator[dict[str, Any]]:
    """The levels of a cell, in their order."""
    for position, (factor, level) in enumerate(cell.levels.items()):
        text_ = str(level).lower() if isinstance(level, bool) else str(level)
        yield {
            "cell_id": cell_id,
            "factor": factor,
            "position": position,
            "level": level,
            "read": factor not in cell.unread,
            "text": text_,
            "number": level if is_number(level) else None,
        }


def key_of(result: Any) -> int:
    return int(result.inserted_primary_key[0])


def existing(
    connection: Connection, column: Any, hashes: list[str], value: Any
) -> dict[str, Any]:
    """Returns those of the wanted keys that are stored, each with a value."""
    values: dict[str, Any] = {}
    for start in range(0, len(hashes), CHUNK):
        rows = connection.execute(
            select(column, value).where(column.in_(hashes[start : start + CHUNK]))
        )
        values.update({row[0]: row[1] for row in rows})
    return values


def put_sources(connection: Connection) -> None:
    """Stores the identity of each user's part, unless its syntax has one."""
    known = set(connection.execute(select(sources.c.syntax)).scalars())
    for texts in registry.texts_of_parts().values():
        if texts.syntax in known:
            continue
        known.add(texts.syntax)
        row = {
            "syntax": texts.syntax,
            "identity": texts.identity,
            "files": dict(texts.files),
        }
        connection.execute(insert(sources), row)


def insert_all(
    connection: Connection, table: Table, rows: Iterable[dict[str, Any]]
) -> None:
    """Inserts rows, a chunk at a time: a plan may have a million of them."""
    rest = iter(rows)
    while chunk := list(itertools.islice(rest, CHUNK)):
        connection.execute(_insertion(table), chunk)


@cache
def _insertion(table: Table) -> Insert:
    return insert(table)
