"""Which results were known before a study declared them.

A row that joins a study after its results are known may have been chosen for them. The
phases of a study (`store.history`) follow from times alone, and would count such a row
like one that was declared at first. So the store keeps the trials that a later
declaration adds although they are completed. A trial that the study drops and takes
back is none of these: the study declared it before it was completed.

What would break it: removing cells of a study without `put_known_trials`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, insert, select

from ablate.records import Status
from ablate.store.moment import after_declarations
from ablate.store.tables import cell_trials, cells, known_trials, trials

CHUNK = 500


def put_known_trials(
    connection: Connection,
    study: int,
    dropped: Collection[str],
    added: Collection[str],
) -> None:
    """Stores the completed trials among those that a study drops or adds.

    Args:
        dropped: hashes of trials that the study has until now.
        added: hashes of trials that it has from now on.
    """
    moment = after_declarations(connection)
    for hashes, declared_at in ((dropped, None), (added, moment)):
        wanted = sorted(hashes)
        for start in range(0, len(wanted), CHUNK):
            _put(connection, study, wanted[start : start + CHUNK], declared_at)


def _put(
    connection: Connection,
    study: int,
    hashes: list[str],
    declared_at: datetime | None,
) -> None:
    """Stores the completed trials among some, unless they are stored."""
    stored = select(known_trials.c.trial_hash).where(known_trials.c.study_id == study)
    new = select(trials.c.hash).where(
        trials.c.hash.in_(hashes),
        trials.c.status == Status.COMPLETED,
        trials.c.hash.not_in(stored),
    )
    rows = [
        {"study_id": study, "trial_hash": key, "declared_at": declared_at}
        for key in connection.execute(new).scalars()
    ]
    if rows:
        connection.execute(insert(known_trials), rows)


def declared_late(connection: Connection, study: int) -> set[str]:
    """Returns the hashes of the trials that a study declared after their results."""
    late = select(known_trials.c.trial_hash).where(
        known_trials.c.study_id == study, known_trials.c.declared_at.is_not(None)
    )
    return set(connection.execute(late).scalars())


def declared_by(connection: Connection, study: int) -> set[str]:
    """Returns the hashes of the trials that a study has, or has dropped."""
    present = (
        select(cell_trials.c.trial_hash)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .where(cells.c.study_id == study)
    )
    dropped = select(known_trials.c.trial_hash).where(
        known_trials.c.study_id == study, known_trials.c.declared_at.is_(None)
    )
    return set(connection.execute(present.union(dropped)).scalars())


def copy_known_trials(connection: Connection, source: int, study: int) -> None:
    """Gives a study that is declared like another one what that one knew."""
    theirs = select(known_trials.c.trial_hash, known_trials.c.declared_at).where(
        known_trials.c.study_id == source
    )
    rows = [{"study_id": study, **row} for row in connection.execute(theirs).mappings()]
    if rows:
        connection.execute(insert(known_trials), rows)


def known_when_declared(
    connection: Connection, study: int
) -> dict[tuple[int, int], datetime]:
    """Returns when the study declared trials that were completed then, in UTC.

    Those that it declared at first are left out: their times tell (`History.phase_of`).

    Returns:
        the times by the key of the cell and the seed.
    """
    wanted = (
        select(cell_trials.c.cell_id, cell_trials.c.seed, known_trials.c.declared_at)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .join(
            known_trials,
            (known_trials.c.study_id == cells.c.study_id)
            & (known_trials.c.trial_hash == cell_trials.c.trial_hash),
        )
        .where(cells.c.study_id == study, known_trials.c.declared_at.is_not(None))
    )
    return {
        (row.cell_id, row.seed): row.declared_at for row in connection.execute(wanted)
    }
