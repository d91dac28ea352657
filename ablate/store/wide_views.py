"""The wide view of each study: one column for each factor, metric and cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select, text

from ablate.records import Metric, Space, is_number
from ablate.store import views
from ablate.store.space_data import across_of, confirms, metrics_of, tune_of
from ablate.store.sql_tables import cells, levels, studies


def put_declared(connection: Connection, study: int, space: Space) -> None:
    """Creates or replaces the view of a study by its declaration."""
    name = connection.execute(
        select(studies.c.results_view).where(studies.c.id == study)
    ).scalar_one()
    numeric = {
        factor: all(map(is_number, listed))
        for factor, listed in space.factors.levels.items()
    }
    if space.control:
        numeric["size.width"] = True
    metrics = space.criterion.metrics
    connection.execute(text(f'DROP VIEW IF EXISTS "{name}"'))
    statement = views.results_view(
        name,
        study,
        numeric,
        metrics,
        space.tune,
        space.across,
        confirms=bool(space.confirmation_seeds),
    )
    connection.exec_driver_sql(statement)


def put_stored(connection: Connection, study: Mapping[str, Any]) -> None:
    """Creates the view of a stored study by the levels of its cells.

    Args:
        study: its row in the table `studies`.
    """
    numeric, metrics = _columns(connection, study)
    data = study["space"]
    connection.exec_driver_sql(
        views.results_view(
            study["results_view"],
            study["id"],
            numeric,
            metrics,
            tune_of(data),
            across_of(data),
            confirms=confirms(data),
        )
    )


def query_of(connection: Connection, study: Mapping[str, Any]) -> str:
    """Returns the query of the wide view of a stored study.

    The view itself may have been made by somebody else.

    Args:
        study: its row in the table `studies`.
    """
    numeric, metrics = _columns(connection, study)
    data = study["space"]
    return views.results_query(
        study["id"],
        numeric,
        metrics,
        tune_of(data),
        across_of(data),
        confirms=confirms(data),
    )


def _columns(
    connection: Connection, study: Mapping[str, Any]
) -> tuple[dict[str, bool], tuple[Metric, ...]]:
    """Returns the factors of a stored study, and its metrics.

    A factor is True if all of its levels are numbers.
    """
    rows = connection.execute(
        select(levels.c.factor, levels.c.number)
        .join(cells, cells.c.id == levels.c.cell_id)
        .where(cells.c.study_id == study["id"])
        .order_by(cells.c.number, levels.c.position)
    )
    numeric: dict[str, bool] = {}
    for factor, number in rows:
        numeric[factor] = numeric.get(factor, True) and number is not None
    return numeric, metrics_of(study["space"])


def drop_view(connection: Connection, name: str) -> None:
    """Drops the wide view with that name."""
    quoted = name.replace('"', '""')
    connection.exec_driver_sql(f'DROP VIEW IF EXISTS "{quoted}"')


def drop_all(connection: Connection) -> None:
    """Drops the views of all studies, before a migration changes a table."""
    names = connection.execute(text("SELECT results_view FROM studies")).scalars()
    for name in names.all():
        drop_view(connection, name)


def put_all(connection: Connection) -> None:
    """Creates the views of all studies after a migration."""
    for study in connection.execute(select(studies)).mappings().all():
        put_stored(connection, dict(study))
