"""The stores of disturbed studies: a SQLite file in the run folder, or a private
PostgreSQL.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine, NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

Rows = list[tuple[object, ...]]


class Kind(StrEnum):
    """What keeps a study."""

    SQLITE = "SQLite"
    POSTGRESQL = "PostgreSQL"


# By the name on the command line: the kinds of store of a run of faults.
KINDS = {
    "sqlite": (Kind.SQLITE,),
    "postgresql": (Kind.POSTGRESQL,),
    "both": tuple(Kind),
}
# Where both kinds are used: studies on SQLite for each one on PostgreSQL.
SQLITE_STUDIES = 2


class Store(Protocol):
    """Where one study is stored. `runs` is its run folder, which moves."""

    kind: Kind

    def url(self, runs: Path) -> str:
        """What names the store on the command line of `ablate`."""

    def rows(self, runs: Path, statement: str, values: tuple[object, ...]) -> Rows:
        """What the store answers; nothing while it cannot be read."""


class SqliteStore:
    """The file in the run folder."""

    kind = Kind.SQLITE

    def url(self, runs: Path) -> str:
        return str(runs / "ablate.db")

    def rows(self, runs: Path, statement: str, values: tuple[object, ...]) -> Rows:
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(_read_only(runs / "ablate.db")) as connection,
        ):
            return list(connection.execute(statement, values))
        return []


class PostgresStore:
    """A database of a server."""

    kind = Kind.POSTGRESQL

    def __init__(self, url: str, engine: Engine) -> None:
        self._url, self._engine = url, engine

    def url(self, runs: Path) -> str:
        return self._url

    def rows(self, runs: Path, statement: str, values: tuple[object, ...]) -> Rows:
        with contextlib.suppress(SQLAlchemyError), self._engine.connect() as connection:
            found = connection.exec_driver_sql(statement.replace("?", "%s"), values)
            return [tuple(row) for row in found]
        return []


def kind_of(study: int, kinds: tuple[Kind, ...]) -> Kind:
    """The kind of store of the study of this number."""
    if len(kinds) == 1:
        return kinds[0]
    return Kind.POSTGRESQL if study % (SQLITE_STUDIES + 1) == 1 else Kind.SQLITE


@contextmanager
def postgres_database(server: str, name: str) -> Iterator[PostgresStore]:
    """An empty database of a server, dropped at the end."""
    admin = create_engine(server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    url = f"{server.rpartition('/')[0]}/{name}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield PostgresStore(url, engine)
    finally:
        engine.dispose()
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@contextmanager
def store_of(kind: Kind, server: str) -> Iterator[Store]:
    """A store of a kind.

    `server` is the URL of the PostgreSQL server, for PostgreSQL only.
    """
    if kind == Kind.SQLITE:
        yield SqliteStore()
        return
    with postgres_database(server, f"faults_{os.urandom(6).hex()}") as made:
        yield made


def _read_only(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=2)
