"""Reads runs from the SQLite databases of MLflow and Optuna."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ablate.errors import AblateError
from ablate.results.elsewhere.runs import Curve, Runs, number_of, of_curves
from ablate.results.elsewhere.tables import check_size

# The longest text of a value, and the most time of a query in seconds of this process.
MOST_TEXT = 1_000_000
MOST_SECONDS = 30
# How many steps SQLite takes between two looks at the time.
STEPS = 100_000
# Files that SQLite keeps beside a database.
BESIDE = ("-wal", "-shm", "-journal")


def read_database(path: Path) -> Runs:
    """Returns the runs of MLflow's or Optuna's SQLite database.

    Raises:
        AblateError: it is another database, or too large.
        sqlite3.Error: it is damaged, or takes too long.
    """
    check_size(path)
    with _opened(path) as connection:
        tables = {
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        }
        if {"experiments", "runs", "params", "latest_metrics"} <= tables:
            return of_curves(_mlflow(connection), str(path))
        if {"trials", "trial_params", "trial_values"} <= tables:
            runs = of_curves(_optuna(connection), str(path))
            return replace(runs, directions=_directions(connection, tables))
    raise AblateError(f"{path} is a database of neither MLflow nor Optuna")


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database, and leaves nothing beside it.

    What a program that runs now has not yet written into it is read from a copy.
    """
    beside = [Path(f"{path}{ending}") for ending in BESIDE]
    for file in beside:
        if file.exists() and not file.is_file():
            raise AblateError(f"{file} is no file")
    with tempfile.TemporaryDirectory(prefix="ablate-judge-") as folder:
        place = path.resolve()
        if any(file.exists() and file.stat().st_size for file in beside):
            place = Path(folder, "copy.db")
            shutil.copyfile(path, place)
            for file, ending in zip(beside, BESIDE, strict=True):
                # The index of the log is built again.
                if file.exists() and ending != "-shm":
                    shutil.copyfile(file, f"{place}{ending}")
            address = f"{place.as_uri()}?mode=rw"
        else:
            address = f"{place.as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            # A value may be computed by the database: hex(zeroblob(1000000000)).
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_TEXT)
            end = time.process_time() + MOST_SECONDS
            connection.set_progress_handler(lambda: time.process_time() > end, STEPS)
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection


def _mlflow(connection: sqlite3.Connection) -> list[Curve]:
    names = {
        str(key): name
        for key, name in connection.execute(
            "SELECT experiment_id, name FROM experiments"
        )
    }
    curves = {}
    experiments = {}
    for key, name, status, experiment in connection.execute(
        "SELECT run_uuid, name, status, experiment_id FROM runs"
        " WHERE lifecycle_stage != 'deleted' ORDER BY start_time, run_uuid"
    ):
        curves[key] = Curve(name=f"run {name or key}", failed=status != "FINISHED")
        experiments[key] = names.get(str(experiment), str(experiment))
    if len(set(experiments.values())) > 1:
        for key, curve in curves.items():
            curve.settings["experiment"] = experiments[key]
    for key, name, value in connection.execute(
        "SELECT run_uuid, key, value FROM params ORDER BY key"
    ):
        if key in curves:
            curves[key].settings[name] = value
    for key, name, value, step, bad in connection.execute(
        "SELECT run_uuid, key, value, step, is_nan FROM latest_metrics ORDER BY key"
    ):
        if key in curves:
            curve = curves[key]
            curve.metrics[name] = math.inf if bad else _finite(value)
            curve.ends[name] = step
            curve.reach(step)
    return list(curves.values())


def _optuna(connection: sqlite3.Connection) -> list[Curve]:
    studies = [
        row[0]
        for row in connection.execute(
            "SELECT study_name FROM studies ORDER BY study_id"
        )
    ]
    curves = {}
    for key, number, state, study in connection.execute(
        "SELECT trial_id, number, state, study_name FROM trials"
        " JOIN studies USING (study_id) ORDER BY trial_id"
    ):
        curves[key] = Curve(name=f"{study} trial {number}", failed=state != "COMPLETE")
        if len(studies) > 1:
            curves[key].settings["study"] = study
    for key, name, value, distribution in connection.execute(
        "SELECT trial_id, param_name, param_value, distribution_json FROM trial_params"
        " ORDER BY param_id"
    ):
        choices = json.loads(distribution).get("attributes", {}).get("choices")
        if key in curves:
            curves[key].settings[name] = choices[int(value)] if choices else value
    for key, objective, value, kind in connection.execute(
        "SELECT trial_id, objective, value, value_type FROM trial_values"
        " ORDER BY trial_id, objective"
    ):
        if key in curves:
            name = "value" if not objective else f"value {objective}"
            is_finite = kind == "FINITE"
            curves[key].metrics[name] = _finite(value) if is_finite else math.inf
    return list(curves.values())


def _directions(connection: sqlite3.Connection, tables: set[str]) -> dict[str, str]:
    """Returns whether larger or smaller values are better, as all studies state it."""
    if "study_directions" not in tables:
        return {}
    found: dict[str, set[str]] = {}
    for direction, objective in connection.execute(
        "SELECT direction, objective FROM study_directions"
    ):
        name = f"value {objective}" if objective else "value"
        found.setdefault(name, set()).add(str(direction))
    words = {"MAXIMIZE": "max", "MINIMIZE": "min"}
    return {
        name: words[direction]
        for name, (direction, *others) in found.items()
        if direction in words and not others
    }


def _finite(value: Any) -> float:
    number = number_of(value)
    return math.nan if number is None else number
