"""What was declared of a study, and when: each space under its name, in order.

A verdict holds for a declaration that was made before its results. The store therefore
keeps every declaration, not only the last one, even if nothing trains after it, and
with each what the results could have said by then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select

from ablate.records import RESOLVED, Space, Status
from ablate.redeclared import changed_parts
from ablate.space_data import to_data
from ablate.store.known_trials import copy_known_trials
from ablate.store.tables import cell_trials, cells, declarations, studies, trials

# What identifies a trial beside its architecture and its seed.
IDENTITY = ("recipe", "data", "code", "start", "teacher", "vary")
# Fewer seeds give no verdict.
FEWEST_SEEDS = 2


@dataclass(frozen=True)
class Declaration:
    """One declaration of a study.

    Attributes:
        declared_at: in UTC.
        space: the resolved space as plain data (`ablate.space_data`).
        completed: how many trials of the study were completed at that time.
        compared: how many rows had two completed seeds in common with row 0.
        unfinished: how many trials of the study had not ended.
        trained: the seeds that had completed trials.
    """

    declared_at: datetime
    space: Mapping[str, Any]
    completed: int
    compared: int = 0
    unfinished: int = 0
    trained: Sequence[int] = ()


def put_declaration(
    connection: Connection,
    study: int,
    space: Space,
    code: Mapping[str, str],
    moment: datetime,
) -> bool:
    """Stores a declaration, unless it equals the last one of the study.

    The study and its cells are still those of the last declaration.

    Args:
        code: the versions of the user's own parts.

    Returns:
        whether it was stored.
    """
    new = new_declaration(connection, study, space, code, moment)
    if new is not None:
        _put(connection, study, space.document, new)
    return new is not None


def put_first_declaration(
    connection: Connection,
    study: int,
    space: Space,
    code: Mapping[str, str],
    moment: datetime,
) -> None:
    """Stores the declaration of a new study.

    If another study is declared in the same way, this one has its history too: only the
    name is new.
    """
    other, declared = inherited(connection, space, code)
    for declaration in declared:
        _put(connection, study, space.document, declaration)
    if other is not None:
        copy_known_trials(connection, other, study)
    put_declaration(connection, study, space, code, moment)


def inherited(
    connection: Connection, space: Space, code: Mapping[str, str]
) -> tuple[int | None, list[Declaration]]:
    """Returns a study that was last declared like this space, with its declarations.

    None and an empty list if there is none.
    """
    data = declared_data(space, code)
    last = select(func.max(declarations.c.id)).group_by(declarations.c.study_id)
    wanted = (
        select(declarations.c.study_id, declarations.c.space)
        .where(declarations.c.id.in_(last))
        .order_by(declarations.c.id)
    )
    found: tuple[int | None, list[Declaration]] = (None, [])
    for study, declared in connection.execute(wanted).all():
        if changed_parts(declared, data):
            continue
        history = declarations_of(connection, study)
        # The longest one: a short history must not hide it.
        if len(history) > len(found[1]):
            found = (study, history)
    return found


def declared_data(space: Space, code: Mapping[str, str]) -> dict[str, Any]:
    """Returns what is declared as it is stored."""
    # Tuples are lists once they are stored.
    data: dict[str, Any] = json.loads(json.dumps(to_data(space)))
    if code:
        data["code"] = dict(code)
    return data


def _put(connection: Connection, study: int, document: str, new: Declaration) -> None:
    connection.execute(
        insert(declarations).values(study_id=study, document=document, **vars(new))
    )


def new_declaration(
    connection: Connection,
    study: int,
    space: Space,
    code: Mapping[str, str],
    moment: datetime,
) -> Declaration | None:
    """Returns the declaration of a space, or None if the last one is equal.

    Args:
        study: it is still that of the last declaration, with its cells.
        code: the versions of the user's own parts.
        moment: in UTC.
    """
    data = declared_data(space, code)
    last = (
        select(declarations.c.space)
        .where(declarations.c.study_id == study)
        .order_by(declarations.c.id.desc())
        .limit(1)
    )
    before = connection.execute(last).scalar()
    if before == data:
        return None
    by_status = _by_status(connection, study)
    unfinished = sum(
        count for status, count in by_status.items() if status not in RESOLVED
    )
    if before is not None and is_searching(connection, study, before):
        unfinished = max(1, unfinished)
    return Declaration(
        declared_at=moment,
        space=data,
        completed=by_status.get(Status.COMPLETED, 0),
        compared=_compared_rows(connection, study),
        unfinished=unfinished,
        trained=_completed_seeds(connection, study),
    )


def is_searching(
    connection: Connection, study: int, space: Mapping[str, Any] | None
) -> bool:
    """Whether a study is a search that has not ended: it may still propose cells."""
    if not space or not space.get("strategy"):
        return False
    ended = select(studies.c.finished_at).where(studies.c.id == study)
    return connection.execute(ended).scalar() is None


def _by_status(connection: Connection, study: int) -> dict[str, int]:
    """Returns the number of the study's trials with each status."""
    counted = (
        select(trials.c.status, func.count(trials.c.hash.distinct()).label("number"))
        .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .where(cells.c.study_id == study)
        .group_by(trials.c.status)
    )
    return {row.status: row.number for row in connection.execute(counted)}


def _compared_rows(connection: Connection, study: int) -> int:
    """Returns the number of rows that can be compared with row 0."""
    completed = (
        select(cells.c.id, cells.c.number, cell_trials.c.seed)
        .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
        .join(trials, trials.c.hash == cell_trials.c.trial_hash)
        .where(cells.c.study_id == study, trials.c.status == Status.COMPLETED)
        .where(cells.c.role != "control")
        .subquery()
    )
    reference = select(completed.c.seed).where(completed.c.number == 0)
    rows = (
        select(completed.c.id)
        .where(completed.c.number > 0, completed.c.seed.in_(reference))
        .group_by(completed.c.id)
        .having(func.count() >= FEWEST_SEEDS)
        .subquery()
    )
    return connection.execute(select(func.count()).select_from(rows)).scalar_one()


def _completed_seeds(connection: Connection, study: int) -> list[int]:
    """Returns the seeds of the study's completed trials."""
    wanted = (
        select(cell_trials.c.seed)
        .distinct()
        .join(trials, trials.c.hash == cell_trials.c.trial_hash)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .where(cells.c.study_id == study, trials.c.status == Status.COMPLETED)
    )
    return sorted(connection.execute(wanted).scalars())


def declarations_of(connection: Connection, study: int) -> list[Declaration]:
    """Returns the declarations of a study, the first one first."""
    wanted = (
        select(
            declarations.c.declared_at,
            declarations.c.space,
            declarations.c.completed,
            declarations.c.compared,
            declarations.c.unfinished,
            declarations.c.trained,
        )
        .where(declarations.c.study_id == study)
        .order_by(declarations.c.id)
    )
    return [Declaration(*row) for row in connection.execute(wanted)]


def was_a_variant(connection: Connection, study: int) -> bool:
    """Whether another study compares row 0 of this one with a row 0 of its own.

    It may then be the row 0 of this study because of what was found there.
    """
    own = (
        select(cell_trials.c.trial_hash)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .where(cells.c.study_id == study, cells.c.number == 0)
    )
    elsewhere = (
        select(func.count())
        .select_from(cell_trials)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .where(
            cells.c.study_id != study,
            cells.c.number > 0,
            cells.c.role == "variant",
            cell_trials.c.trial_hash.in_(own),
        )
    )
    return connection.execute(elsewhere).scalar_one() > 0


def seeds_of_row_0_left_out(
    connection: Connection, study: int, begin: datetime
) -> set[int]:
    """Returns seeds of row 0 that were trained before a study, which lacks them.

    Row 0 may be known when a study is declared, but then with all of its seeds: with
    chosen ones, each row would differ from it.

    Args:
        begin: when the study was declared, in UTC.
    """
    identity = [trials.c[name] for name in IDENTITY]
    own = (
        select(trials.c.seed, trials.c.architecture_hash, *identity)
        .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .where(cells.c.study_id == study, cells.c.number == 0)
    )
    mine = connection.execute(own).all()
    if not mine:
        return set()
    other = select(trials.c.seed, trials.c.architecture_hash, *identity).where(
        trials.c.architecture_hash == mine[0].architecture_hash,
        trials.c.status == Status.COMPLETED,
        trials.c.ended_at < begin,
    )
    wanted = but_for_the_seed(mine[0]._asdict())
    known = {
        row.seed
        for row in connection.execute(other)
        if but_for_the_seed(row._asdict()) == wanted
    }
    return known - {row.seed for row in mine}


def but_for_the_seed(trial: Mapping[str, Any]) -> str:
    """Returns what identifies a trial beside its network and what its seed decides."""
    identity = {key: trial[key] for key in IDENTITY}
    identity["data"] = without_split(trial["data"])
    return json.dumps(identity, sort_keys=True)


def without_split(data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns data without the seed of their split."""
    return {key: value for key, value in data.items() if key != "split"}
