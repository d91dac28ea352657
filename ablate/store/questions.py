"""Runs a statement that a user typed: read-only, limited in time and size.

SQLite: the statement runs on a read-only connection of its own, whose authorizer allows
only reading. It runs in a thread, so that a time limit and Ctrl-C can interrupt it.

PostgreSQL: the statement runs in a server-side cursor in a read-only transaction.
`DECLARE CURSOR` takes one query and refuses every other statement, so a statement can
neither end the transaction nor begin another. A role that may write files or run
programs on the server could do so inside a query, through functions; such a role is
refused.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing
from time import monotonic
from typing import Any

from sqlalchemy import Engine

from ablate.advice import option
from ablate.errors import StoreError

Rows = list[tuple[Any, ...]]
Answer = tuple[list[str], Rows]

# Memory that the rows of one answer may take in Python, in bytes.
MOST_BYTES = 200_000_000
# The largest value in bytes: SQLite handles one value in one step, and a step cannot be
# interrupted.
MOST_VALUE = 20_000_000
# The longest LIKE pattern in bytes; matching it is one step too.
MOST_PATTERN = 1_000
BATCH = 500
READER_ROLE = (
    "CREATE ROLE ablate_reader LOGIN PASSWORD 'CHOOSE' IN ROLE pg_read_all_data"
)
DANGEROUS_ROLE = """
SELECT rolname FROM pg_roles
WHERE rolname = session_user AND (
    rolsuper
    OR pg_has_role(session_user, 'pg_write_server_files', 'MEMBER')
    OR pg_has_role(session_user, 'pg_execute_server_program', 'MEMBER')
)"""


class TooLong(Exception):
    """The statement was interrupted at its time limit."""


def ask_sqlite(
    connect: Callable[[], sqlite3.Connection],
    statement: str,
    most: int | None,
    seconds: float | None,
) -> Answer:
    """Runs one statement on a read-only SQLite connection.

    Raises:
        TooLong: it took longer than `seconds`.
        StoreError: the answer is too large, or the statement returns no rows.
        sqlite3.Error: SQLite refuses the statement.
    """
    with (
        closing(connect()) as connection,
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="query") as pool,
    ):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MOST_PATTERN)
        answer = pool.submit(_run_sqlite, connection, statement, most)
        try:
            return answer.result(timeout=seconds)
        except FutureTimeout:
            raise TooLong from None
        finally:
            # Interrupting a statement that has ended does nothing. The time limit and
            # Ctrl-C also end up here. The call repeats, as it has no effect on a
            # statement that has not begun.
            while not answer.done():
                connection.interrupt()
                _wait(answer)


def _wait(answer: Any) -> None:
    try:
        answer.exception(timeout=0.05)
    except FutureTimeout:
        return


def _run_sqlite(
    connection: sqlite3.Connection, statement: str, most: int | None
) -> Answer:
    cursor = connection.execute(statement)
    if cursor.description is None:
        raise StoreError(
            "the statement returns no rows; `ablate query` takes one SELECT"
        )
    columns = [column[0] for column in cursor.description]
    return columns, _bounded(_batches(cursor, most))


def ask_postgresql(
    engine: Engine, statement: str, most: int | None, seconds: float | None
) -> Answer:
    """Runs one query on PostgreSQL in a read-only transaction on its own connection.

    Raises:
        TooLong: it took longer than `seconds`.
        StoreError: the role may write through functions, or the answer is too large.
        psycopg.Error: PostgreSQL refuses the statement.
    """
    pooled = engine.raw_connection()
    connection: Any = pooled.driver_connection
    try:
        connection.rollback()
        connection.read_only = True
        _refuse_dangerous_role(connection, engine)
        if seconds is not None:
            connection.execute(f"SET LOCAL statement_timeout = {1000 * seconds:.0f}")
        with connection.cursor(name="ablate_query") as cursor:
            cursor.execute(statement)
            columns = [column.name for column in cursor.description]
            deadline = None if seconds is None else monotonic() + seconds
            return columns, _bounded(_batches(cursor, most), deadline)
    finally:
        # Anything that the statement did to its session (advisory locks, settings) ends
        # with the connection.
        pooled.invalidate()
        pooled.close()


def _refuse_dangerous_role(connection: Any, engine: Engine) -> None:
    role = connection.execute(DANGEROUS_ROLE).fetchone()
    if role is None:
        return
    url = engine.url.set(username="ablate_reader", password="CHOOSE").render_as_string(
        hide_password=True
    )
    raise StoreError(
        f"the role '{role[0]}' has the right to write files or to run programs on the"
        " server, so a query could do this; create a role that can only read, with"
        f" {READER_ROLE}, and query again with {option('store')} {url}"
    )


def _batches(cursor: Any, most: int | None) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yields rows in batches that grow while rows are small.

    A single batch of huge rows would exceed the memory limit before it is checked.
    """
    left = sys.maxsize if most is None else most
    batch = 1
    while left > 0:
        rows = cursor.fetchmany(min(batch, left))
        if not rows:
            return
        left -= len(rows)
        yield rows
        largest = max(_size(row) for row in rows)
        batch = max(1, min(2 * batch, BATCH, MOST_BYTES // 10 // largest))


def _size(row: Sequence[Any]) -> int:
    return sys.getsizeof(row) + sum(map(sys.getsizeof, row))


def _bounded(
    batches: Iterable[Sequence[tuple[Any, ...]]], deadline: float | None = None
) -> Rows:
    """Returns all rows, unless they take too much memory or too long."""
    rows: Rows = []
    size = 0
    for batch in batches:
        size += sum(_size(row) for row in batch)
        rows += [tuple(row) for row in batch]
        if size > MOST_BYTES:
            raise StoreError(
                f"its answer takes more than {MOST_BYTES // 1_000_000} MB; ask for"
                " less, as with WHERE or LIMIT"
            )
        if deadline is not None and monotonic() > deadline:
            raise TooLong
    return rows
