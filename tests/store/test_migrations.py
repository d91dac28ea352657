"""Tables: those that the code declares; a later version adds to them and keeps the
results, and a kill leaves no half of them.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, inspect

from ablate.errors import StoreError
from ablate.pipeline import Options
from ablate.results.study import Study
from ablate.store import database, migrations
from ablate.store.migrations import FIRST
from ablate.store.reader import Reader
from ablate.store.sql_tables import metadata
from ablate.store.writer import Writer
from tests.store.desk import TEXT, Desk
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


def test_the_tables_are_those_that_the_code_declares(file: str) -> None:
    Writer(file).close()
    with engine_of(f"sqlite:///{file}").connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


@pytest.mark.parametrize(
    ("revision", "remedy"),
    [
        ("r0004", f"reads stores of revision {FIRST} and later"),
        ("t0001", "use the newer version that wrote it"),
    ],
)
def test_a_store_of_another_version_is_refused_by_its_revision(
    revision: str, remedy: str, file: str
) -> None:
    Writer(file).close()
    set_revision(file, revision)
    for kind in (Reader, Writer):
        with pytest.raises(StoreError, match=f"revision {revision}.*{remedy}"):
            kind(file)


# What a later version would bring: a table more.
NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "s0004", "s0003", None, None

def upgrade():
    op.create_table("later", sa.Column("id", sa.Integer(), primary_key=True))
    op.create_index("ix_later_id", "later", ["id"])
"""


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of ablate whose newest revision has a table more."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder)
    (folder / "versions" / "rev_s0004.py").write_text(NEXT)
    original = database.alembic_config

    def config(connection: Connection) -> Config:
        made = original(connection)
        made.set_main_option("script_location", str(folder))
        return made

    monkeypatch.setattr(database, "alembic_config", config)
    monkeypatch.setattr(database, "HEAD", "s0004")


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
def test_a_later_version_upgrades_a_store_and_keeps_its_results(
    kind: str,
    file: str,
    options: Options,
    server: str,
    request: pytest.FixtureRequest,
) -> None:
    url = file if kind == "SQLite" else server
    study = Desk(replace(options, store=url)).run(TEXT)
    before = study.table("json")
    request.getfixturevalue("next_version")
    with pytest.raises(StoreError, match="upgrade an older store"):
        Reader(url)
    Writer(url).close()
    with engine_of(url if "://" in url else f"sqlite:///{url}").connect() as connection:
        assert inspect(connection).has_table("later")
    assert Study(study.name, url).table("json") == before


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


@pytest.mark.parametrize("operation", ["create_table", "create_index"])
@pytest.mark.usefixtures("next_version")
def test_a_kill_during_an_upgrade_leaves_the_older_store(
    operation: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(database, "HEAD", FIRST)
        Writer(file).close()
    before = stored_tables(file)

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as killed, pytest.raises(Killed):
        killed.setattr(Operations, operation, die)
        Writer(file)
    assert stored_tables(file) == before
    Writer(file).close()
    assert stored_tables(file) == {*before, "later"}


def set_revision(file: str, revision: str) -> None:
    """Gives a store the revision of another version."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))


def stored_tables(file: str) -> set[str]:
    """The names of the tables of a SQLite file."""
    with sqlite3.connect(file) as connection:
        found = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        )
        names = {str(name) for (name,) in found}
    connection.close()
    return names
