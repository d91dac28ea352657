"""An open store for reading: its studies, what a name refers to, and SQL queries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from sqlalchemy import event, func, inspect, select, text

from ablate.errors import (
    AblateError,
    DamagedStore,
    StoreError,
    UnknownName,
    did_you_mean,
    unknown,
)
from ablate.records import Space, Status, base_name
from ablate.store.database import (
    BUSY_SECONDS,
    LostConnection,
    kind_of,
    open_reader,
    sqlite_file,
)
from ablate.store.queries import (
    TooLong,
    ask_postgresql,
    ask_sqlite,
    refuse_writing_role,
    writing_role,
)
from ablate.store.space_data import from_data
from ablate.store.sql_tables import cell_trials, cells, stores, studies, trials
from ablate.store.values import check_values
from ablate.store.wide_views import query_of

# How SQLite and PostgreSQL report a missing name.
MISSING = re.compile(
    r"(no such )?(?P<kind>column|table|relation):? \"?(\w+\.)?(?P<name>\w+)\"?(?(1)|"
    r" does not exist)"
)
# How SQLite and PostgreSQL reject a statement that is not a single query.
REFUSED = re.compile(
    r"not authorized|readonly|read-only|only execute one statement|multiple commands"
    r"|must not contain data-modifying|syntax error at or near"
    r" \"?(?!SELECT)[A-Z]+\"?\nLINE 1: DECLARE",
    re.IGNORECASE,
)

# Errors that a wrong value in a store may cause.
OF_DAMAGE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class StudyStatus:
    """A stored study: its space, the number of its trials by status, and its epochs.

    `space` is None if the study was last run by an older version. `epochs` counts the
    epochs of all trials, `epochs_done` those that are trained.
    """

    name: str
    question: str
    document: str
    space: Space | None
    file: str
    results_view: str
    updated_at: datetime
    by_status: Mapping[Status, int]
    epochs_done: int
    epochs: int
    finished: bool
    # When its last trial ended, in UTC.
    last_result_at: datetime = datetime.min

    @property
    def unfinished(self) -> int:
        """The number of trials that a resume would train.

        For a search, only trials of cells proposed so far count.
        """
        return sum(
            n
            for state, n in self.by_status.items()
            if state in (Status.PLANNED, Status.RUNNING, Status.FAILED)
        )


def _space(study: Any) -> Space | None:
    """The resolved space; None if the study was last run by an older version."""
    if study["space"] is None:
        return None
    return from_data(study["space"], study["document"])


def _status(study: Any, counts: Sequence[Any]) -> StudyStatus:
    """Returns the status of a row of `studies`, given its trials by state."""
    return StudyStatus(
        name=study["name"],
        question=study["question"],
        document=study["document"],
        space=_space(study),
        file=study["file"],
        results_view=study["results_view"],
        updated_at=study["updated_at"],
        by_status={Status(count.status): count.number for count in counts},
        epochs_done=sum(count.epochs_done for count in counts),
        # A training may end early.
        epochs=sum(
            count.epochs_done if count.status == Status.COMPLETED else count.epochs
            for count in counts
        ),
        finished=study["finished_at"] is not None,
        last_result_at=max(
            (count.ended_at for count in counts if count.ended_at is not None),
            default=datetime.min,
        ),
    )


class Catalogue:
    """A store that can only be read. Raises StoreError if it is missing or damaged."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine = open_reader(url)
        event.listen(self._engine, "handle_error", _readable)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        try:
            if isinstance(error, OF_DAMAGE) and not isinstance(error, AblateError):
                self._explain(error)
        finally:
            self.close()

    def _explain(self, error: BaseException) -> None:
        """Looks for damage of the store that may have caused an error.

        In a store without damage, the error is a bug of ours and goes on.

        Raises:
            DamagedStore: there is damage.
        """
        with self._engine.connect() as connection:
            try:
                check_values(connection)
            except DamagedStore as damage:
                raise damage from error

    def studies(self) -> list[StudyStatus]:
        """Returns all studies, the most recent one last."""
        counts = (
            select(
                cells.c.study_id,
                trials.c.status,
                func.count().label("number"),
                func.sum(trials.c.epochs_done).label("epochs_done"),
                func.sum(trials.c.epochs).label("epochs"),
                func.max(trials.c.ended_at).label("ended_at"),
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
        """Returns one study. Raises UnknownName, which suggests the nearest name."""
        by_name = {study.name: study for study in self.studies()}
        base = base_name(name)
        if name not in by_name and name != base and base in by_name:
            earlier = [study for study in by_name if study != base_name(study) == base]
            raise UnknownName(
                f"unknown study '{name}'; the newest generation is {base}, and the earlier"
                f" ones are {', '.join(earlier) or 'none'}"
            )
        if name not in by_name:
            raise UnknownName(
                unknown("study", name, by_name)
                if by_name
                else f"unknown study '{name}'; the store holds none yet"
            )
        return by_name[name]

    def store_id(self) -> str:
        """Returns the ID of the store; empty if nothing was trained yet.

        The ID is drawn when the store is made.
        """
        with self._engine.connect() as connection:
            return str(connection.execute(select(stores.c.id)).scalar() or "")

    def statuses(self) -> dict[str, tuple[Status, str]]:
        """Returns the state of each trial in a study, and the name of one study."""
        query = (
            select(trials.c.hash, trials.c.status, studies.c.name)
            .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, studies.c.id == cells.c.study_id)
        )
        with self._engine.connect() as connection:
            return {
                key: (Status(state), name)
                for key, state, name in connection.execute(query)
            }

    def target(self, word: str) -> tuple[str, str | None]:
        """Resolves a word to a study or to a trial.

        Returns the name of a study and None, or the name of a study and the hash of a
        trial of it. A trial is given by its hash or a prefix of it.

        Raises:
            UnknownName: the word is neither.
        """
        names = {study.name for study in self.studies()}
        if word in names:
            return word, None
        query = (
            select(studies.c.name, cell_trials.c.trial_hash)
            .join(cells, cells.c.study_id == studies.c.id)
            .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
            .where(cell_trials.c.trial_hash.startswith(word, autoescape=True))
            .order_by(studies.c.updated_at.desc())
        )
        with self._engine.connect() as connection:
            matches = connection.execute(query).all()
        hashes = {row[1] for row in matches}
        if not hashes or len(word) < 4:
            raise UnknownName(
                unknown("study or trial", word, names)
                + "; `ablate status STUDY` lists trials; write at least 4 characters"
                " of a hash"
            )
        if len(hashes) > 1:
            raise UnknownName(
                f"{len(hashes)} trials have a hash that begins with '{word}'; write"
                " more of the hash"
            )
        return str(matches[0][0]), str(matches[0][1])

    def wide(self, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Returns column names and rows of a study's wide view, by cell and seed.

        Raises UnknownName if there is no such study.
        """
        self.study(name)
        with self._engine.connect() as connection:
            stored = select(studies).where(studies.c.name == name)
            study = connection.execute(stored).mappings().one()
            query = query_of(connection, dict(study))
            rows = connection.exec_driver_sql(
                f"SELECT * FROM ({query}) AS wide ORDER BY cell, seed"
            )
            return list(rows.keys()), [tuple(row) for row in rows]

    def query(
        self,
        statement: str,
        *,
        most: int | None = None,
        seconds: float | None = None,
        by_others: bool = False,
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Returns column names and rows of one read-only statement.

        Args:
            most: the largest number of rows to return.
            seconds: the time after which the statement is ended.
            by_others: somebody else than the user wrote the statement: an agent, or a
                visitor of the dashboard. The role that writes to a store in PostgreSQL
                is then refused.

        Raises:
            StoreError: the statement is invalid, does not only read, or takes too long.
        """
        if self._engine.dialect.name not in ("sqlite", "postgresql"):
            raise StoreError(
                "queries are for SQLite and PostgreSQL, not for"
                f" {self._engine.dialect.name}"
            )
        try:
            return self._ask(statement, most, seconds, by_others=by_others)
        except TooLong:
            reason = (
                f"it took longer than {seconds:g} s; ask for less, as with WHERE or"
                " LIMIT"
            )
        except StoreError as error:
            reason = self._reason(str(error), statement)
        raise StoreError(f"the query failed: {reason}")

    def _ask(
        self,
        statement: str,
        most: int | None,
        seconds: float | None,
        *,
        by_others: bool,
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        try:
            statement.encode()
        except UnicodeEncodeError:
            raise StoreError("the statement is no valid text") from None
        file = sqlite_file(self._url)
        if file is not None:
            return ask_sqlite(file, BUSY_SECONDS, statement, most, seconds)
        if by_others:
            refuse_writing_role(self._engine)
        return ask_postgresql(self._engine, statement, most, seconds)

    def writing_role(self) -> str:
        """Returns the role of PostgreSQL if it may write to the store.

        It is empty if the role can only read, or if the store is a SQLite file.
        """
        if self._engine.dialect.name != "postgresql":
            return ""
        return writing_role(self._engine)

    def _reason(self, reason: str, statement: str) -> str:
        """Returns why a database refused a statement, in words for a user."""
        if REFUSED.search(reason):
            return "a query can only read: one SELECT over the tables and views"
        return f"{reason}{self._hint(reason, statement)}"

    def _hint(self, reason: str, statement: str) -> str:
        """Returns a hint for a statement with a missing name.

        It is the nearest name, or all names that exist.
        """
        missing = MISSING.search(reason)
        if not missing:
            return ""
        name = missing["name"]
        with self._engine.connect() as connection:
            inspector = inspect(connection)
            tables = sorted(
                {*inspector.get_table_names(), *inspector.get_view_names()}
                - {"alembic_version"}
            )
            if missing["kind"] != "column":
                return did_you_mean(name, tables) or f"; there are {', '.join(tables)}"
            # Columns of the tables in the statement only: all of them would be a page.
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
        every_column = {column for names in columns.values() for column in names}
        # `a.trial` may be missing although another table has the column `trial`.
        near = did_you_mean(name, sorted(every_column - {name}))
        return near or "".join(
            f"; {table} has {', '.join(names)}" for table, names in columns.items()
        )


def _readable(context: Any) -> None:
    """Turns an error of the database into a message for the user."""
    error = context.original_exception
    kind = LostConnection if context.is_disconnect else kind_of(error)
    raise kind(f"the store cannot be read: {error}") from error
