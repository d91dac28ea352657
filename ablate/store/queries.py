"""Runs a statement that a user typed: read-only, limited in time and size.

What it guarantees: the statement changes nothing, takes a limited amount of memory, and
ends at its time limit and at Ctrl-C, whatever it does.

How: each statement runs in a process of its own (`store.question_process`), which this
process ends. On SQLite, its connection is read-only, and an authorizer allows only
reading. On PostgreSQL, it is a server-side cursor in a read-only transaction.
`DECLARE CURSOR` takes one query and refuses every other statement, so a statement can
neither end the transaction nor begin another. At the time limit, a second connection
cancels the statement, as it may have changed its own settings.

A role of PostgreSQL may be able to write files, to run programs or to end other
sessions inside a query, through functions; such a role is refused. The role that writes
to the store may end the sessions of running studies, so it is refused if the statement
comes from somebody else than the user.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, text

from ablate.errors import StoreError
from ablate.store import question_process
from ablate.store.question_process import LENGTH, Frame, Question
from ablate.store.sql_tables import metadata
from ablate.text.advice import option

Rows = list[tuple[Any, ...]]
Answer = tuple[list[str], Rows]

# How long a statement of somebody else than the user may take, in seconds: on the
# dashboard and in `ablate mcp`.
OTHERS_SECONDS = 10.0
# The most rows of an answer for them.
OTHERS_ROWS = 1_000
# Set to 1, this variable lets them query with the role that writes to the store.
AS_WRITER_VARIABLE = "ABLATE_QUERY_AS_WRITER"
# The most bytes that are read from the process at once.
CHUNK = 1 << 20
READER_ROLE = (
    "CREATE ROLE ablate_reader LOGIN PASSWORD 'CHOOSE' IN ROLE pg_read_all_data"
)
# Roles whose members may do more than read tables, through functions.
DANGEROUS_ROLES = (
    "pg_write_server_files",
    "pg_read_server_files",
    "pg_execute_server_program",
    "pg_signal_backend",
)
# A statement may change its role to any role of which the session's role is a member.
DANGEROUS = """
SELECT rolname FROM pg_roles
WHERE rolname = session_user AND (
    EXISTS (
        SELECT FROM pg_roles r
        WHERE pg_has_role(session_user, r.oid, 'MEMBER')
            AND (r.rolsuper OR r.rolreplication OR r.rolname = ANY(:dangerous))
    )
)"""
WRITER = """
SELECT session_user FROM pg_class c JOIN pg_roles r
    ON pg_has_role(session_user, r.oid, 'MEMBER')
WHERE c.relkind IN ('r', 'p') AND c.relname = ANY(:tables)
    AND pg_table_is_visible(c.oid)
    AND has_table_privilege(r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
LIMIT 1"""


class TooLong(Exception):
    """The statement was ended at its time limit."""


def ask_sqlite(
    file: Path,
    busy_seconds: float,
    statement: str,
    most: int | None,
    seconds: float | None,
) -> Answer:
    """Runs one statement on a read-only SQLite connection.

    Raises:
        TooLong: it took longer than `seconds`.
        StoreError: SQLite refuses the statement, it takes too much memory, or it
            returns no rows.
    """
    question = {
        "file": address(file),
        "busy_seconds": busy_seconds,
        "statement": statement,
        "most": most,
    }
    return _ask(question, seconds)


def address(file: Path) -> str:
    """Returns the URI with which SQLite opens a file for reading only.

    Beside a copy in a folder that cannot be written to, SQLite could not make the index
    of the log that the file once had. Nothing changes there, so none is needed.
    """
    resolved = file.resolve()
    has_log = resolved.with_name(f"{resolved.name}-wal").exists()
    is_fixed = not has_log and not os.access(resolved.parent, os.W_OK)
    return f"file:{quote(str(resolved))}?mode=ro{'&immutable=1' if is_fixed else ''}"


def ask_postgresql(
    engine: Engine, statement: str, most: int | None, seconds: float | None
) -> Answer:
    """Runs one query on PostgreSQL in a read-only transaction on its own connection.

    Raises:
        TooLong: it took longer than `seconds`.
        StoreError: PostgreSQL refuses the statement, its role may do more than read
            tables, or the answer takes too much memory.
    """
    _refuse_dangerous_role(engine)
    _, server = engine.dialect.create_connect_args(engine.url)
    # How SQLAlchemy converts values.
    server.pop("context", None)
    question = {
        "file": "",
        "server": server,
        "paths": _folders("psycopg", "psycopg_binary", "typing_extensions"),
        "statement": statement,
        "most": most,
    }
    return _ask(question, seconds)


def _folders(*packages: str) -> list[str]:
    """Returns the folders from which packages are imported, as far as they are there."""
    folders = []
    for package in packages:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            continue
        file = Path(spec.origin).resolve()
        folders.append(str(file.parents[1 if spec.submodule_search_locations else 0]))
    return list(dict.fromkeys(folders))


def writing_role(engine: Engine) -> str:
    """Returns the role of PostgreSQL if it may write to the store, else an empty text."""
    with engine.connect() as connection:
        role = connection.execute(text(WRITER), {"tables": list(metadata.tables)})
        return str(role.scalar() or "")


def refuse_writing_role(engine: Engine) -> None:
    """Checks a statement that somebody else than the user wrote.

    Raises:
        StoreError: the role may write to the store, and the user has not allowed this.
    """
    if os.environ.get(AS_WRITER_VARIABLE) == "1":
        return
    role = writing_role(engine)
    if role:
        raise StoreError(
            f"the role '{role}' may write to the store, so a query could end the"
            f" sessions of running studies; {_use_a_reader(engine)}. Set"
            f" {AS_WRITER_VARIABLE}=1 to allow such queries"
        )


def _refuse_dangerous_role(engine: Engine) -> None:
    with engine.connect() as connection:
        role = connection.execute(
            text(DANGEROUS), {"dangerous": list(DANGEROUS_ROLES)}
        ).scalar()
    if role is None:
        return
    raise StoreError(
        f"the role '{role}' has the right to read or write files, to run programs or to"
        " end sessions on the server, so a query could do this;"
        f" {_use_a_reader(engine)}"
    )


def _use_a_reader(engine: Engine) -> str:
    """Returns how to make a role that can only read, and how to use it."""
    url = engine.url.set(username="ablate_reader", password="CHOOSE").render_as_string(
        hide_password=True
    )
    return (
        f"create a role that can only read, with {READER_ROLE}, and query again with"
        f" {option('store')} {url}"
    )


def _ask(question: Question, seconds: float | None) -> Answer:
    """Runs a statement in a process of its own, which ends with this call."""
    deadline = None if seconds is None else monotonic() + seconds
    words = [sys.executable, "-I", "-S", question_process.__file__]
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Ctrl-C reaches this process only, which ends the other one.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError):
            pickle.dump(question, process.stdin)
            process.stdin.flush()
        return _answer(process.stdout.fileno(), deadline)
    finally:
        # The process cancels its statement when this pipe is closed.
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(2 * question_process.GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _answer(pipe: int, deadline: float | None) -> Answer:
    """Reads an answer from the pipe of its process."""
    columns: list[str] = []
    rows: Rows = []
    while True:
        kind, content = _frame(pipe, deadline)
        if kind == "columns":
            columns = content
        elif kind == "rows":
            rows += content
        elif kind == "end":
            return columns, rows
        elif kind == "bug":
            raise RuntimeError(content)
        else:
            raise StoreError(_refusal(kind, content))


def _refusal(kind: str, content: Any) -> str:
    """Returns why there is no answer."""
    memory = question_process.MOST_MEMORY // 1_000_000
    answer = question_process.MOST_BYTES // 1_000_000
    reasons = {
        "too large": (
            f"its answer takes more than {answer} MB; ask for less, as with WHERE or"
            " LIMIT"
        ),
        "no memory": (
            f"it needs more than {memory} MB of memory; ask for less, as with WHERE or"
            " LIMIT"
        ),
        "too deep": "a value of its answer is nested too deeply; ask for a part of it",
        "no text": "its answer has a text that is not valid UTF-8",
        "no rows": "the statement returns no rows; `ablate query` takes one SELECT",
    }
    return reasons.get(kind, str(content))


def _frame(pipe: int, deadline: float | None) -> Frame:
    """Reads one frame.

    Raises:
        TooLong: it did not arrive until the deadline.
        StoreError: the process has ended without it.
    """
    (size,) = LENGTH.unpack(_bytes(pipe, LENGTH.size, deadline))
    frame: Frame = pickle.loads(_bytes(pipe, size, deadline))
    return frame


def _bytes(pipe: int, size: int, deadline: float | None) -> bytearray:
    """Reads so many bytes from a pipe."""
    content = bytearray()
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN)
    while len(content) < size:
        left = None if deadline is None else 1000 * max(0.0, deadline - monotonic())
        if not waiting.poll(left):
            raise TooLong
        chunk = os.read(pipe, min(size - len(content), CHUNK))
        if not chunk:
            raise StoreError(
                "its process has ended, most likely for lack of memory; ask for less,"
                " as with WHERE or LIMIT"
            )
        content += chunk
    return content
