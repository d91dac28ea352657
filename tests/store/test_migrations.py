"""Tables: a new store has those that the migrations make, and a kill leaves no half of
them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command, op
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, inspect, text

from ablate.store import database
from ablate.store.tables import metadata
from ablate.store.writer import Writer
from tests.store.older import to_revision_8
from tests.store.postgres import postgres


class Killed(BaseException):
    pass


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "ablate.db")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


def engine_of(url: str) -> Engine:
    """An engine that keeps no connection open."""
    return create_engine(url, poolclass=NullPool)


def tables(connection: Connection) -> dict[str, object]:
    """What a database says of its tables: all but comments and the order of columns."""
    inspector = inspect(connection)
    found: dict[str, object] = {}
    for table in inspector.get_table_names():
        for column in inspector.get_columns(table):
            column.pop("comment", None)
            found[f"{table}.{column['name']}"] = {
                key: str(value) for key, value in column.items()
            }
        found[f"{table}.primary key"] = inspector.get_pk_constraint(table)
        for constraints in (
            inspector.get_foreign_keys(table),
            inspector.get_indexes(table),
            inspector.get_unique_constraints(table),
            inspector.get_check_constraints(table),
        ):
            for one in constraints:
                found[f"{table}.{one['name']}"] = one
    return found


def migrated(engine: Engine) -> dict[str, object]:
    """The tables that the migrations make, from the first one on."""
    with engine.begin() as connection:
        command.upgrade(database.alembic_config(connection), "head")
    with engine.connect() as connection:
        return tables(connection)


def test_a_new_store_has_the_tables_that_the_migrations_make(file: str) -> None:
    Writer(file).close()
    with engine_of(f"sqlite:///{file}").connect() as connection:
        created = tables(connection)
    assert len(created) > 100
    assert created == migrated(engine_of(f"sqlite:///{file}.migrated"))


@pytest.mark.slow
def test_so_has_a_new_store_on_postgresql(server: str) -> None:
    administrator = engine_of(server).execution_options(isolation_level="AUTOCOMMIT")
    with administrator.connect() as connection:
        connection.execute(text("CREATE DATABASE migrated"))
    Writer(server).close()
    with engine_of(server).connect() as connection:
        created = tables(connection)
    assert len(created) > 100
    other = server.removesuffix("/postgres") + "/migrated"
    assert created == migrated(engine_of(other))


def test_the_migrations_make_what_the_code_declares(file: str) -> None:
    engine = engine_of(f"sqlite:///{file}")
    migrated(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_kill_during_the_creation_leaves_nothing_behind(at: int, file: str) -> None:
    table = metadata.sorted_tables[at]

    def die(*_: object, **__: object) -> None:
        raise Killed

    event.listen(table, "after_create", die)
    try:
        with pytest.raises(Killed):
            Writer(file)
    finally:
        event.remove(table, "after_create", die)
    assert stored_tables(file) == set()
    Writer(file).close()
    assert set(metadata.tables) < stored_tables(file)


@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_kill_during_the_migrations_leaves_the_older_store(
    at: int, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(file).close()
    with sqlite3.connect(file) as older:
        to_revision_8(older)
    older.close()
    before = stored_tables(file)
    original, seen = op.create_table, 0

    def die(*arguments: object, **more: object) -> object:
        nonlocal seen
        seen += 1
        if seen == at:
            raise Killed
        return original(*arguments, **more)

    monkeypatch.setattr(op, "create_table", die)
    with pytest.raises(Killed):
        Writer(file)
    monkeypatch.undo()
    assert stored_tables(file) == before
    Writer(file).close()
    assert set(metadata.tables) < stored_tables(file)


def stored_tables(file: str) -> set[str]:
    """The names of the tables of a SQLite file."""
    with sqlite3.connect(file) as connection:
        found = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        )
        names = {str(name) for (name,) in found}
    connection.close()
    return names
