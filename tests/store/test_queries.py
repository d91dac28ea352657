"""A statement that somebody types only reads, ends in time and takes little memory: on
SQLite and on PostgreSQL.

The tests of limits measure the time, and the memory of both processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import create_engine, text

from ablate.errors import StoreError
from ablate.store import database, queries, question_process
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
            connection.execute(text(queries.READER_ROLE))
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


@pytest.mark.parametrize("statement", WRITES)
def test_on_postgresql_no_statement_writes_even_for_the_owner(
    statement: str, owner: str
) -> None:
    with Reader(owner) as reader, pytest.raises(StoreError, match="the query failed"):
        reader.query(statement)
    assert stores(owner) == 1
    assert not Path("/tmp/ablate-test-program").exists()


def test_a_role_that_may_write_files_is_refused_with_the_line_that_makes_a_reader(
    server: str, owner: str
) -> None:
    with Reader(server) as reader, pytest.raises(StoreError) as refused:
        reader.query("SELECT 1")
    assert queries.READER_ROLE in str(refused.value)
    with Reader(server.replace("postgres@", "ablate_reader:CHOOSE@")) as reader:
        assert reader.query("SELECT COUNT(*) AS stores FROM stores") == (
            ["stores"],
            [(1,)],
        )
        assert reader.studies.all() == []
    with Reader(owner) as reader:
        assert reader.query("SELECT 'x%s' AS word") == (["word"], [("x%s",)])


def test_what_a_statement_leaves_in_its_session_ends_with_it(owner: str) -> None:
    with Reader(owner) as reader:
        reader.query(f"SELECT pg_advisory_lock({database.ADVISORY_LOCK})")
        # A session that kept the lock would make every writer wait.
        Writer(owner).close()


# Runs a query, and says its error and the peak of memory of both processes.
MEASURED = """
import json, resource, sys
from ablate.errors import StoreError
from ablate.store.reader import Reader

def peak(who):
    return resource.getrusage(who).ru_maxrss * 1024

url, statement, seconds = json.load(sys.stdin)
reader = Reader(url)
reader.query("SELECT 1")
before = peak(resource.RUSAGE_SELF)
error = ""
try:
    reader.query(statement, seconds=seconds)
except StoreError as refused:
    error = str(refused)
here = peak(resource.RUSAGE_SELF) - before
print(json.dumps([error, here, peak(resource.RUSAGE_CHILDREN)]))
"""
# What the operating system takes beside the rows of an answer, in bytes.
SLACK = 100_000_000


class Measured:
    """A query that runs in a process of its own.

    Attributes:
        error: why it was refused; empty if it was not.
        seconds: how long it took.
    """

    def __init__(self, url: str, statement: str, seconds: float | None = None) -> None:
        began = time.monotonic()
        said = subprocess.run(
            [sys.executable, "-c", MEASURED],
            input=json.dumps([url, statement, seconds]),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=100,
        ).stdout
        self.seconds = time.monotonic() - began
        self.error, here, there = json.loads(said)
        assert here < question_process.MOST_BYTES + SLACK, f"{here / 1e6:.0f} MB here"
        assert there < question_process.MOST_MEMORY, f"{there / 1e6:.0f} MB there"


def waits(check: object) -> None:
    """Waits until a condition holds, for at most 5 s."""
    assert callable(check)
    deadline = time.monotonic() + 5
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running(url: str) -> int:
    """The number of statements that run on a server, but for this one."""
    engine = create_engine(url)
    with engine.connect() as connection:
        count = connection.execute(
            text(
                "SELECT COUNT(*) FROM pg_stat_activity WHERE state <> 'idle' AND pid <>"
                " pg_backend_pid() AND backend_type = 'client backend'"
            )
        ).scalar_one()
    engine.dispose()
    return int(count)


POSTGRESQL_ENDLESS = [
    "SELECT pg_sleep(300)",
    (
        "SELECT set_config('statement_timeout', '0', true) UNION ALL SELECT"
        " count(*)::text FROM generate_series(1, 10000000000) a"
    ),
    (
        "SELECT set_config('statement_timeout', '0', false) UNION ALL SELECT"
        " pg_sleep(300)::text"
    ),
    "SELECT set_config('lock_timeout', '0', false), pg_sleep(300)",
    "SELECT pg_sleep(0.2) FROM generate_series(1, 10000)",
    "SELECT count(*) FROM generate_series(1, 10000000000) a",
    (
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT 1 FROM c) SELECT count(*)"
        " FROM c"
    ),
]


@pytest.mark.proof
@pytest.mark.parametrize("statement", POSTGRESQL_ENDLESS)
def test_postgresql_keeps_to_its_time(statement: str, server: str, owner: str) -> None:
    measured = Measured(owner, statement, seconds=1)
    assert "the query failed: it took longer than 1 s; ask for less" in measured.error
    assert measured.seconds < 10
    waits(lambda: running(server) == 0)


@pytest.mark.proof
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT repeat('x', 1000000000)",
        "SELECT repeat('x', 1000000) FROM generate_series(1, 1000000)",
        "SELECT array_agg(md5(g::text)) FROM generate_series(1, 6000000) g",
        "SELECT array_agg(g) FROM generate_series(1, 6000000) g",
        "SELECT json_agg(g) FROM generate_series(1, 6000000) g",
        "SELECT jsonb_object_agg(g::text, g) FROM generate_series(1, 2000000) g",
        "SELECT convert_to(repeat('x', 500000000), 'UTF8')",
        "SELECT (10::numeric ^ 100000)::numeric FROM generate_series(1, 10000)",
        "SELECT ROW(repeat('x', 100000000), repeat('y', 100000000))",
        "SELECT g, g, g, g, g, g FROM generate_series(1, 10000000) g",
        "SELECT (repeat('[', 4000) || repeat(']', 4000))::json",
    ],
)
def test_postgresql_keeps_to_its_size(statement: str, owner: str) -> None:
    measured = Measured(owner, statement, seconds=60)
    assert "ask for" in measured.error, measured.error
    assert "it took longer" not in measured.error


def test_most_rows_are_enough(owner: str) -> None:
    with Reader(owner) as reader:
        _, rows = reader.query("SELECT generate_series(1, 100000)", most=1000)
    assert len(rows) == 1000


def test_what_a_statement_makes_is_gone_afterwards(server: str, owner: str) -> None:
    with Reader(owner) as reader:
        reader.query("SELECT lo_create(0)")
    engine = create_engine(server)
    with engine.connect() as connection:
        count = connection.execute(text("SELECT COUNT(*) FROM pg_largeobject_metadata"))
        assert count.scalar_one() == 0
    engine.dispose()


KILLS = [
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'owner'",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'owner'",
    (
        "SELECT set_config('role', 'owner', false) UNION ALL SELECT"
        " pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE usename = 'owner'"
    ),
]


@pytest.mark.parametrize("statement", KILLS)
def test_the_role_that_reads_cannot_end_a_session_of_the_owner(
    statement: str, server: str, owner: str
) -> None:
    engine = create_engine(owner)
    with (
        engine.connect() as session,
        Reader(server.replace("postgres@", "ablate_reader:CHOOSE@")) as reader,
    ):
        assert session.execute(text("SELECT 1")).scalar_one() == 1
        with pytest.raises(StoreError, match="the query failed: .*ermission|must be a"):
            reader.query(statement, by_others=True)
        assert session.execute(text("SELECT 2")).scalar_one() == 2
    engine.dispose()


@pytest.mark.proof
def test_others_cannot_query_with_a_role_that_may_write(
    server: str, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = create_engine(server)
    with engine.begin() as connection:
        # It may become the owner, but does not have the rights of the owner at first.
        connection.execute(text("CREATE ROLE member LOGIN NOINHERIT IN ROLE owner"))
        connection.execute(text("CREATE ROLE inserter LOGIN"))
        connection.execute(text("GRANT SELECT, INSERT ON trials TO inserter"))
        connection.execute(text("GRANT SELECT ON alembic_version TO member, inserter"))
    engine.dispose()
    for role in ("owner", "member", "inserter"):
        with Reader(server.replace("postgres@", f"{role}@")) as reader:
            assert reader.writing_role() == role
            assert reader.query("SELECT 1 AS x") == (["x"], [(1,)])
            with pytest.raises(StoreError) as refused:
                reader.query("SELECT 1 AS x", by_others=True)
            assert f"the role '{role}' may write to the store" in str(refused.value)
            assert queries.READER_ROLE in str(refused.value)
    monkeypatch.setenv(queries.AS_WRITER_VARIABLE, "1")
    with Reader(owner) as reader:
        assert reader.query("SELECT 1 AS x", by_others=True) == (["x"], [(1,)])


@pytest.mark.parametrize(
    "right",
    [
        "IN ROLE pg_signal_backend",
        "IN ROLE pg_read_server_files",
        "IN ROLE pg_write_server_files NOINHERIT",
        "REPLICATION",
    ],
)
def test_a_role_with_rights_over_the_server_is_refused(right: str, server: str) -> None:
    engine = create_engine(server)
    with engine.begin() as connection:
        connection.execute(text("DROP ROLE IF EXISTS strong"))
        connection.execute(text(f"CREATE ROLE strong LOGIN {right}"))
        connection.execute(text("GRANT SELECT ON alembic_version TO strong"))
    with (
        Reader(server.replace("postgres@", "strong@")) as reader,
        pytest.raises(StoreError, match="the role 'strong' has the right"),
    ):
        reader.query("SELECT 1")
    with engine.begin() as connection:
        connection.execute(text("DROP OWNED BY strong"))
        connection.execute(text("DROP ROLE strong"))
    engine.dispose()


@pytest.mark.proof
@pytest.mark.parametrize(
    "statement",
    [
        ENDLESS,
        (
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"
            " sum(length(hex(randomblob(9000000)))) FROM c"
        ),
        # One step each.
        (
            "SELECT instr(hex(zeroblob(9500000)), substr(hex(zeroblob(4500000)), 2) ||"
            " '1')"
        ),
        "SELECT printf('%.*c', 2000000000, 'x') IS NULL FROM (SELECT 1)",
        "SELECT hex(zeroblob(9000000)) LIKE '%' || hex(zeroblob(450)) || '1%0%1%0%1%2'",
        "SELECT replace(hex(zeroblob(9000000)), '00000000000000', randomblob(3))",
        "SELECT count(*) FROM pragma_function_list, " + ENDLESS.join("()"),
    ],
)
def test_sqlite_keeps_to_its_time(statement: str, url: str) -> None:
    measured = Measured(url, statement, seconds=0.5)
    assert measured.seconds < 10
    # Some of them are refused before, or have ended.
    if statement == ENDLESS:
        assert "it took longer than 0.5 s; ask for less" in measured.error


@pytest.mark.proof
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
        "SELECT " + ", ".join(["hex(zeroblob(9000000))"] * 60),
        (
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x,"
            " x, x, x, x FROM c"
        ),
        # Sorted in memory.
        (
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"
            " randomblob(10000) AS b FROM c ORDER BY b"
        ),
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION SELECT x + 1 FROM c) SELECT * FROM c",
    ],
)
def test_sqlite_keeps_to_its_size(statement: str, url: str) -> None:
    measured = Measured(url, statement, seconds=60)
    assert "ask for less" in measured.error or "too big" in measured.error


@pytest.mark.parametrize(
    "call",
    [
        "load_extension('x')",
        "fts3_tokenizer('simple')",
        "fts3_tokenizer('simple', x'0000000000000000')",
        "LOAD_EXTENSION('x', 'y')",
        "writefile('/tmp/x', 'y')",
        "readfile('/etc/passwd')",
        "edit('x')",
    ],
)
def test_sqlite_allows_no_function_with_side_effects(call: str, url: str) -> None:
    with Reader(url) as reader, pytest.raises(StoreError, match="the query failed"):
        reader.query(f"SELECT {call}")


def test_sqlite_has_its_usual_functions(url: str) -> None:
    with Reader(url) as reader:
        _, rows = reader.query(
            "SELECT round(avg(x), 1), json_extract('[1, 2]', '$[1]'), '{\"a\": 3}' ->>"
            " 'a', upper('x') LIKE 'X', count(*), sqrt(max(x)), date('2026-01-01') FROM"
            " (SELECT 1 AS x UNION ALL SELECT 4)"
        )
    assert rows == [(2.5, 2, 3, 1, 2, 2.0, "2026-01-01")]


def test_a_query_imports_nothing_from_the_current_folder(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("sqlite3", "pickle", "struct", "resource", "sitecustomize", "psycopg"):
        (folder / f"{name}.py").write_text("open('/dev/full', 'w').write('x')")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with Reader(url) as reader:
        assert reader.query("SELECT 1 AS x") == (["x"], [(1,)])


# A process with an endless query.
ASKING = """
import sys
from ablate.store.reader import Reader
Reader(sys.argv[1]).query(sys.argv[2])
"""


def asking(url: str, statement: str) -> tuple[subprocess.Popen[bytes], psutil.Process]:
    """Starts an endless query; returns its process and that of the statement."""
    parent = subprocess.Popen(
        [sys.executable, "-c", ASKING, url, statement], stderr=subprocess.DEVNULL
    )
    waits(lambda: psutil.Process(parent.pid).children())
    (child,) = psutil.Process(parent.pid).children()
    waits(lambda: child.cpu_times().user > 0.1 or "postgresql" in url)
    return parent, child


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_query_ends_with_its_parent(number: int, url: str) -> None:
    one_step = "SELECT printf('%.*c', 2000000000, 'x')"
    for statement in (ENDLESS, one_step):
        parent, child = asking(url, statement)
        began = time.monotonic()
        parent.send_signal(number)
        parent.wait(timeout=10)
        waits(lambda child=child: not child.is_running())
        assert time.monotonic() - began < 3


@pytest.mark.proof
def test_a_query_on_postgresql_ends_with_its_parent(server: str, owner: str) -> None:
    parent, child = asking(owner, POSTGRESQL_ENDLESS[1])
    waits(lambda: running(server) == 1)
    parent.kill()
    parent.wait()
    waits(lambda: running(server) == 0 and not child.is_running())


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
