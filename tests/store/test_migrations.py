"""Tables: a converted store has those of a new one with the same verdicts, and a kill
leaves no half of them.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, inspect, text

from ablate.errors import OldStore, StoreError
from ablate.pipeline import Options
from ablate.results.study import Study
from ablate.store.reader import Reader
from ablate.store.sql_tables import metadata
from ablate.store.writer import Writer
from tests.store.desk import TEXT, Desk
from tests.store.postgres import postgres

REVISION_14 = Path(__file__).parent / "revision_14"


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


def older(file: str, name: str) -> None:
    """Makes a store of revision 14."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(dump(name))


def dump(name: str) -> str:
    return gzip.decompress((REVISION_14 / f"{name}.sql.gz").read_bytes()).decode()


def verdicts(study: Study) -> dict[str, list[str]]:
    """The verdict of each row, and why there is none."""
    return {
        str(effect.row): [str(effect.verdict), str(effect.withheld or "")]
        for effect in study.effects()
    }


@pytest.mark.parametrize("name", ["plain", "again", "known"])
def test_a_converted_store_has_the_same_verdicts(name: str, file: str) -> None:
    older(file, name)
    with pytest.raises(OldStore, match="upgrade an older store"):
        Reader(file)
    Writer(file).close()
    before = json.loads((REVISION_14 / f"{name}.json").read_text())
    assert {study: verdicts(Study(study, file)) for study in before} == before
    if name == "again":
        with Reader(file) as reader:
            names = [study.name for study in reader.studies.all()]
        assert names[:4] == ["parts", "parts@1", "parts@2", "parts@3"]
    new = f"{file}.new"
    Writer(new).close()
    with engine_of(f"sqlite:///{new}").connect() as connection:
        created = tables(connection)
    assert len(created) > 100
    with engine_of(f"sqlite:///{file}").connect() as connection:
        assert tables(connection) == created


def test_a_converted_study_is_the_same_study(options: Options) -> None:
    """It trains nothing again, and keeps its level."""
    options.runs.mkdir()
    older(options.url, "plain")
    study = Desk(options).run(TEXT)
    assert study.results().generation.number == 1
    assert study.results().generation.level == pytest.approx(0.045)
    # 0.5 % are left.
    study = Desk(options).run(TEXT.replace("seeds: 4", "seeds: 6"))
    assert study.results().generation.number == 2
    assert study.results().generation.level == pytest.approx(0.0025)


@pytest.mark.slow
def test_so_has_a_converted_store_on_postgresql(server: str) -> None:
    administrator = engine_of(server).execution_options(isolation_level="AUTOCOMMIT")
    with administrator.connect() as connection:
        connection.execute(text("CREATE DATABASE converted"))
    Writer(server).close()
    with engine_of(server).connect() as connection:
        created = tables(connection)
    other = server.removesuffix("/postgres") + "/converted"
    statements = [line for line in dump("server").splitlines() if line[:1] != "\\"]
    with engine_of(other).connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute("\n".join(statements))
        driver.commit()
    Writer(other).close()
    with engine_of(other).connect() as connection:
        assert tables(connection) == created
    before = json.loads((REVISION_14 / "server.json").read_text())
    assert {study: verdicts(Study(study, other)) for study in before} == before


def test_the_tables_are_those_that_the_code_declares(file: str) -> None:
    Writer(file).close()
    with engine_of(f"sqlite:///{file}").connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_an_earlier_store_is_refused_by_its_revision(file: str) -> None:
    older(file, "plain")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0013'")
    for kind in (Reader, Writer):
        with pytest.raises(StoreError, match="revision 0013.* 0014 and later"):
            kind(file)


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


@pytest.mark.parametrize("at", [1, 4, 7])
def test_a_kill_during_the_conversion_leaves_the_older_store(
    at: int, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older(file, "again")
    before = stored_tables(file)
    original, calls = Operations.add_column, 0

    def die(*arguments: object, **more: object) -> object:
        nonlocal calls
        calls += 1
        if calls == at:
            raise Killed
        return original(*arguments, **more)

    monkeypatch.setattr(Operations, "add_column", die)
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
