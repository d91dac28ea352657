"""Tags and notes that people write on studies and trials.

They are in a file of their own beside the store, so writing them cannot change a result.
Two people who write the same note at the same time overwrite each other: the
last one stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    DateTime,
    Engine,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    delete,
    insert,
    inspect,
    select,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateTable

from ablate.errors import AblateError, StoreError
from ablate.store.database import BUSY_SECONDS, sqlite_file
from ablate.store.moment import now
from ablate.text.masking import masked

MOST_TAGS = 20
LONGEST_TAG = 40
LONGEST_NOTE = 10_000
# The hash of a note on a study.
STUDY = ""
# Lists leave out studies with this tag.
ARCHIVED = "archived"

_metadata = MetaData()
_notes = Table(
    "notes",
    _metadata,
    Column("study", String(200), primary_key=True),
    Column("trial", String(20), primary_key=True, comment="empty: on the study"),
    Column("tags", JSON, nullable=False),
    Column("text", Text, nullable=False),
    Column("changed_at", DateTime, nullable=False),
)


@dataclass(frozen=True)
class Note:
    """What people wrote on a study or on a trial."""

    tags: tuple[str, ...] = ()
    text: str = ""


def notes_file(url: str, runs: Path) -> Path:
    """Returns the file of the notes of a store: beside it, or in the runs folder if the
    store is on a server.
    """
    file = sqlite_file(url)
    if file is None:
        # Several servers may be used with one folder.
        server = hashlib.sha256(masked(url).encode()).hexdigest()[:8]
        return runs / f"notes-{server}.db"
    return file.with_name(f"{file.stem}.notes.db")


def tags_of(text: str) -> tuple[str, ...]:
    """Returns the tags of a text, which separates them by commas.

    Raises AblateError if a tag is too long, or if there are too many.
    """
    tags = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if len(tags) > MOST_TAGS:
        raise AblateError(f"{len(tags)} tags; at most {MOST_TAGS} are allowed")
    for tag in tags:
        if len(tag) > LONGEST_TAG:
            raise AblateError(
                f"tag '{tag[:LONGEST_TAG]} ...' is longer than {LONGEST_TAG} characters;"
                " put long texts into the note"
            )
    return tags


class Notes:
    """Reads and writes the notes of one store. The file is made with the first note."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def all(self) -> dict[tuple[str, str], Note]:
        """Returns all notes by study and trial; the trial is empty for the study's own.

        Raises StoreError if the file cannot be read.
        """
        if not self._file.exists():
            return {}
        query = select(_notes.c.study, _notes.c.trial, _notes.c.tags, _notes.c.text)
        with self._connected() as connection:
            # Another process may have just created the file.
            if not inspect(connection).has_table(_notes.name):
                return {}
            rows = connection.execute(query).all()
        return {(row.study, row.trial): Note(tuple(row.tags), row.text) for row in rows}

    def put(self, study: str, trial: str, note: Note) -> None:
        """Replaces the note on a study or on a trial; an empty one removes it.

        Args:
            trial: the whole hash, or empty for the study itself.

        Raises:
            AblateError: the text is too long.
            StoreError: the file cannot be written.
        """
        if len(note.text) > LONGEST_NOTE:
            raise AblateError(
                f"the note has {len(note.text):,} characters; at most {LONGEST_NOTE:,}"
                " are allowed"
            )
        self._file.parent.mkdir(parents=True, exist_ok=True)
        here = (_notes.c.study == study) & (_notes.c.trial == trial)
        with self._connected() as connection:
            connection.execute(CreateTable(_notes, if_not_exists=True))
            connection.execute(delete(_notes).where(here))
            if note == Note():
                return
            connection.execute(
                insert(_notes).values(
                    study=study,
                    trial=trial,
                    tags=list(note.tags),
                    text=note.text,
                    changed_at=now(),
                )
            )

    def archived(self) -> set[str]:
        """Returns the names of the archived studies."""
        return {
            study
            for (study, trial), note in self.all().items()
            if trial == STUDY and ARCHIVED in note.tags
        }

    def rename(self, names: Mapping[str, str]) -> None:
        """Gives the notes on studies, and on their trials, to other names.

        Args:
            names: the new names of studies by the old ones.
        """
        for (study, trial), note in self.all().items():
            if study in names:
                self.put(names[study], trial, note)
                self.put(study, trial, Note())

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A transaction on the file, whose errors name it."""
        try:
            with self._engine().begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error)
            raise StoreError(
                f"the notes in {self._file} cannot be read or written: {reason}; results"
                " are not affected. Move the file away to begin with no notes"
            ) from None

    def _engine(self) -> Engine:
        return create_engine(
            URL.create("sqlite", database=str(self._file)),
            # A transaction that reads first cannot wait for another one that writes.
            connect_args={"timeout": BUSY_SECONDS, "isolation_level": "IMMEDIATE"},
            poolclass=NullPool,
        )
