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
from ablate.store.plans import free_view
from ablate.store.sql_tables import (
    attempts,
    cell_trials,
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
    if new in {base_name(name) for name in names}:
        raise AblateError(f"the store has a study '{new}' already; choose another name")
    _refuse_running(connection, old)
    renamed = {}
    for row in rows:
        if base_name(row["name"]) != old:
            continue
        name = new + row["name"].removeprefix(old)
        drop_view(connection, row["results_view"])
        values = {"name": name, "results_view": free_view(connection, name)}
        if row["space"] is not None:
            values["space"] = {**row["space"], "name": new}
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
        select(cell_trials.c.trial_hash)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .where(cells.c.study_id == study["id"])
    )
    listed = set(connection.execute(hashes).scalars())
    with_result = connection.execute(
        select(func.count())
        .select_from(trials)
        .where(trials.c.hash.in_(hashes), trials.c.status.in_(WITH_METRICS))
    ).scalar_one()
    if with_result:
        raise AblateError(
            f"{name} has {with_result} trials with a result. It stays in the store, because"
            " studies that compare the same rows share the risk of a false verdict. To"
            f" take it out of the lists: ablate study archive {name}. To free disk space:"
            " ablate disk --free finished"
        )
    for row in connection.execute(
        select(studies.c.id, studies.c.name, studies.c.lineage)
    ).all():
        counted = connection.execute(
            select(cells.c.earlier).where(cells.c.study_id == row.id)
        ).scalars()
        refers = any(study["id"] == number for pairs in counted for number, _ in pairs)
        if row.id != study["id"] and (row.lineage == study["id"] or refers):
            raise AblateError(
                f"{row.name} compares the same rows and counts {name} as an earlier"
                f" study; to take it out of the lists: ablate study archive {name}"
            )
    drop_view(connection, study["results_view"])
    connection.execute(delete(cells).where(cells.c.study_id == study["id"]))
    unused = listed - set(
        connection.execute(
            select(cell_trials.c.trial_hash).where(cell_trials.c.trial_hash.in_(listed))
        ).scalars()
    )
    for table in (attempts, epochs, epoch_metrics, diagnostics):
        connection.execute(delete(table).where(table.c.trial_hash.in_(unused)))
    connection.execute(delete(trials).where(trials.c.hash.in_(unused)))
    _remove_runs(connection, study["id"])
    connection.execute(delete(drivers).where(drivers.c.study_id == study["id"]))
    connection.execute(delete(studies).where(studies.c.id == study["id"]))
    return len(unused)


def _remove_runs(connection: Connection, study: int) -> None:
    """Removes the runs of a study.

    A run whose attempts at a trial of another study stay is recorded under that study.
    """
    still_used = exists().where(attempts.c.provenance_id == provenance.c.id)
    connection.execute(
        delete(provenance).where(provenance.c.study_id == study, ~still_used)
    )
    left = select(provenance.c.id).where(provenance.c.study_id == study)
    for run in connection.execute(left).scalars().all():
        other = connection.execute(
            select(func.min(cells.c.study_id))
            .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
            .join(attempts, attempts.c.trial_hash == cell_trials.c.trial_hash)
            .where(attempts.c.provenance_id == run)
        ).scalar_one()
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
