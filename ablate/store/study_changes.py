"""What people change in a stored study: its name, or that it is there at all.

Neither changes a result. A study with results stays, because later studies that compare
the same rows share its 5 %.
"""

from __future__ import annotations

import re

from sqlalchemy import Connection, delete, exists, func, select, update

from ablate.errors import AblateError
from ablate.records import LONGEST_NAME, STUDY_NAME, Status, base_name
from ablate.store.database import clock
from ablate.store.declarations import group_of
from ablate.store.plans import CHUNK, free_view
from ablate.store.sql_tables import (
    all_cell_trials,
    attempts,
    cells,
    diagnostics,
    drivers,
    epoch_metrics,
    epochs,
    provenance,
    studies,
    trials,
)
from ablate.store.wide_views import drop_view, put_stored

# States of a trial whose metrics somebody may have seen.
WITH_METRICS = (Status.COMPLETED, Status.PRUNED, Status.DIVERGED)


def rename(connection: Connection, old: str, new: str) -> dict[str, str]:
    """Gives a study and its earlier generations another name.

    Returns:
        the new names by the old ones.

    Raises:
        AblateError: the name is not allowed or taken, or a driver trains the study.
    """
    if not re.fullmatch(STUDY_NAME, new) or len(new) > LONGEST_NAME:
        raise AblateError(
            f"'{new}' cannot name a study; use at most {LONGEST_NAME} letters, digits, _,"
            " . and -, with / between the parts of a path"
        )
    if old != base_name(old):
        raise AblateError(
            f"{old} is an earlier generation; rename {base_name(old)}, and it goes with it"
        )
    rows = connection.execute(select(studies).order_by(studies.c.id)).mappings().all()
    names = {row["name"] for row in rows}
    spaces = [row["space"] for row in rows if row["name"] == old]
    if spaces and spaces[0].get("across"):
        raise AblateError(
            f"{old} is a size of {spaces[0]['across']['ladder']}, which names it; write"
            " another name into the file, and run it"
        )
    if new in {base_name(name) for name in names}:
        raise AblateError(f"the store has a study '{new}' already; choose another name")
    _refuse_running(connection, old)
    renamed = {}
    for row in rows:
        if base_name(row["name"]) != old:
            continue
        name = new + row["name"].removeprefix(old)
        drop_view(connection, row["results_view"])
        values = {
            "name": name,
            "results_view": free_view(connection, name),
            "space": {**row["space"], "name": new},
        }
        of_study = studies.c.id == row["id"]
        connection.execute(update(studies).where(of_study).values(**values))
        put_stored(connection, {**row, **values})
        renamed[row["name"]] = name
    return renamed


def remove(connection: Connection, name: str) -> int:
    """Removes a study without results, with its trials that no other study has.

    Returns:
        the number of trials that are removed.

    Raises:
        AblateError: it has results, another study counts it, or a driver trains it.
    """
    study = (
        connection.execute(select(studies).where(studies.c.name == name))
        .mappings()
        .one()
    )
    _refuse_running(connection, name)
    hashes = (
        select(all_cell_trials.c.trial_hash)
        .join(cells, cells.c.id == all_cell_trials.c.cell_id)
        .where(cells.c.study_id == study["id"])
    )
    seen = connection.execute(
        select(func.count())
        .select_from(trials)
        .where(
            trials.c.hash.in_(hashes),
            # Curves of unfinished trials can be seen, too.
            trials.c.status.in_(WITH_METRICS) | (trials.c.epochs_done > 0),
        )
    ).scalar_one()
    if seen:
        raise AblateError(
            f"{name} has {seen} trials with an epoch or a result. It stays in the store,"
            " because studies that compare the same rows share the risk of a false"
            f" verdict. To take it out of the lists: ablate study archive {name}. To free"
            " disk space: ablate disk --free finished"
        )
    _refuse_counted(connection, study["id"], name)
    elsewhere = (
        select(all_cell_trials.c.trial_hash)
        .join(cells, cells.c.id == all_cell_trials.c.cell_id)
        .where(cells.c.study_id != study["id"])
    )
    only_here = select(trials.c.hash).where(
        trials.c.hash.in_(hashes), trials.c.hash.not_in(elsewhere)
    )
    unused = connection.execute(only_here).scalars().all()
    drop_view(connection, study["results_view"])
    connection.execute(delete(cells).where(cells.c.study_id == study["id"]))
    for start in range(0, len(unused), CHUNK):
        chunk = unused[start : start + CHUNK]
        for table in (attempts, epochs, epoch_metrics, diagnostics):
            connection.execute(delete(table).where(table.c.trial_hash.in_(chunk)))
        connection.execute(delete(trials).where(trials.c.hash.in_(chunk)))
    _remove_runs(connection, study["id"], name)
    connection.execute(delete(drivers).where(drivers.c.study_id == study["id"]))
    connection.execute(delete(studies).where(studies.c.id == study["id"]))
    return len(unused)


def _refuse_counted(connection: Connection, number: int, name: str) -> None:
    """Raises AblateError if verdicts of another study follow from this one."""
    rows = [dict(row) for row in connection.execute(select(studies)).mappings()]
    mine = next(row for row in rows if row["id"] == number)
    for other in rows:
        if other["id"] == number or group_of(other) != group_of(mine):
            continue
        if other["created_at"] > mine["created_at"] or group_of(mine) == number:
            raise AblateError(
                f"{other['name']} compares rows on the same seeds, and its verdicts count"
                f" those of {name}; to take it out of the lists: ablate study archive"
                f" {name}"
            )


def _remove_runs(connection: Connection, study: int, name: str) -> None:
    """Removes the runs of a study.

    A run whose attempts at a trial of another study stay is recorded under that study.

    Raises:
        AblateError: a run trained trials that belong to no study now.
    """
    still_used = exists().where(attempts.c.provenance_id == provenance.c.id)
    connection.execute(
        delete(provenance).where(provenance.c.study_id == study, ~still_used)
    )
    left = select(provenance.c.id).where(provenance.c.study_id == study)
    for run in connection.execute(left).scalars().all():
        other = connection.execute(
            select(func.min(cells.c.study_id))
            .join(all_cell_trials, all_cell_trials.c.cell_id == cells.c.id)
            .join(attempts, attempts.c.trial_hash == all_cell_trials.c.trial_hash)
            .where(attempts.c.provenance_id == run)
        ).scalar_one()
        if other is None:
            raise AblateError(
                f"{name} has trained trials that no study lists now, and the store keeps"
                " what it knows of their run; to take the study out of the lists: ablate"
                f" study archive {name}"
            )
        connection.execute(
            update(provenance).where(provenance.c.id == run).values(study_id=other)
        )


def _refuse_running(connection: Connection, name: str) -> None:
    if connection.dialect.name == "sqlite":
        # The lock of the file excludes other drivers.
        return
    running = (
        select(func.count())
        .select_from(drivers)
        .join(studies, studies.c.id == drivers.c.study_id)
        .where(studies.c.name == name, drivers.c.leased_until > clock(connection))
    )
    if connection.execute(running).scalar_one():
        raise AblateError(f"a driver is training {name}; wait until it ends")
