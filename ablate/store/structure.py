"""Checks that the tables of a store are the tables that ablate makes.

A file that somebody else has made may have a view in the place of a table, which never
ends, or lack what keeps rows unique. The check reads the schema only, so it takes
milliseconds for a store of any size.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, UniqueConstraint, text

from ablate.errors import DamagedStore, shortened
from ablate.store.checked import Integer
from ablate.store.queries import address
from ablate.store.sql_tables import metadata

COLUMNS = """
SELECT m.name, x.name, x.hidden, x."notnull", x.pk
FROM sqlite_master m JOIN pragma_table_xinfo(m.name) x WHERE m.type = 'table'"""
UNIQUE = """
SELECT m.name, i.name, c.name
FROM sqlite_master m JOIN pragma_index_list(m.name) i
JOIN pragma_index_xinfo(i.name) c
WHERE m.type = 'table' AND i."unique" AND NOT i.partial AND c."key"
"""

# The schemas that were found to be right.
_known: set[bytes] = set()


def check_file(file: Path) -> None:
    """Checks the schema of a SQLite store.

    Raises:
        DamagedStore: a table is missing, is no table, or is declared in another way.
        sqlite3.Error: the file cannot be read.
    """
    with closing(sqlite3.connect(address(file), uri=True)) as connection:
        schema = hashlib.sha256(repr(_schema(connection)).encode()).digest()
        if schema in _known:
            return
        _check_objects(connection)
        columns: dict[str, dict[str, Any]] = defaultdict(dict)
        for table, *column in connection.execute(COLUMNS):
            columns[table][column[0]] = column[1:]
        unique: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for table, index, name in connection.execute(UNIQUE):
            unique[table][index].add(name)
    for table in metadata.tables.values():
        _check_columns(table, columns[table.name])
        _check_unique(table, unique[table.name].values())
    _known.add(schema)


def _schema(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Returns what decides the check: all but views with names of their own."""
    return [
        row
        for row in connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master"
        )
        if row[0] != "view" or row[1] in metadata.tables
    ]


def _check_objects(connection: sqlite3.Connection) -> None:
    """Checks that tables are tables, and that nothing is done when one changes."""
    kinds = {}
    for kind, name, table, sql in connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master"
    ):
        if kind == "trigger" and table in metadata.tables:
            raise DamagedStore(
                f"'{table}' has a trigger '{shortened(str(name))}', which ablate does"
                " not make"
            )
        is_virtual = str(sql).upper().startswith("CREATE VIRTUAL")
        if kind != "index":
            kinds[name] = "virtual table" if is_virtual else kind
    for name in metadata.tables:
        if name not in kinds:
            raise DamagedStore(f"it has no table '{name}'")
        if kinds[name] != "table":
            raise DamagedStore(f"'{name}' is a {kinds[name]}, not a table")


def _check_columns(table: Table, columns: dict[str, Any]) -> None:
    for column in table.columns:
        full_name = f"{table.name}.{column.name}"
        if column.name not in columns:
            raise DamagedStore(f"it has no column {full_name}")
        hidden, not_null, key = columns[column.name]
        if hidden:
            raise DamagedStore(f"{full_name} is computed, not stored")
        if bool(key) != column.primary_key:
            raise DamagedStore(f"the key of the table '{table.name}' is another one")
        # A key that is one whole number is never NULL.
        is_row_number = list(table.primary_key.columns) == [column] and isinstance(
            column.type, Integer
        )
        if not (not_null or column.nullable or is_row_number):
            raise DamagedStore(f"{full_name} may be NULL")


def _check_unique(table: Table, indexes: Collection[set[str]]) -> None:
    for constraint in table.constraints:
        if not isinstance(constraint, UniqueConstraint):
            continue
        names = {column.name for column in constraint.columns}
        if names not in indexes:
            raise DamagedStore(
                f"{', '.join(sorted(names))} of '{table.name}' may stand there twice"
            )


def check_server(connection: Connection) -> None:
    """Checks that the tables of a store in PostgreSQL are tables.

    Raises:
        DamagedStore: one of them is a view, or is missing.
    """
    rows = connection.execute(
        text(
            "SELECT relname, relkind::text FROM pg_class WHERE relname ="
            " ANY(:tables) AND pg_table_is_visible(oid)"
        ),
        {"tables": list(metadata.tables)},
    )
    kinds = {row[0]: row[1] for row in rows}
    for name in metadata.tables:
        if name not in kinds:
            raise DamagedStore(f"it has no table '{name}'")
        if kinds[name] not in ("r", "p"):
            raise DamagedStore(f"'{name}' is not a table")
