"""Opens the database, for the one writer or for readers.

The writer holds the lock, and creates the tables or runs migrations. Readers cannot
write.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import (
    Connection,
    Dialect,
    Engine,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ablate.errors import DamagedStore, MissingStore, StoreError, shortened
from ablate.machine.environment import seconds
from ablate.machine.provenance import install_extra
from ablate.store import question_process, structure, views, wide_views
from ablate.store.lock import check_file
from ablate.store.migrations import FIRST, HEAD
from ablate.store.queries import address
from ablate.store.sql_tables import metadata
from ablate.text import advice
from ablate.text.advice import option
from ablate.text.masking import masked

if TYPE_CHECKING:
    from alembic.config import Config

T = TypeVar("T")
P = ParamSpec("P")

# How long to wait for another program that holds the database file.
BUSY_SECONDS = seconds("ABLATE_BUSY_SECONDS", 30)
RETRY_SECONDS = 0.2
# What the codes of PostgreSQL for an ended connection begin with: a shutdown, a crash or
# a start of the server (57P01 to 57P03), and the class of connection errors.
ENDED_CONNECTIONS = ("57P", "08")
# The most compiled statements that are kept.
MOST_STATEMENTS = 2_000
# Seconds that a first connection waits for a server that may be restarting.
FIRST_SECONDS = 2.0
# The key of our advisory lock in PostgreSQL: `ablate` in ASCII.
ADVISORY_LOCK = 0x61626C617465


class LostConnection(StoreError):
    """The connection to the server ended during a transaction."""


class Statements(dict[Any, Any]):
    """Compiled statements that all engines of one kind share.

    SQLAlchemy keeps them by dialect, and each engine has a dialect of its own, so that
    every store that is opened would compile all its statements again. Dialects of one
    class that are configured alike compile alike.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        """Returns the compiled statement of a key."""
        return super().get(_without_dialect(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= MOST_STATEMENTS:
            self.clear()
        super().__setitem__(_without_dialect(key), value)


def _without_dialect(key: Any) -> Any:
    return tuple(type(part) if isinstance(part, Dialect) else part for part in key)


_OF_WRITERS = {"compiled_cache": Statements()}
_OF_READERS = {"compiled_cache": Statements()}


def sqlite_file(url: str) -> Path | None:
    """Returns the file of a SQLite URL; None for other databases.

    A plain path is a SQLite file too.
    """
    if "://" not in url:
        return Path(url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(
            f"{option('store')} is no database URL; write a file as in runs/ablate.db, or"
            " sqlite:///runs/ablate.db"
        ) from None
    if not parsed.drivername.startswith("sqlite"):
        return None
    if not parsed.database or parsed.database == ":memory:":
        raise StoreError(
            f"{option('store')} '{url}' is a database in memory, which is lost when"
            " the process ends; write a file as in runs/ablate.db"
        )
    return Path(parsed.database)


def _server(url: str) -> Engine:
    try:
        # A connection that a restart of the server has ended is replaced when it is
        # taken from the pool.
        engine = create_engine(url, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        if error.name == "psycopg":
            raise StoreError(
                f"{option('store')} {masked(url)} needs a package that is not"
                f" installed: {install_extra('postgresql')}"
            ) from None
        raise StoreError(
            f"{option('store')} '{masked(url)}' cannot be used: {error}; write a file"
            " as in runs/ablate.db, or postgresql+psycopg://USER@HOST/DB"
        ) from None
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise StoreError(
            f"{option('store')} '{masked(url)}' cannot be used: {error}; write a file"
            " as in runs/ablate.db, or postgresql+psycopg://USER@HOST/DB"
        ) from None
    _wait_for_restarts(engine)
    return engine


def patient(transact: Callable[P, T]) -> Callable[P, T]:
    """Calls a function again if a restart of the server has ended its connection.

    It must be one that may be done twice.
    """

    @wraps(transact)
    def transact_patiently(*args: P.args, **options: P.kwargs) -> T:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return transact(*args, **options)
            except LostConnection:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)

    return transact_patiently


# The servers that this process has reached.
_reached: set[URL] = set()


def _wait_for_restarts(engine: Engine) -> None:
    """Makes connections wait while the server restarts, for BUSY_SECONDS at most.

    The first connection of this process waits for FIRST_SECONDS only: its address may
    be wrong.
    """
    url = engine.url

    def connect(dialect: Any, record: Any, words: Any, options: Any) -> Any:
        patience = BUSY_SECONDS if url in _reached else FIRST_SECONDS
        deadline = time.monotonic() + patience
        while True:
            try:
                connection = dialect.connect(*words, **options)
            except dialect.loaded_dbapi.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                _reached.add(url)
                return connection

    event.listen(engine, "do_connect", connect)


@patient
def open_writer(url: str) -> Engine:
    """Returns an engine that may write, with tables of the newest revision.

    Raises:
        StoreError: the database cannot be opened, or a newer version wrote it.
    """
    file = sqlite_file(url)
    if file is not None:
        with _readable_errors(url):
            _create_file(file)
        engine = create_engine(
            URL.create("sqlite", database=str(file)),
            execution_options={**_OF_WRITERS, "file": file},
        )
        event.listen(engine, "connect", _pragmas)
        # Python's driver would commit before each CREATE TABLE, and a kill between two
        # of them would leave half a database. IMMEDIATE takes the write lock at the
        # start: a transaction that reads first and writes later could fail halfway.
        event.listen(
            engine,
            "begin",
            lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"),
        )
    else:
        engine = _server(url)
    try:
        with _readable_errors(url), engine.begin() as connection:
            exclude_drivers(connection)
            revision = _revision(connection)
            _refuse_foreign(connection, revision, url)
            if revision is None:
                _create(connection)
            elif revision != HEAD:
                _upgrade(connection, revision)
            else:
                _check_structure(connection, file)
    except BaseException:
        # Also after Ctrl-C: a connection must not stay open.
        engine.dispose()
        raise
    fold_log(engine)
    return engine


def _create_file(file: Path) -> None:
    """Creates a store if there is no file yet.

    It does so before SQLite keeps a log beside the file, so that a store that has a log
    always has tables in its file.
    """
    if file.exists() and file.stat().st_size:
        return
    engine = create_engine(URL.create("sqlite", database=str(file)))
    event.listen(engine, "connect", _by_hand)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            # Another command may have made it meanwhile.
            if not inspect(connection).get_table_names():
                _create(connection)
    finally:
        engine.dispose()


def fold_log(engine: Engine) -> None:
    """Moves what SQLite has committed from its log into the file of the store.

    The file alone is then a copy of the store. Until then a small store may be in
    `FILE-wal` only. While a reader holds the log, or the disk is full, the next call
    moves the rest.
    """
    if engine.dialect.name != "sqlite":
        return
    # The statement goes past SQLAlchemy, so its errors are those of the driver.
    refused = (DatabaseError, sqlite3.Error)
    with contextlib.suppress(*refused), engine.connect() as connection:
        raw: Any = connection.connection.driver_connection
        raw.execute("PRAGMA wal_checkpoint(PASSIVE)")


@patient
def exists(url: str) -> bool:
    """Whether there is a store at a URL. Creates nothing.

    Raises:
        StoreError: the database cannot be opened, or belongs to another program.
    """
    file = sqlite_file(url)
    if file is not None:
        check_file(file)
        if not file.exists() or not file.stat().st_size:
            return False
        engine = create_engine("sqlite://", creator=lambda: read_only(file))
    else:
        engine = _server(url)
    try:
        with _readable_errors(url), engine.connect() as connection:
            revision = _revision(connection)
            _refuse_foreign(connection, revision, url)
            return revision is not None
    finally:
        engine.dispose()


def _refuse_foreign(connection: Connection, revision: str | None, url: str) -> None:
    """Raises StoreError if the tables belong to another program."""
    tables = set(inspect(connection).get_table_names()) - {"alembic_version"}
    ours = "cell_trials" in tables if revision is not None else not tables
    if ours:
        return
    some = ", ".join(sorted(tables)[:3])
    raise StoreError(
        f"{masked(url)} is a database of another program (it has"
        f" {some or 'no table of ablate'}); name another file for the store with"
        f" {option('store')}, as in runs/ablate.db"
    )


def file_of(connection: Connection) -> Path | None:
    """Returns the file of a store that is open; None for one on a server."""
    return connection.get_execution_options().get("file")


def exclude_drivers(connection: Connection) -> None:
    """Keeps other drivers out of the same code until the transaction ends.

    On SQLite every write transaction is exclusive anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"))


def clock(connection: Connection) -> float:
    """Returns seconds since 1970 by the clock of the database.

    Leases compare these times, and the clocks of two drivers may differ.
    """
    if connection.dialect.name == "postgresql":
        asked = "extract(epoch FROM clock_timestamp())"
    else:
        asked = "(julianday('now') - 2440587.5) * 86400"
    return float(connection.execute(text(f"SELECT {asked}")).scalar_one())


@patient
def open_reader(url: str) -> Engine:
    """Returns an engine that cannot write.

    Raises:
        StoreError: there is no database, or its revision is not the one of this
            version.
    """
    file = sqlite_file(url)
    if file is None:
        engine = _server(url)
        event.listen(
            engine,
            "begin",
            lambda connection: connection.exec_driver_sql("SET TRANSACTION READ ONLY"),
        )
    elif not file.exists():
        raise MissingStore(
            f"there is no store at {file}; `ablate run FILE` makes one, and"
            f" {option('store')} names another one"
        )
    else:
        check_file(file)
        engine = create_engine(
            "sqlite://",
            creator=lambda: read_only(file),
            json_deserializer=_json,
            execution_options={**_OF_READERS, "file": file},
        )
    try:
        with _readable_errors(url), engine.connect() as connection:
            revision = _revision(connection)
            if revision == HEAD:
                _check_structure(connection, file)
            if revision not in (None, HEAD):
                _refuse_foreign(connection, revision, url)
        if revision is None:
            raise StoreError(
                f"{masked(url)} is no ablate store; {option('store')} names another"
            )
        if revision > HEAD:
            raise StoreError(
                f"{masked(url)} has revision {shortened(revision)}, and this version of ablate"
                f" reads {HEAD}; use the newer version that wrote it"
            )
        if revision < FIRST:
            raise StoreError(
                f"{masked(url)} has revision {shortened(revision)}; this version of ablate"
                f" reads stores of revision {FIRST} and later ones"
            )
        if revision != HEAD:
            raise StoreError(
                f"{masked(url)} has revision {shortened(revision)}, but this version of ablate"
                f" reads {HEAD}; `ablate run` and `ablate resume` upgrade an older"
                " store"
            )
    except BaseException:
        # Also after Ctrl-C: a connection must not stay open.
        engine.dispose()
        raise
    return engine


def read_only(file: Path) -> sqlite3.Connection:
    """Returns a connection that cannot write.

    See `store.question_process`.
    """
    return question_process.read_only(address(file), BUSY_SECONDS)


def _by_hand(connection: Any, _: object) -> None:
    """Leaves the beginning of transactions to us."""
    connection.isolation_level = None


def _pragmas(connection: Any, record: object) -> None:
    _by_hand(connection, record)
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
    _keep_log(cursor)
    for pragma in ("synchronous = NORMAL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _keep_log(cursor: sqlite3.Cursor) -> None:
    """Lets readers see the last commit while the writer writes.

    A commit survives a kill of the process without waiting for the disk at each one. The
    first of several commands changes the mode, and SQLite lets none wait for that.
    """
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)
        else:
            return


@contextmanager
def _readable_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (OperationalError, DatabaseError, OSError, sqlite3.Error) as error:
        reason = str(getattr(error, "orig", None) or error)
        hint = _hint(reason)
        again = f"; {hint}, then try again" if hint else ""
        raise kind_of(error)(
            f"the store {masked(url)} cannot be opened: {reason}{again}"
        ) from None


def kind_of(error: BaseException) -> type[StoreError]:
    """Returns LostConnection if the server has ended the connection."""
    # SQLAlchemy does not notice it while it prepares a new connection: what is left is
    # the code of the server, or the text of the client's library.
    code = str(getattr(getattr(error, "orig", None) or error, "sqlstate", None) or "")
    is_ended = (
        code.startswith(ENDED_CONNECTIONS)
        or "server closed the connection" in str(error)
        or getattr(error, "connection_invalidated", False)
    )
    return LostConnection if is_ended else StoreError


def _hint(reason: str) -> str:
    """Returns what to do about a refusal of the database; empty if nothing is known."""
    hints = {
        "locked": "end the other program that holds it",
        "full": "free some room",
        # Also where the file of the log's index does not fit.
        "disk I/O error": "see that its disk works and has room",
        "readonly": "give the right to write to it and to its folder",
    }
    return next((hint for word, hint in hints.items() if word in reason), "")


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """Runs a write transaction.

    If the database refuses it, for lack of disk space or because it is locked, the user
    gets one message.

    Raises:
        LostConnection: the connection ended. Nothing of the transaction is stored,
            unless it ended just after the commit.
        StoreError: nothing of the transaction is stored.
    """
    try:
        with engine.begin() as connection:
            _refuse_other_contents(engine)
            yield connection
    except (IntegrityError, ProgrammingError):
        raise
    except (DatabaseError, InterfaceError, PoolTimeout) as error:
        reason = str(getattr(error, "orig", None) or error)
        hint = _hint(reason)
        where = masked(engine.url.render_as_string()).removeprefix("sqlite:///")
        if any(word in reason for word in DAMAGE):
            raise DamagedStore(f"{where}: {reason}") from None
        intact = "; its contents are intact" if hint else ""
        raise kind_of(error)(
            f"the store {where} cannot be written to: {reason};"
            f" {hint or 'see that it can be written to'}{intact}. Go on with:"
            f" {advice.command('resume')}"
        ) from None


# What SQLite says of a file that is no database any more.
DAMAGE = ("malformed", "not a database", "short read", "no such table")
# The file of each open store, its number, and the most bytes that it had. A trial in this
# process may change the working directory.
_files: WeakKeyDictionary[Engine, tuple[Path, int, int]] = WeakKeyDictionary()


def _refuse_other_contents(engine: Engine) -> None:
    """Raises DamagedStore if the file of a store was cut while it was open.

    SQLite itself may not notice it until it reads the pages that are missing. Another
    file in its place is noticed by `WriterLock.check_place`.
    """
    if engine.dialect.name != "sqlite" or not engine.url.database:
        return
    file, number, size = _files.get(
        engine, (Path(engine.url.database).absolute(), 0, 0)
    )
    try:
        found = file.stat()
    except FileNotFoundError:
        return
    if found.st_ino == number and found.st_size < size:
        raise DamagedStore(f"{file} was truncated while it was in use")
    _files[engine] = file, found.st_ino, found.st_size


def _revision(connection: Connection) -> str | None:
    """Returns the revision of the tables; None if there are none.

    The lookup avoids alembic, which takes long to import.
    """
    if connection.dialect.name == "sqlite":
        kind = connection.execute(
            text("SELECT type FROM sqlite_master WHERE name = 'alembic_version'")
        ).scalar()
        has = kind is not None
        if has and kind != "table":
            raise DamagedStore(f"'alembic_version' is a {kind}, not a table")
    else:
        has = inspect(connection).has_table("alembic_version")
    if not has:
        return None
    revision = connection.execute(
        text("SELECT version_num FROM alembic_version")
    ).scalar()
    if revision is not None and not isinstance(revision, str):
        raise DamagedStore("alembic_version.version_num is not a text")
    return revision


def _check_structure(connection: Connection, file: Path | None) -> None:
    """Checks that a store has the tables of ablate.

    Raises:
        DamagedStore: it does not.
    """
    if file is not None:
        structure.check_file(file)
    elif connection.dialect.name == "postgresql":
        structure.check_server(connection)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


# JSON has no infinite numbers. `json.loads` would make a decoder for each value.
_json = json.JSONDecoder(parse_constant=_refuse_constant).decode


def _create(connection: Connection) -> None:
    """Creates the tables of the newest revision in an empty database.

    The migrations would make the same tables, but alembic takes long to import and runs
    them one by one.
    """
    metadata.create_all(connection)
    connection.execute(
        text(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT"
            " alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(
        text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": HEAD}
    )
    _create_views(connection)


def _upgrade(connection: Connection, revision: str) -> None:
    """Runs the migrations from a revision to the newest one.

    Raises:
        StoreError: a newer version wrote the store.
    """
    from alembic import command

    if revision > HEAD:
        raise StoreError(
            f"the store has revision {shortened(revision)}, which this version of ablate does not"
            " know; use the newer version that wrote it"
        )
    if revision < FIRST:
        raise StoreError(
            f"the store has revision {shortened(revision)}; this version of ablate reads"
            f" stores of revision {FIRST} and later ones"
        )
    # A migration may be unable to change a table that a view uses, so the views are
    # dropped first and created again afterwards.
    # Views that use others come first.
    wide_views.drop_all(connection)
    for name in reversed(views.STATIC):
        connection.execute(text(f"DROP VIEW IF EXISTS {name}"))
    command.upgrade(alembic_config(connection), "head")
    _create_views(connection)
    wide_views.put_all(connection)


def alembic_config(connection: Connection) -> Config:
    """Returns alembic's configuration for the migrations of a connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _create_views(connection: Connection) -> None:
    """Creates the views that every store has."""
    for statement in views.STATIC.values():
        connection.execute(text(statement))
