"""An open store that can only be read: which studies it holds, what a name means there,
and any question in SQL.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from sqlalchemy import event, func, inspect, select, table, text

from ablate.errors import StoreError, UnknownName, did_you_mean, unknown
from ablate.records import Status
from ablate.store.database import open_reader, read_only, sqlite_file
from ablate.store.questions import TooLong, ask_postgresql, ask_sqlite
from ablate.store.tables import cell_trials, cells, stores, studies, trials

# How SQLite and PostgreSQL tell of a name that is not there.
MISSING = re.compile(
    r"(no such )?(?P<kind>column|table|relation):? \"?(\w+\.)?(?P<name>\w+)\"?(?(1)|"
    r" does not exist)"
)
# How SQLite and PostgreSQL refuse a statement that is not one query.
REFUSED = re.compile(
    r"not authorized|readonly|read-only|only execute one statement|multiple commands"
    r"|must not contain data-modifying|syntax error at or near"
    r" \"?(?!SELECT)[A-Z]+\"?\nLINE 1: DECLARE",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class StudyStatus:
    """How far a study is: number of its trials by state, and epochs done of epochs
    asked for.
    """

    name: str
    question: str
    document: str
    file: str
    results_view: str
    updated_at: datetime
    states: Mapping[Status, int]
    epochs_done: int
    epochs: int
    finished: bool

    @property
    def unfinished(self) -> int:
        """Trials that a resume would train; of a search, those that have been proposed."""
        return sum(
            n
            for state, n in self.states.items()
            if state in (Status.PLANNED, Status.RUNNING, Status.FAILED)
        )


def _status(study: Any, counts: Sequence[Any]) -> StudyStatus:
    """A row of `studies`, with the counts of its trials by status."""
    return StudyStatus(
        name=study["name"],
        question=study["question"],
        document=study["document"],
        file=study["file"],
        results_view=study["results_view"],
        updated_at=study["updated_at"],
        states={Status(count.status): count.number for count in counts},
        epochs_done=sum(count.epochs_done for count in counts),
        epochs=sum(count.epochs for count in counts),
        finished=study["finished_at"] is not None,
    )


class Catalogue:
    """One store. Raises StoreError where there is none, or where it is damaged."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine = open_reader(url)
        event.listen(self._engine, "handle_error", _readable)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def studies(self) -> list[StudyStatus]:
        """All studies, the latest last."""
        counts = (
            select(
                cells.c.study_id,
                trials.c.status,
                func.count().label("number"),
                func.sum(trials.c.epochs_done).label("epochs_done"),
                func.sum(trials.c.epochs).label("epochs"),
            )
            .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
            .join(trials, trials.c.hash == cell_trials.c.trial_hash)
            .group_by(cells.c.study_id, trials.c.status)
        )
        with self._engine.connect() as connection:
            stored = select(studies).order_by(studies.c.updated_at, studies.c.id)
            rows = connection.execute(stored).mappings().all()
            by_study: dict[int, list[Any]] = {}
            for count in connection.execute(counts):
                by_study.setdefault(count.study_id, []).append(count)
        return [_status(row, by_study.get(row["id"], [])) for row in rows]

    def study(self, name: str) -> StudyStatus:
        """One study. Raises UnknownName with the nearest name."""
        found = {study.name: study for study in self.studies()}
        if name not in found:
            raise UnknownName(
                unknown("study", name, found)
                if found
                else f"unknown study '{name}'; the store holds none yet"
            )
        return found[name]

    def store_id(self) -> str:
        """The number that was drawn when the store was made; empty where nothing was
        trained yet.
        """
        with self._engine.connect() as connection:
            return str(connection.execute(select(stores.c.id)).scalar() or "")

    def states(self) -> dict[str, tuple[Status, str]]:
        """State of each trial that a study has, and the name of one such study."""
        wanted = (
            select(trials.c.hash, trials.c.status, studies.c.name)
            .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, studies.c.id == cells.c.study_id)
        )
        with self._engine.connect() as connection:
            return {
                key: (Status(state), name)
                for key, state, name in connection.execute(wanted)
            }

    def target(self, word: str) -> tuple[str, str | None]:
        """A study by its name, with None, or a trial by its hash or the beginning of
        it, with a study that has it.

        Raises:
            UnknownName: there is neither.
        """
        names = {study.name for study in self.studies()}
        if word in names:
            return word, None
        wanted = (
            select(studies.c.name, cell_trials.c.trial_hash)
            .join(cells, cells.c.study_id == studies.c.id)
            .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
            .where(cell_trials.c.trial_hash.startswith(word, autoescape=True))
            .order_by(studies.c.updated_at.desc())
        )
        with self._engine.connect() as connection:
            found = connection.execute(wanted).all()
        hashes = {row[1] for row in found}
        if not hashes or len(word) < 4:
            raise UnknownName(
                unknown("study or trial", word, names)
                + "; `ablate status STUDY` lists trials"
            )
        if len(hashes) > 1:
            raise UnknownName(
                f"'{word}' begins {len(hashes)} trials; write more of the hash"
            )
        return str(found[0][0]), str(found[0][1])

    def view(self, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a study's wide view, by cell and seed."""
        rows = (
            select(text("*"))
            .select_from(table(name))
            .order_by(text("cell"), text("seed"))
        )
        with self._engine.connect() as connection:
            found = connection.execute(rows)
            return list(found.keys()), [tuple(row) for row in found]

    def query(
        self, statement: str, *, most: int | None = None, seconds: float | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of one reading statement.

        Args:
            most: so many rows and no more.
            seconds: after which the statement is broken off.

        Raises:
            StoreError: the statement is wrong, is none that only reads, or takes too
                long.
        """
        file = sqlite_file(self._url)
        try:
            if file is not None:
                return ask_sqlite(lambda: read_only(file), statement, most, seconds)
            if self._engine.dialect.name == "postgresql":
                return ask_postgresql(self._engine, statement, most, seconds)
        except TooLong:
            limit = (
                f"it took longer than {seconds:g} s; ask for less, as with WHERE or"
                " LIMIT"
            )
            raise StoreError(f"the query failed: {limit}") from None
        except UnicodeError:
            raise StoreError(
                "the query failed: the statement is no valid text"
            ) from None
        except MemoryError:
            raise StoreError(
                "the query failed: it needs more memory than there is; ask for less"
            ) from None
        except StoreError as error:
            raise StoreError(f"the query failed: {error}") from None
        except Exception as error:
            if not _of_database(error):
                raise
            raise StoreError(
                f"the query failed: {self._reason(error, statement, seconds)}"
            ) from None
        raise StoreError(
            "queries are for SQLite and PostgreSQL, not for"
            f" {self._engine.dialect.name}"
        )

    def _reason(self, error: Exception, statement: str, seconds: float | None) -> str:
        """Why a database refused a statement, as a person reads it."""
        reason = str(error).strip() or type(error).__name__
        if REFUSED.search(reason):
            return "a query can only read: one SELECT over the tables and views"
        if "statement timeout" in reason:
            return (
                f"it took longer than {seconds:g} s; ask for less, as with WHERE or"
                " LIMIT"
            )
        return f"{reason}{self._hint(reason, statement)}"

    def _hint(self, reason: str, statement: str) -> str:
        """Where a statement has a name that is not there: the nearest one, or all that
        there are.
        """
        missing = MISSING.search(reason)
        if not missing:
            return ""
        name = missing["name"]
        with self._engine.connect() as connection:
            found = inspect(connection)
            tables = sorted(
                {*found.get_table_names(), *found.get_view_names()}
                - {"alembic_version"}
            )
            if missing["kind"] != "column":
                return did_you_mean(name, tables) or f"; there are {', '.join(tables)}"
            named = [
                table
                for table in tables
                if re.search(rf"\b{table}\b", statement, re.IGNORECASE)
            ]
            every = {
                table: select(text("*")).select_from(text(table)).limit(0)
                for table in named
            }
            columns = {
                table: list(connection.execute(rows).keys())
                for table, rows in every.items()
            }
        near = did_you_mean(
            name, sorted({column for names in columns.values() for column in names})
        )
        return near or "".join(
            f"; {table} has {', '.join(names)}" for table, names in columns.items()
        )


def _readable(context: Any) -> None:
    """A database that cannot be read is a message for a person."""
    raise StoreError(
        f"the store cannot be read: {context.original_exception}"
    ) from context.original_exception


def _of_database(error: Exception) -> bool:
    """Whether a driver of a database raised an error: psycopg, if it is used at all, is
    loaded by now.
    """
    psycopg = sys.modules.get("psycopg")
    kinds = (sqlite3.Error, sqlite3.Warning, *([psycopg.Error] if psycopg else []))
    return isinstance(error, kinds)
