"""The process in which one query runs: `python -I -S question_process.py`.

What it guarantees: the query takes no more memory than `MOST_MEMORY`, it ends when its
parent wants that or is gone, and nothing is imported from the current folder.

How: the parent writes a pickled `Question` to stdin, and keeps this pipe open as long
as it waits. A thread reads the pipe. When it ends, the thread cancels the statement on
the server and ends the process, whatever the other thread is doing. The process writes
pickled frames to stdout, each with its length before it: the columns, batches of rows,
and at the end why there are no more.

What would break it: an import of anything but the standard library (and psycopg, for
PostgreSQL). A daily verb waits until this file has loaded, and the packages of `ablate`
are not on its path.
"""

from __future__ import annotations

import os
import pickle
import resource
import sqlite3
import struct
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

# Memory that this process may take, in bytes. SQLite sorts in it too.
MOST_MEMORY = 600_000_000
# Memory that the rows of one answer may take in Python, in bytes.
MOST_BYTES = 200_000_000
# The largest value of SQLite in bytes.
MOST_VALUE = 20_000_000
# The longest LIKE pattern in bytes: a longer one takes long to match.
MOST_PATTERN = 1_000
# The most rows that are read at once.
BATCH = 500
# Seconds for a server to cancel a statement.
GRACE = 2.0
LENGTH = struct.Struct("!Q")
# SQLite's mark of a function that has no side effects and reads nothing but its
# arguments.
INNOCUOUS = 0x200000
# These have no such mark in some versions of SQLite, and are as harmless.
JSON_FUNCTIONS = ("json", "->")
# How psycopg says that libpq has no memory for a row: after its error, the answer of
# the server follows.
NO_MEMORY = ("out of memory", "received 2 results from command")
ALLOWED = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_TRANSACTION,
)

Row = tuple[Any, ...]
# What is asked: the statement, the most rows, and where. `file` is the address of a
# SQLite file, `server` are the parameters of a connection to PostgreSQL, and `paths`
# are the folders from which to import psycopg.
Question = dict[str, Any]
# The kind of a frame, and its content.
Frame = tuple[str, Any]


class TooLarge(Exception):
    """The rows of the answer take too much memory."""


def read_only(address: str, busy_seconds: float) -> sqlite3.Connection:
    """Returns a connection that cannot write.

    The file is opened for reading, and SQLite's authorizer allows only reading, with
    functions that have no side effects.

    Args:
        address: a URI of SQLite with `mode=ro`.
        busy_seconds: how long to wait for another program that holds the file.
    """
    connection = sqlite3.connect(
        address, uri=True, timeout=busy_seconds, check_same_thread=False
    )
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE)
    try:
        connection.execute("PRAGMA query_only = ON")
        # The views of a store may come from anybody.
        connection.execute("PRAGMA trusted_schema = OFF")
        # Sorting could fill the disk.
        connection.execute("PRAGMA temp_store = MEMORY")
        functions = connection.execute(
            "SELECT name, flags & ? FROM pragma_function_list", (INNOCUOUS,)
        ).fetchall()
    except BaseException:
        connection.close()
        raise
    harmless = {
        name
        for name, is_innocuous in functions
        if is_innocuous or name.startswith(JSON_FUNCTIONS)
    }

    def authorise(
        action: int, first: str | None, second: str | None, *_: object
    ) -> int:
        # SQLAlchemy reads the isolation level when it connects.
        asks_level = (
            action == sqlite3.SQLITE_PRAGMA
            and first == "read_uncommitted"
            and second is None
        )
        calls = action == sqlite3.SQLITE_FUNCTION and str(second).lower() in harmless
        if action in ALLOWED or asks_level or calls:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    connection.set_authorizer(authorise)
    return connection


def _sqlite(question: Question) -> Iterator[Frame]:
    """Yields the answer of SQLite."""
    connection = read_only(question["file"], question["busy_seconds"])
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MOST_PATTERN)
    cursor = connection.execute(question["statement"])
    if cursor.description is None:
        yield "no rows", None
        return
    yield "columns", [column[0] for column in cursor.description]
    yield from _rows(cursor, question["most"])


def _postgresql(question: Question, opened: list[Any]) -> Iterator[Frame]:
    """Yields the answer of PostgreSQL, from a server-side cursor.

    Args:
        opened: gets the connection, for another thread that cancels the statement.
    """
    sys.path += question["paths"]
    import psycopg

    with psycopg.connect(**question["server"]) as connection:
        connection.read_only = True
        opened.append(connection)
        with connection.cursor(name="ablate_query") as cursor:
            cursor.execute(question["statement"])
            description = cursor.description or ()
            yield "columns", [column.name for column in description]
            yield from _rows(cursor, question["most"])
        connection.rollback()


def _rows(cursor: Any, most: int | None) -> Iterator[Frame]:
    """Yields rows in batches that grow while rows are small.

    Raises:
        TooLarge: they take too much memory together.
    """
    left = sys.maxsize if most is None else most
    batch = 1
    size = 0
    while left > 0:
        rows: list[Row] = [tuple(row) for row in cursor.fetchmany(min(batch, left))]
        if not rows:
            return
        left -= len(rows)
        sizes = [memory(row) for row in rows]
        size += sum(sizes)
        if size > MOST_BYTES:
            raise TooLarge
        yield "rows", rows
        batch = max(1, min(2 * batch, BATCH, MOST_BYTES // 10 // max(sizes)))


def memory(row: Sequence[Any]) -> int:
    """Returns the bytes that a row takes, with all that its values contain."""
    size = 0
    values: list[Any] = [row]
    while values:
        value = values.pop()
        size += sys.getsizeof(value)
        if isinstance(value, dict):
            values += value.keys()
            values += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            values += value
    return size


def _answer(question: Question, opened: list[Any]) -> Iterator[Frame]:
    """Yields all frames of an answer; the last one says how it ended."""
    try:
        if question["file"]:
            yield from _sqlite(question)
        else:
            yield from _postgresql(question, opened)
    except TooLarge:
        yield "too large", None
    except MemoryError:
        yield "no memory", None
    except RecursionError:
        yield "too deep", None
    except UnicodeError:
        yield "no text", None
    except Exception as error:
        yield _failure(error)
    else:
        yield "end", None


def _failure(error: Exception) -> Frame:
    """Returns the frame for an error."""
    psycopg = sys.modules.get("psycopg")
    kinds = (sqlite3.Error, sqlite3.Warning, *([psycopg.Error] if psycopg else []))
    if not isinstance(error, kinds):
        return "bug", traceback.format_exc()
    reason = str(error).strip() or type(error).__name__
    if any(sign in reason for sign in NO_MEMORY):
        return "no memory", None
    return "refused", reason


def _leave_with_parent(opened: list[Any]) -> NoReturn:
    """Ends the process when its parent closes stdin or is gone."""
    while os.read(0, 1):
        pass
    for connection in opened:
        # The statement may go on in the server otherwise, and its settings are its own:
        # it may have lifted any limit of time.
        try:
            connection.cancel_safe(timeout=GRACE)
        except Exception:
            break
    os._exit(1)


def _write(packed: bytes) -> None:
    """Writes a frame to stdout."""
    sys.stdout.buffer.write(LENGTH.pack(len(packed)))
    sys.stdout.buffer.write(packed)
    sys.stdout.buffer.flush()


def main() -> NoReturn:
    question: Question = pickle.load(sys.stdin.buffer)
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        resource.setrlimit(limit, (MOST_MEMORY, MOST_MEMORY))
    opened: list[Any] = []
    threading.Thread(target=_leave_with_parent, args=(opened,), daemon=True).start()
    for frame in _answer(question, opened):
        try:
            packed = pickle.dumps(frame, pickle.HIGHEST_PROTOCOL)
        except (MemoryError, RecursionError):
            _write(pickle.dumps(("no memory", None)))
            break
        _write(packed)
    # The other thread still reads.
    os._exit(0)


if __name__ == "__main__":
    main()
