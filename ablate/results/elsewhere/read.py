"""Reads runs: from a table, from a folder with one folder per run, or from a tracker."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from ablate.errors import AblateError, shortened
from ablate.results.elsewhere.databases import read_database
from ablate.results.elsewhere.folders import BROKEN, read_folder
from ablate.results.elsewhere.runs import Runs
from ablate.results.elsewhere.tables import read_csv, read_json, read_parquet
from ablate.text.advice import option

FORMS = ".csv, .tsv, .parquet, .json, .jsonl, .db, .sqlite"
# How Optuna's journal begins.
JOURNAL = b'{"op_code"'


def read_runs(path: Path, names: str = "", said: Collection[str] = ()) -> Runs:
    """Returns the runs of a file or folder.

    Args:
        path: a table, a folder of runs, or the database of a tracker.
        names: how the folders of runs are named, such as `{norm}-{seed}`.
        said: columns that the user has named as seeds or settings.

    Raises:
        AblateError: it is missing, has another form, or cannot be read.
    """
    if path.is_dir():
        return read_folder(path, names)
    if not path.is_file():
        raise AblateError(f"there is no file or folder {path}")
    if names:
        raise AblateError(
            f"{option('names')} is for a folder of runs, and {path} is a file"
        )
    _refuse_journal(path)
    csv, json = partial(read_csv, said=said), partial(read_json, said=said)
    readers: dict[str, Callable[[Path], Runs]] = {
        ".csv": csv,
        ".tsv": csv,
        ".parquet": partial(read_parquet, said=said),
        ".json": json,
        ".jsonl": json,
        ".ndjson": json,
        ".db": read_database,
        ".sqlite": read_database,
        ".sqlite3": read_database,
    }
    ending = path.suffix.lower()
    if ending not in readers:
        raise AblateError(f"{path}: results are read from a folder of runs, or {FORMS}")
    try:
        return readers[ending](path)
    except (*BROKEN, sqlite3.Error) as error:
        raise AblateError(
            f"{path} cannot be read: {shortened(str(error), 200)}"
        ) from error


def _refuse_journal(path: Path) -> None:
    """Raises AblateError for a journal of Optuna, which Optuna can convert."""
    with path.open("rb") as stream:
        if stream.read(len(JOURNAL)) != JOURNAL:
            return
    raise AblateError(
        f"{path} is a journal of Optuna; convert it in Python: optuna.copy_study("
        "from_study_name=NAME, from_storage=JournalStorage(JournalFileBackend"
        f"({str(path)!r})), to_storage='sqlite:///runs.db'), and judge runs.db"
    )
