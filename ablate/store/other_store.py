"""Imports studies from a store that somebody else may have made.

All values of the store are read and checked before anything is written, so a damaged
store changes nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from ablate.errors import (
    DamagedStore,
    MissingStore,
    StoreError,
    UnknownName,
    shortened,
    unknown,
)
from ablate.store.database import open_reader, sqlite_file
from ablate.store.merge import Merged
from ablate.store.sql_tables import studies
from ablate.store.values import check_values
from ablate.store.writer import Writer
from ablate.text.masking import masked

# The most characters of a text from outside in a message.
LONGEST = 200


def import_studies(other: str, url: str, names: Sequence[str] = ()) -> Merged:
    """Imports studies of another store; all if no name is given.

    See `ablate.store.merge`. A store that is refused leaves no new store behind.

    Args:
        other: the URL of the other store.
        url: that of the store that gets the studies.

    Raises:
        StoreError: there is no such store, it is damaged, or both have a study of one
            name with different declarations.
        UnknownName: the other store has no such study.
    """
    with _opened(other, names) as theirs, Writer(url) as writer:
        return writer.merge(theirs, names)


@contextmanager
def _opened(url: str, names: Sequence[str]) -> Iterator[Connection]:
    """Opens a store for an import while this lasts.

    Args:
        names: the studies that it must have.

    Raises:
        StoreError: there is no such store, or it is damaged.
        UnknownName: it has no such study.
    """
    file = sqlite_file(url)
    if file is not None and not file.exists():
        raise MissingStore(f"there is no store at {file} to import from")
    with _named(url):
        source = open_reader(url)
    try:
        with source.connect() as connection:
            with _named(url):
                check_values(connection)
                _check_names(connection, names)
            yield connection
    except IntegrityError as error:
        raise StoreError(
            f"{shortened(masked(url), LONGEST)} cannot be imported: its rows contradict"
            f" one another or those of this store: {shortened(str(error.orig), LONGEST)}"
        ) from error
    finally:
        source.dispose()


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Says which of two stores is damaged."""
    try:
        yield
    except (DamagedStore, DBAPIError, UnicodeError) as error:
        # A database may refuse to read a text, as one that is not UTF-8.
        reason = str(getattr(error, "orig", None) or error)
        raise StoreError(
            f"{shortened(masked(url), LONGEST)} cannot be imported:"
            f" {shortened(reason, 2 * LONGEST)}"
        ) from error


def _check_names(connection: Connection, names: Sequence[str]) -> None:
    stored = connection.execute(select(studies.c.name)).scalars().all()
    for name in names:
        if name not in stored:
            raise UnknownName(unknown("study", name, stored))
