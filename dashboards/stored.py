"""What pages read from the store, cached until the store changes.

The connection itself refuses to write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import streamlit as st

from ablate.errors import StoreError
from ablate.records import Known, Space, StudyResults
from ablate.records.stored import Attempt, TrialRow
from ablate.report.charts import Chart, Coordinates
from ablate.report.curves import Curves, curves_of
from ablate.report.effect import Effect
from ablate.report.effects import effects
from ablate.report.table import Table
from ablate.results import study_charts
from ablate.results.study import Study
from ablate.statistics.numbers import mean_of
from ablate.store.database import sqlite_file
from ablate.store.notes import STUDY, Note, Notes, notes_file
from ablate.store.reader import Reader
from ablate.store.studies import StudyStatus

URL = os.environ.get("ABLATE_STORE", "runs/ablate.db")
WHERE = os.environ.get("ABLATE_WHERE", "")
RUNS = Path(os.environ.get("ABLATE_RUNS", "runs"))
NOTES = notes_file(URL, RUNS)
# Columns of the trials with what people wrote. No factor has such a name.
TAGS, NOTE = "@tags", "@note"
# Effects for which further seeds are predicted: some milliseconds each.
MOST_PREDICTED = 60


def stamp() -> str:
    """A value that changes when the store changes: from its files, or every two seconds
    if it is a server.
    """
    file = sqlite_file(URL)
    if file is None:
        return str(int(time.time() / 2))
    return _stamp(file, Path(f"{file}-wal"))


def _stamp(*files: Path) -> str:
    parts = [file.stat() for file in files if file.exists()]
    return "/".join(f"{part.st_mtime_ns}-{part.st_size}" for part in parts)


@st.cache_resource(max_entries=2, show_spinner=False)
def _studies(stamp: str) -> list[StudyStatus]:
    with Reader(URL) as reader:
        return reader.studies.all()


def studies() -> list[StudyStatus]:
    """All studies, the latest first."""
    return list(reversed(_studies(stamp())))


@st.cache_resource(max_entries=3, show_spinner=False)
def _results(name: str, stamp: str) -> tuple[StudyResults, Space]:
    return Study(name, URL).read()


def results(name: str) -> tuple[StudyResults, Space]:
    """All cells of a study, and its declaration."""
    return _results(name, stamp())


@st.cache_resource(max_entries=3, show_spinner=False)
def _effects(name: str, stamp: str) -> list[Effect]:
    stored, declared = _results(name, stamp)
    found = effects(stored, declared.criterion.margin)
    if len(stored.cells) > MOST_PREDICTED:
        return [replace(effect, count_further=None) for effect in found]
    return found


def verdicts(name: str) -> list[Effect]:
    """Each row against row 0."""
    return _effects(name, stamp())


@st.cache_resource(max_entries=3, show_spinner=False)
def _grid(name: str, of: str, stamp: str) -> Table:
    study = Study(name, URL)
    if of == "table":
        return study.results_table()
    return study.effects_table(of)


def table_of(name: str, of: str) -> Table:
    """The table of a study, or one of its effects."""
    return _grid(name, of, stamp())


@st.cache_resource(max_entries=3, show_spinner=False)
def _frame(name: str, of: str, stamp: str) -> pd.DataFrame:
    made = _grid(name, of, stamp)
    frame = pd.DataFrame(made.rows, columns=list(made.columns))
    if "row" in frame:
        return frame.assign(row=frame["row"].astype(int))
    return frame


def frame(name: str, of: str) -> pd.DataFrame:
    """The texts of a table."""
    return _frame(name, of, stamp())


@st.cache_resource(max_entries=6, show_spinner=False)
def _chart(name: str, of: str, cost: str, stamp: str) -> Chart | Coordinates:
    return study_charts.chart(Study(name, URL), of, cost=cost)


def chart(name: str, of: str, cost: str = "flops") -> Chart | Coordinates:
    """One of a study's charts."""
    return _chart(name, of, cost, stamp())


@st.cache_resource(max_entries=3, show_spinner=False)
def _trials(name: str, stamp: str) -> list[TrialRow]:
    with Reader(URL) as reader:
        return reader.trials.of(name)


def trials(name: str) -> list[TrialRow]:
    """The trials of a study: row, seed, state, metrics, hash."""
    return _trials(name, stamp())


@st.cache_resource(max_entries=20, show_spinner=False)
def _attempts(trial: str, stamp: str) -> list[Attempt]:
    with Reader(URL) as reader:
        return reader.trials.attempts(trial)


def attempts_of(trial: str) -> list[Attempt]:
    """The attempts at a trial, the last one last."""
    return _attempts(trial, stamp())


@st.cache_resource(max_entries=3, show_spinner=False)
def _trial_frame(name: str, stamp: str) -> pd.DataFrame:
    wide = Study(name, URL).frame().rename(columns={"cell": "row"})
    return wide[["trial", *wide.columns.drop("trial")]]


def trial_frame(name: str) -> pd.DataFrame:
    """The trials of a study: a column for each factor, metric and cost, and the tags
    and notes if there are any.
    """
    trial_rows = _trial_frame(name, stamp())
    notes_by_trial = {
        trial: note for (study, trial), note in notes().items() if study == name
    }
    if not notes_by_trial.keys() - {STUDY}:
        return trial_rows
    written = [notes_by_trial.get(trial, Note()) for trial in trial_rows["trial"]]
    return trial_rows.assign(
        **{
            TAGS: [", ".join(note.tags) for note in written],
            NOTE: [note.text for note in written],
        }
    )


@st.cache_resource(max_entries=64, show_spinner=False)
def _diagnostic_values(name: str, diagnostic: str, stamp: str) -> Mapping[str, float]:
    with Reader(URL) as reader:
        rows = reader.diagnostics.layers(name, diagnostic)
    keys = {(trial.row, trial.seed): trial.trial for trial in trials(name)}
    by_trial: dict[str, list[float]] = {}
    for row in rows:
        key = keys.get((row.row, row.seed))
        # A search may have added trials since they were read.
        if isinstance(row.value, float) and key is not None:
            by_trial.setdefault(key, []).append(row.value)
    return {key: mean_of(values) for key, values in by_trial.items()}


def diagnostic_values(name: str, diagnostic: str) -> Mapping[str, float]:
    """The mean over layers of a diagnostic, by trial."""
    return _diagnostic_values(name, diagnostic, stamp())


@st.cache_resource(max_entries=3, show_spinner=False)
def _scalar_diagnostics(name: str, stamp: str) -> list[str]:
    with Reader(URL) as reader:
        stored = reader.diagnostics.names(name)
    return [
        diagnostic
        for diagnostic in stored
        if _diagnostic_values(name, diagnostic, stamp)
    ]


def scalar_diagnostics(name: str) -> list[str]:
    """The diagnostics of a study that have one number per layer."""
    return _scalar_diagnostics(name, stamp())


@st.cache_resource(max_entries=2, show_spinner=False)
def _notes(stamp: str) -> tuple[Mapping[tuple[str, str], Note], str]:
    try:
        return Notes(NOTES).all(), ""
    except StoreError as error:
        # Verdicts are shown without notes.
        return {}, str(error)


def notes() -> Mapping[tuple[str, str], Note]:
    """What people wrote on studies and trials; nothing if it cannot be read."""
    return _notes(_stamp(NOTES))[0]


def notes_problem() -> str:
    """Why the notes cannot be read; usually empty."""
    return _notes(_stamp(NOTES))[1]


def note(study: str, trial: str = STUDY) -> Note:
    """What people wrote on a study or on a trial."""
    return notes().get((study, trial), Note())


def put_note(study: str, trial: str, note: Note) -> None:
    """Replaces what people wrote on a study or on a trial."""
    Notes(NOTES).put(study, trial, note)


def final_values(name: str, metric: str) -> dict[int, dict[int, float]]:
    """The final values of a metric by row and seed."""
    return study_charts.final_values(Study(name, URL), metric)


def curves(name: str, rows: Sequence[int]) -> Curves:
    """Learning curves of some rows of a study."""
    shown = [trial for trial in trials(name) if trial.row in rows]
    with Reader(URL) as reader:
        known: Mapping[str, Known] = reader.trials.known(trial.trial for trial in shown)
    return curves_of(shown, known)
