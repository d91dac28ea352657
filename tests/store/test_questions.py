"""A statement that somebody types only reads, ends in time and takes little memory: on
SQLite and on PostgreSQL.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from ablate.errors import StoreError
from ablate.store import database, questions
from ablate.store.reader import Reader
from ablate.store.writer import Writer
from tests.store.postgres import postgres

ENDLESS = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*)"
    " FROM c"
)
WRITES = [
    "DELETE FROM epochs",
    "COMMIT",
    "COMMIT; DELETE FROM stores; SELECT 1",
    "COMMIT; DROP TABLE epochs; SELECT 1",
    "SELECT 1; DELETE FROM stores",
    "ROLLBACK; BEGIN; DELETE FROM stores; COMMIT",
    "SET TRANSACTION READ WRITE",
    "SELECT 1 INTO stolen",
    "CREATE TABLE stolen (x INT)",
    "WITH gone AS (DELETE FROM stores RETURNING 1) SELECT * FROM gone",
    "COPY (SELECT 1) TO PROGRAM 'touch /tmp/ablate-test-program'",
    "COPY stores TO '/tmp/ablate-test-program'",
    "DO $$ BEGIN DELETE FROM stores; END $$",
    "CALL nothing()",
    "VACUUM",
    (
        "SELECT set_config('transaction_read_only', 'off', false),"
        " nextval('studies_id_seq')"
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A store in PostgreSQL, with a role that owns it and one that only reads."""
    with postgres() as url:
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text("CREATE ROLE owner LOGIN"))
            connection.execute(text("GRANT ALL ON SCHEMA public TO owner"))
            connection.execute(text(questions.READER_ROLE))
        engine.dispose()
        writer = Writer(url.replace("postgres@", "owner@"))
        assert writer.store_id
        writer.close()
        yield url


@pytest.fixture
def owner(server: str) -> str:
    return server.replace("postgres@", "owner@")


@pytest.fixture
def url(tmp_path: Path) -> str:
    with Writer(str(tmp_path / "ablate.db")) as writer:
        assert writer.store_id
    return str(tmp_path / "ablate.db")


def stores(url: str) -> int:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = int(
            connection.execute(text("SELECT COUNT(*) FROM stores")).scalar_one()
        )
    engine.dispose()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("statement", WRITES)
def test_on_postgresql_no_statement_writes_even_for_the_owner(
    statement: str, owner: str
) -> None:
    with Reader(owner) as reader, pytest.raises(StoreError, match="the query failed"):
        reader.query(statement)
    assert stores(owner) == 1
    assert not Path("/tmp/ablate-test-program").exists()


@pytest.mark.slow
def test_a_role_that_may_write_files_is_refused_with_the_line_that_makes_a_reader(
    server: str, owner: str
) -> None:
    with Reader(server) as reader, pytest.raises(StoreError) as refused:
        reader.query("SELECT 1")
    assert questions.READER_ROLE in str(refused.value)
    with Reader(server.replace("postgres@", "ablate_reader:CHOOSE@")) as reader:
        assert reader.query("SELECT COUNT(*) AS stores FROM stores") == (
            ["stores"],
            [(1,)],
        )
        assert reader.studies() == []
    with Reader(owner) as reader:
        assert reader.query("SELECT 'x%s' AS word") == (["word"], [("x%s",)])


def test_what_a_statement_leaves_in_its_session_ends_with_it(owner: str) -> None:
    with Reader(owner) as reader:
        reader.query(f"SELECT pg_advisory_lock({database.ADVISORY_LOCK})")
        # A session that kept the lock would make every writer wait.
        Writer(owner).close()


@pytest.mark.slow
def test_postgresql_keeps_to_time_and_size(owner: str) -> None:
    with Reader(owner) as reader:
        began = time.monotonic()
        with pytest.raises(StoreError, match="it took longer than 1 s"):
            reader.query("SELECT pg_sleep(30)", seconds=1)
        with pytest.raises(StoreError, match="takes more than 200 MB"):
            reader.query("SELECT repeat('x', 1000000) FROM generate_series(1, 1000000)")
        assert time.monotonic() - began < 20
        assert (
            len(reader.query("SELECT generate_series(1, 100000)", most=1000)[1]) == 1000
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        ENDLESS,
        (
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"
            " sum(length(hex(randomblob(9000000)))) FROM c"
        ),
    ],
)
def test_sqlite_keeps_to_its_time(statement: str, url: str) -> None:
    began = time.monotonic()
    with (
        Reader(url) as reader,
        pytest.raises(StoreError, match=r"it took longer than 0.5 s; ask for less"),
    ):
        reader.query(statement, seconds=0.5)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "statement",
    [
        (
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"
            " hex(zeroblob(1000000)) FROM c"
        ),
        "SELECT randomblob(1000000000)",
        (
            "SELECT group_concat(hex(zeroblob(1000000))) FROM (WITH RECURSIVE c(x) AS"
            " (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 500) SELECT x FROM c)"
        ),
    ],
)
def test_sqlite_keeps_to_its_size(statement: str, url: str) -> None:
    with Reader(url) as reader, pytest.raises(StoreError, match="200 MB|too big"):
        reader.query(statement)


@pytest.mark.slow
def test_ctrl_c_ends_an_endless_query(url: str) -> None:
    alarm = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    began = time.monotonic()
    with Reader(url) as reader, pytest.raises(KeyboardInterrupt):
        alarm.start()
        reader.query(ENDLESS)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1; SELECT 2",
        "ATTACH '/tmp/ablate-test-copy.db' AS x",
        "PRAGMA journal_mode",
    ],
)
def test_sqlite_takes_one_reading_statement(statement: str, url: str) -> None:
    with (
        Reader(url) as reader,
        pytest.raises(StoreError, match="a query can only read: one SELECT"),
    ):
        reader.query(statement)


def test_a_database_with_tables_of_others_is_refused(server: str) -> None:
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE DATABASE shop"))
    engine.dispose()
    shop = server.removesuffix("/postgres") + "/shop"
    engine = create_engine(shop)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE customers (name TEXT)"))
    engine.dispose()
    assert not database.exists(server.removesuffix("/postgres") + "/template1")
    with pytest.raises(StoreError, match="database of another program"):
        database.exists(shop)
    with pytest.raises(StoreError, match="database of another program"):
        Writer(shop)
