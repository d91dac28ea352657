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

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, Insert, Table, delete, func, insert, select, update

from ablate.advice import option
from ablate.errors import StoreError
from ablate.identity import Canonical, content_hash
from ablate.records import VARIED, Cell, Space, Status, Trial
from ablate.space_data import to_data
from ablate.store import views
from ablate.store.declarations import put_declaration, put_first_declaration
from ablate.store.known_trials import put_known_trials
from ablate.store.moment import after_results, now
from ablate.store.tables import (
    architectures,
    cell_trials,
    cells,
    levels,
    studies,
    trials,
)
from ablate.store.wide_views import is_number

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
    connection: Connection, space: Space, file: str, code: Mapping[str, str]
) -> tuple[int, bool]:
    """Stores the declaration of a study beside earlier ones.

    Args:
        code: the versions of the user's own parts.

    Returns:
        the number of the study, and whether an earlier declaration differs.
    """
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
    }
    known = connection.execute(
        select(studies.c.id, studies.c.file).where(studies.c.name == space.name)
    ).first()
    if known is not None:
        found, declared_by = known
        # Two files that declare a study of one name are probably a mistake if this one
        # does not choose the name with `name:`. A file that was moved or deleted is no
        # conflict.
        other = (
            Path(declared_by).resolve() != Path(file).resolve()
            and Path(declared_by).is_file()
        )
        if other and not space.named:
            raise StoreError(
                f"{declared_by} declares a study '{space.name}' too; write `name:` in"
                f" {file}, or use another {option('store')}"
            )
        # First, because it notes whether the study had ended.
        differs = put_declaration(
            connection, int(found), space, code, after_results(connection)
        )
        connection.execute(
            update(studies).where(studies.c.id == found).values(**values)
        )
        return int(found), differs
    view = views.results_view_name(space.name)
    taken = connection.execute(
        select(func.count()).where(studies.c.results_view == view)
    ).scalar()
    made = connection.execute(
        insert(studies).values(
            name=space.name, results_view=view, created_at=now(), **values
        )
    )
    study = key_of(made)
    # Two names may become one once they are reduced to letters, digits and underscores;
    # the study's number makes the view's name unique.
    if taken:
        connection.execute(
            update(studies)
            .where(studies.c.id == study)
            .values(results_view=f"{view}_{study}")
        )
    put_first_declaration(connection, study, space, code, after_results(connection))
    return study, False


def put_cells(
    connection: Connection,
    study: int,
    planned: Sequence[Cell],
    revision: int,
    again: Sequence[Status],
    rest: Rest,
    begun: Collection[str] = (),
    *,
    declared_again: bool = False,
) -> None:
    """Stores cells that are not stored yet, with their architectures and trials.

    No trial is removed.

    Args:
        again: states of trials that should be trained again, unless they have `begun`
            in this run.
        rest: what happens to the study's other cells; see `Rest`.
        declared_again: whether the plan is that of a new declaration. If it is not, all
            seeds of a cell were declared before, also those that it gets only now.
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
    if stored:
        # A search proposes cells that may be known by then.
        added = [cell for cell in new if declared_again or cell.index not in stored]
        removed = changed if declared_again else []
        _note_known_trials(connection, study, removed, added)
    for start in range(0, len(changed), CHUNK):
        gone = cells.c.number.in_(changed[start : start + CHUNK])
        connection.execute(delete(cells).where(cells.c.study_id == study, gone))
    # For all planned cells, not only new ones: costs may have been counted by an older
    # revision of the rules, and trials may be due again.
    _architectures(connection, planned, revision)
    _trials(
        connection,
        [trial for cell in planned for trial in cell.trials if trial.hash not in begun],
        again,
    )
    _cells(connection, study, new, digests)


def _note_known_trials(
    connection: Connection, study: int, removed: Sequence[int], new: Sequence[Cell]
) -> None:
    """Notes which completed trials a study drops or adds by its declaration.

    Args:
        removed: the numbers of the stored cells that will be deleted.
        new: the cells that will be inserted.
    """
    before: set[str] = set()
    for start in range(0, len(removed), CHUNK):
        wanted = (
            select(cell_trials.c.trial_hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .where(
                cells.c.study_id == study,
                cells.c.number.in_(removed[start : start + CHUNK]),
            )
        )
        before.update(connection.execute(wanted).scalars())
    after: set[str] = set()
    for cell in new:
        after.update(trial.hash for trial in cell.trials)
    put_known_trials(connection, study, dropped=before - after, added=after - before)


def _digest(cell: Cell) -> str:
    if cell.architecture and cell.cost:
        architecture = cell.architecture.hash
    else:
        architecture = None
    # A list of pairs instead of a mapping: the order of the levels is that of the
    # columns, and it must count.
    levels_: list[Canonical] = [[name, level] for name, level in cell.levels.items()]
    trained: list[Canonical] = [[trial.seed, trial.hash] for trial in cell.trials]
    place: list[Canonical] = [cell.role, cell.control_of, cell.same_as, cell.note]
    return content_hash([*place, architecture, sorted(cell.unread), levels_, trained])


def _architectures(
    connection: Connection, planned: Sequence[Cell], revision: int
) -> None:
    by_hash = {
        cell.architecture.hash: (cell.architecture, cell.cost)
        for cell in planned
        if cell.architecture and cell.cost
    }
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
    wanted = {trial.hash: trial for trial in planned}
    stored = existing(connection, trials.c.hash, list(wanted), trials.c.status)
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
        for key, trial in wanted.items()
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


def _cells(
    connection: Connection, study: int, new: Sequence[Cell], digests: Mapping[int, str]
) -> None:
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
        }
        for cell in new
    )
    insert_all(connection, cells, rows)
    # A search adds one cell at a time to thousands; reading all their IDs each time
    # would take quadratic time.
    first = min((cell.index for cell in new), default=0)
    mine = (cells.c.study_id == study) & (cells.c.number >= first)
    ids = {
        number: key
        for key, number in connection.execute(
            select(cells.c.id, cells.c.number).where(mine)
        )
    }
    level_rows = (row for cell in new for row in _level_rows(cell, ids[cell.index]))
    insert_all(connection, levels, level_rows)
    trial_rows = (
        {"cell_id": ids[cell.index], "seed": trial.seed, "trial_hash": trial.hash}
        for cell in new
        for trial in cell.trials
    )
    insert_all(connection, cell_trials, trial_rows)


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
    connection: Connection, column: Any, wanted: list[str], value: Any
) -> dict[str, Any]:
    """Returns those of the wanted keys that are stored, each with a value."""
    values: dict[str, Any] = {}
    for start in range(0, len(wanted), CHUNK):
        rows = connection.execute(
            select(column, value).where(column.in_(wanted[start : start + CHUNK]))
        )
        values.update({row[0]: row[1] for row in rows})
    return values


def insert_all(
    connection: Connection, table: Table, rows: Iterable[dict[str, Any]]
) -> None:
    """Inserts rows, a chunk at a time: a plan may have a million of them."""
    rest = iter(rows)
    while chunk := list(islice(rest, CHUNK)):
        connection.execute(_insertion(table), chunk)


@cache
def _insertion(table: Table) -> Insert:
    return insert(table)
