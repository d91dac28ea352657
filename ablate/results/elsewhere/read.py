"""Reads runs: from a table, from a folder with one folder per run, or from a tracker."""

from __future__ import annotations

import csv
import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError, shortened
from ablate.readers.files import rows_of
from ablate.results.elsewhere.runs import (
    SEEDS,
    STEPS,
    Curve,
    Runs,
    of_curves,
    typed,
)

if TYPE_CHECKING:
    import pandas as pd

FORMS = ".csv, .tsv, .parquet, .json, .jsonl, .db, .sqlite"
# Files of a folder that hold the metrics of a run.
METRIC_FILES = ("*tfevents*", "metrics.csv", "summary.csv", "*.jsonl", "*.ndjson")
# Files of a folder that hold what a run declares.
SETTING_FILES = ("hparams.yaml", "args.yaml", "config.yaml", "config.json", "args.json")
# A name that ends in a number, such as `rms-seed3`, `rms_s3` and `rms-3`.
NUMBERED = re.compile(
    r"(?P<name>.+?)[-_./ ](?:seed|s|run|r|version)?[-_=]?(?P<seed>\d+)", re.IGNORECASE
)
# A part of a name such as `norm=rms`, and a seed such as `seed3` or `seed=3`.
PAIR = re.compile(r"(?:^|[/,;_ ])([A-Za-z][\w.]*)=([^/,; ]+)")
SEED = re.compile(r"(?:^|[/,;_ -])seed[_=-]?(?P<seed>\d+)", re.IGNORECASE)
# The most folders of runs that are read.
MOST_RUNS = 100_000
# The most bytes of a file with settings.
MOST_BYTES = 1_000_000


def read_runs(path: Path, names: str = "") -> Runs:
    """Returns the runs of a file or folder.

    Args:
        path: a table, a folder of runs, or the database of a tracker.
        names: how the folders of runs are named, such as `{norm}-{seed}`.

    Raises:
        AblateError: it is missing, has another form, or cannot be read.
    """
    if not path.exists():
        raise AblateError(f"there is no file or folder {path}")
    ending = path.suffix.lower()
    readers: dict[str, Callable[[Path], Runs]] = {
        ".csv": _csv,
        ".tsv": _csv,
        ".parquet": _parquet,
        ".json": _json,
        ".jsonl": _json,
        ".ndjson": _json,
        ".db": _database,
        ".sqlite": _database,
        ".sqlite3": _database,
    }
    if ending not in readers and not path.is_dir():
        raise AblateError(f"{path}: results are read from a folder of runs, or {FORMS}")
    try:
        return _folder(path, names) if path.is_dir() else readers[ending](path)
    except (OSError, ValueError, RuntimeError, csv.Error, sqlite3.Error) as error:
        raise AblateError(
            f"{path} cannot be read: {shortened(str(error), 300)}"
        ) from error


def runs_of(frame: pd.DataFrame, source: str = "") -> Runs:
    """Returns the runs of a table: one per line, or one per curve.

    Args:
        frame: lines in any order.
        source: the name of the file.

    Raises:
        AblateError: it has no line, or two columns with one name.
    """
    import numpy as np
    import pandas as pd

    label = source or "the frame"
    doubled = frame.columns[frame.columns.duplicated()].tolist()
    if doubled:
        raise AblateError(
            f"{label} has two columns {shortened(str(doubled[0]))}; rename one"
        )
    if frame.empty:
        raise AblateError(f"{label} has no line with a run")
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    lines = np.arange(len(frame)) + 2 if source else frame.index.to_numpy()
    frame = frame.reset_index(drop=True)
    for column in frame.columns:
        frame[column] = typed(frame[column])
    step = next((name for name in STEPS if name in frame.columns), None)
    if step is None or not pd.api.types.is_numeric_dtype(frame[step]):
        return Runs(frame=frame, where=_places(source, lines))
    # A setting has all of its values in the first epoch; a metric, or a rate that falls,
    # gets new ones later.
    at_start = frame[frame[step] == frame[step].min()]
    keys = [
        column
        for column in frame.columns
        if column not in STEPS and frame[column].nunique() == at_start[column].nunique()
    ]
    # Without these among the settings, the step is a result, such as that of the best epoch.
    needed = [
        column
        for column in frame.columns
        if SEEDS.fullmatch(column) or not pd.api.types.is_numeric_dtype(frame[column])
    ]
    ordered = frame.sort_values(step, kind="stable")
    groups = ordered.groupby(keys, sort=False, dropna=False) if keys else None
    is_curves = groups is not None and set(needed) <= set(keys)
    if groups is None or not is_curves or groups.ngroups == len(frame):
        return Runs(frame=frame, where=_places(source, lines))
    doubled_steps = frame[frame.duplicated([*keys, step])]
    if len(doubled_steps):
        line = _places(source, [lines[doubled_steps.index[0]]])[0]
        raise AblateError(
            f"{line} has the settings and the {step} of a line before; add a column, such"
            " as a seed, that tells runs apart"
        )
    # A rate that is the same in all runs at each step is part of the schedule.
    by_step = ordered.groupby(step)
    scheduled = [
        column
        for column in frame.columns
        if column not in keys and by_step[column].nunique().max() <= 1
    ]
    measured = [
        column for column in frame.columns if column not in (*keys, *scheduled, *STEPS)
    ]
    # `last` takes the last value that is there, column by column.
    last = groups.last().reset_index()
    starts = frame.assign(_line=lines).groupby(keys, sort=False, dropna=False)["_line"]
    order = last[keys].merge(starts.min().reset_index(), on=keys, how="left")["_line"]
    return Runs(
        frame=last[[*keys, *measured]],
        where=_places(source, order.tolist()),
        settings=frozenset(keys),
        metrics=frozenset(measured),
        lengths=groups[step].max().tolist(),
        notes=(
            f"{label} has {len(frame)} lines by {step}: the last value of each of"
            f" {len(last)} runs counts.",
        ),
    )


def _places(source: str, lines: Any) -> list[str]:
    name = Path(source).name if source else ""
    return [f"{name}, line {line}" if name else f"line {line}" for line in lines]


def _csv(path: Path) -> Runs:
    import pandas as pd

    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        header = file.readline()
    separator = "\t" if path.suffix.lower() == ".tsv" or "\t" in header else ","
    if separator not in header and ";" in header:
        separator = ";"
    names = [name.strip().strip('"') for name in header.rstrip("\r\n").split(separator)]
    doubled = [name for name in names if name and names.count(name) > 1]
    if doubled:
        raise AblateError(f"{path} has two columns {shortened(doubled[0])}; rename one")
    frame = pd.read_csv(
        path,
        sep=separator,
        encoding="utf-8-sig",
        encoding_errors="replace",
        keep_default_na=False,
        na_values=[""],
        skipinitialspace=True,
        low_memory=False,
    )
    return runs_of(frame, str(path))


def _parquet(path: Path) -> Runs:
    import pyarrow.parquet as pq

    # The metadata of pandas, with the index, are not read.
    return runs_of(pq.read_table(path).to_pandas(ignore_metadata=True), str(path))


def _json(path: Path) -> Runs:
    import pandas as pd

    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if path.suffix.lower() == ".json":
        data = json.loads(text)
        if isinstance(data, Mapping):
            lists = [value for value in data.values() if isinstance(value, list)]
            if len(lists) == len(data):
                return runs_of(pd.DataFrame(dict(data)), str(path))
            data = lists[0] if len(lists) == 1 else [data]
    else:
        data = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data):
        raise AblateError(
            f'{path} needs one object per run, as in {{"seed": 0, "accuracy": 0.9}}'
        )
    return runs_of(pd.json_normalize(data), str(path))


def _folder(path: Path, names: str) -> Runs:
    """Returns the runs of a folder: each folder below it that has a file of metrics."""
    files: dict[Path, list[Path]] = {}
    for form in METRIC_FILES:
        for file in sorted(path.rglob(form)):
            files.setdefault(file.parent, []).append(file)
    if not files:
        raise AblateError(
            f"{path} has no folder with metrics; looked for {', '.join(METRIC_FILES)}"
        )
    if len(files) > MOST_RUNS:
        raise AblateError(
            f"{path} has {len(files):,} folders with metrics; at most {MOST_RUNS:,} are"
            " read"
        )
    curves = []
    for folder in sorted(files):
        name = str(folder.relative_to(path)) if folder != path else folder.name
        curve = Curve(name=name, settings=_settings_of(folder, path))
        for file in files[folder]:
            curve.follow(rows_of(file))
        curves.append(curve)
    note = _name(curves, names)
    runs = of_curves(curves, str(path))
    return replace(runs, notes=(*runs.notes, *([note] if note else [])))


def _name(curves: Sequence[Curve], names: str) -> str:
    """Adds to runs what the names of their folders say. Returns a note on it, or nothing.

    Args:
        names: the form of the names; empty: it is found.
    """
    if names:
        pattern = _pattern(names)
        for curve in curves:
            match = pattern.search(curve.name)
            if match is None:
                raise AblateError(
                    f"--names {names}: the folder {shortened(curve.name)} has another form"
                )
            curve.settings |= match.groupdict()
        return ""
    if any(curve.settings for curve in curves):
        return ""
    return _named_alike(curves)


def _named_alike(curves: Sequence[Curve]) -> str:
    """Adds what names such as `norm=rms/seed3` and `rms-3` say. Returns a note on it."""
    for curve in curves:
        curve.settings |= dict(PAIR.findall(curve.name))
        seed = SEED.search(curve.name)
        if curve.settings and seed is not None:
            curve.settings.setdefault("seed", seed["seed"])
    if any(curve.settings for curve in curves):
        return "Settings are from the names of the folders; --names says otherwise."
    numbered = [NUMBERED.fullmatch(_last_part(curve.name)) for curve in curves]
    for curve, match in zip(curves, numbered, strict=True):
        if all(numbered) and match is not None:
            curve.settings |= {"name": match["name"], "seed": match["seed"]}
        else:
            curve.settings["name"] = curve.name
    if not all(numbered):
        return ""
    return "Names and seeds are from the names of the folders; --names says otherwise."


def _last_part(name: str) -> str:
    """Returns the part of a folder's name that tells runs apart: Lightning adds its own."""
    parts = [
        part for part in Path(name).parts if not re.fullmatch(r"version_\d+", part)
    ]
    return "/".join(parts) if parts else name


def _pattern(names: str) -> re.Pattern[str]:
    """Returns the expression of a form such as `{norm}-{seed}`."""
    parts = re.split(r"\{(\w+)\}", names)
    fields = parts[1::2]
    if not fields or len(set(fields)) < len(fields):
        raise AblateError(
            f"--names {names}: needs different names in braces, as in '{{norm}}-{{seed}}'"
        )
    made = "".join(
        f"(?P<{part}>[^/]+?)" if number % 2 else re.escape(part)
        for number, part in enumerate(parts)
    )
    return re.compile(rf"(?:^|/){made}(?:$|/)")


def _settings_of(folder: Path, root: Path) -> dict[str, Any]:
    """Returns what the files beside the metrics of a run declare."""
    import yaml

    for place in (folder, folder.parent):
        for name in SETTING_FILES:
            file = place / name
            if not file.is_file() or file.stat().st_size > MOST_BYTES:
                continue
            try:
                data = yaml.safe_load(
                    file.read_text(encoding="utf-8", errors="replace")
                )
            except (yaml.YAMLError, RecursionError) as error:
                raise AblateError(
                    f"{file} cannot be read: {shortened(str(error))}"
                ) from error
            if isinstance(data, Mapping):
                return dict(_flat(data))
        if place == root:
            break
    return {}


def _flat(data: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the scalars of nested settings by dotted names."""
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            # Weights & Biases writes {lr: {value: 0.1}}.
            if set(value) <= {"value", "desc"} and "value" in value:
                yield name, value["value"]
                continue
            yield from _flat(value, f"{name}.")
        elif isinstance(value, str | int | float | bool):
            yield name, value


def _database(path: Path) -> Runs:
    """Returns the runs of MLflow's or Optuna's SQLite database."""
    with closing(
        sqlite3.connect(f"file:{path.resolve().as_posix()}?mode=ro", uri=True)
    ) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        tables = {
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        }
        if {"runs", "params", "latest_metrics"} <= tables:
            return of_curves(_mlflow(connection), str(path))
        if {"trials", "trial_params", "trial_values"} <= tables:
            return of_curves(_optuna(connection), str(path))
    raise AblateError(f"{path} is a database of neither MLflow nor Optuna")


def _mlflow(connection: sqlite3.Connection) -> list[Curve]:
    curves = {}
    for key, name, status in connection.execute(
        "SELECT run_uuid, name, status FROM runs WHERE lifecycle_stage != 'deleted'"
        " ORDER BY start_time, run_uuid"
    ):
        curves[key] = Curve(
            name=f"run {name or key}",
            failed=str(status).upper() in ("FAILED", "KILLED", "RUNNING"),
        )
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
            curve.metrics[name] = math.inf if bad else float(value)
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
            curves[key].metrics[name] = float(value) if kind == "FINITE" else math.inf
    return list(curves.values())
