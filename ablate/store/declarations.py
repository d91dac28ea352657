"""What was declared of a study, and when: each space under its name, in order.

A verdict holds for a declaration that was made before its results. The store therefore
keeps every declaration, not only the last one, even if nothing trains after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select

from ablate.records import Space, Status
from ablate.space_data import to_data
from ablate.store.tables import cell_trials, cells, declarations, trials


@dataclass(frozen=True)
class Declaration:
    """One declaration of a study.

    Attributes:
        declared_at: in UTC.
        space: the resolved space as plain data (`ablate.space_data`).
        completed: how many trials of the study were completed at that time.
    """

    declared_at: datetime
    space: Mapping[str, Any]
    completed: int


def put_declaration(
    connection: Connection, study: int, space: Space, moment: datetime
) -> None:
    """Stores a declaration, unless it equals the last one of the study.

    The cells that are stored are still those of the last declaration.
    """
    # Tuples are lists once they are stored.
    data = json.loads(json.dumps(to_data(space)))
    last = (
        select(declarations.c.space)
        .where(declarations.c.study_id == study)
        .order_by(declarations.c.id.desc())
        .limit(1)
    )
    if connection.execute(last).scalar() == data:
        return
    completed = (
        select(func.count(trials.c.hash.distinct()))
        .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .where(cells.c.study_id == study, trials.c.status == Status.COMPLETED)
    )
    connection.execute(
        insert(declarations).values(
            study_id=study,
            declared_at=moment,
            document=space.document,
            space=data,
            completed=connection.execute(completed).scalar() or 0,
        )
    )


def declarations_of(connection: Connection, study: int) -> list[Declaration]:
    """Returns the declarations of a study, the first one first."""
    wanted = (
        select(
            declarations.c.declared_at, declarations.c.space, declarations.c.completed
        )
        .where(declarations.c.study_id == study)
        .order_by(declarations.c.id)
    )
    return [Declaration(*row) for row in connection.execute(wanted)]
