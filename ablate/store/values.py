"""Checks everything that stands in a store: values, references, and rows of studies.

It reads the whole store, so it is for a store that is imported, and for finding out why
one cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Table, exists, select

from ablate.errors import DamagedStore, shortened
from ablate.store.rows import check_metric, check_rows
from ablate.store.sql_tables import cells, metadata, studies

# The most rows in memory at once.
BATCH = 1_000


def check_values(connection: Connection) -> None:
    """Checks everything in a store.

    Raises:
        DamagedStore: something is wrong.
    """
    for table in metadata.tables.values():
        _check_types(connection, table)
        _check_references(connection, table)
    for study in connection.execute(select(studies)).all():
        check_metric(study.name, study.metric, study.space)
        rows = connection.execute(
            select(cells.c.number, cells.c.same_as, cells.c.control_of)
            .where(cells.c.study_id == study.id)
            .order_by(cells.c.number)
        )
        check_rows(study.name, [(row[0], row[1], row[2]) for row in rows])


def _check_types(connection: Connection, table: Table) -> None:
    """Reads all rows. The types of the columns check their values."""
    rows = connection.execution_options(yield_per=BATCH).execute(select(table))
    for row in rows:
        # In Python: SQLite believes its schema, and finds no NULL where none is
        # allowed.
        if None in row:
            _check_nulls(table, row)


def _check_nulls(table: Table, row: Sequence[object]) -> None:
    for column, value in zip(table.columns, row, strict=True):
        if value is None and not column.nullable:
            raise DamagedStore(f"{table.name}.{column.name} is NULL in a row")


def _check_references(connection: Connection, table: Table) -> None:
    for key in table.foreign_keys:
        column, parent = key.parent, key.column
        missing = (
            select(column)
            .where(column.is_not(None), ~exists().where(parent == column))
            .limit(1)
        )
        value = connection.execute(missing).scalar()
        if value is not None:
            raise DamagedStore(
                f"{table.name}.{column.name} refers to {shortened(str(value))}, which"
                f" '{parent.table.name}' does not have"
            )
