"""An open store that can only be read: the connection does not allow to write."""

from __future__ import annotations

import re
from typing import Any, Self

from sqlalchemy import event, inspect, select, text

from ablate.errors import (
    AblateError,
    DamagedStore,
    StoreError,
    did_you_mean,
)
from ablate.store.chains import ChainReader
from ablate.store.costs import CostReader
from ablate.store.database import (
    BUSY_SECONDS,
    LostConnection,
    kind_of,
    open_reader,
    patient,
    sqlite_file,
)
from ablate.store.diagnostics import DiagnosticReader
from ablate.store.identities import IdentityReader
from ablate.store.queries import (
    TooLong,
    ask_postgresql,
    ask_sqlite,
    refuse_writing_role,
    writing_role,
)
from ablate.store.sql_tables import stores
from ablate.store.studies import StudyReader
from ablate.store.trials import TrialReader
from ablate.store.values import check_values

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


class Reader:
    """A store that can only be read. Raises StoreError if it is missing or damaged.

    Each noun has a reader of its own.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine = open_reader(url)
        event.listen(self._engine, "handle_error", _readable)
        self.studies = StudyReader(self._engine)
        self.trials = TrialReader(self._engine, self.studies)
        self.diagnostics = DiagnosticReader(self._engine, self.studies)
        self.costs = CostReader(self._engine)
        self.chains = ChainReader(self._engine)
        self.identities = IdentityReader(self._engine)

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

    @patient
    def store_id(self) -> str:
        """Returns the ID of the store; empty if nothing was trained yet.

        The ID is drawn when the store is made.
        """
        with self._engine.connect() as connection:
            return str(connection.execute(select(stores.c.id)).scalar() or "")

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
