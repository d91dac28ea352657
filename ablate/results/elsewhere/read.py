"""Reads runs: from a table, from a folder with one folder per run, or from a tracker."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError, shortened
from ablate.readers.files import rows_of
from ablate.results.elsewhere.runs import (
    SEEDS,
    STEPS,
    Curve,
    Runs,
    number_of,
    of_curves,
    typed,
    without_lost,
)
from ablate.text.advice import option

if TYPE_CHECKING:
    import pandas as pd

FORMS = ".csv, .tsv, .parquet, .json, .jsonl, .db, .sqlite"
# Files of a folder that hold the metrics of a run; those of other names only if there are
# no such files.
METRIC_FILES = ("*tfevents*", "metrics.csv", "summary.csv", "*.jsonl", "*.ndjson")
OTHER_FILES = ("*.csv", "*.json")
# Files of a folder that hold what a run declares.
SETTING_FILES = ("hparams.yaml", "args.yaml", "config.yaml", "config.json", "args.json")
# A name that ends in a number, such as `rms-seed3`, `rms_s3` and `rms-3`.
NUMBERED = re.compile(
    r"(?P<name>.+?)[-_./ ](?P<mark>seed|s|run|r)?[-_=]?(?P<seed>\d+)", re.IGNORECASE
)
# A part of a name such as `norm=rms`, and a seed such as `seed3` or `seed=3`.
PAIR = re.compile(
    r"(?:^|[/,;_ ])([A-Za-z][A-Za-z0-9.]*)=([^/,; ]+?)(?=$|[/,; ]|_[A-Za-z0-9.]+=|[-_]seed)"
)
SEED = re.compile(r"(?:^|[/,;_ -])seed[_=-]?(?P<seed>\d+)", re.IGNORECASE)
# The most folders of runs that are read, and the most settings of a run.
MOST_RUNS = 100_000
MOST_SETTINGS = 1_000
# The most bytes of a file with settings.
MOST_BYTES = 1_000_000
# Settings that are nested deeper are not read.
DEEPEST = 4
# What a broken file of another program may lead to.
BROKEN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    csv.Error,
    sqlite3.Error,
)


def read_runs(path: Path, names: str = "") -> Runs:
    """Returns the runs of a file or folder.

    Args:
        path: a table, a folder of runs, or the database of a tracker.
        names: how the folders of runs are named, such as `{norm}-{seed}`.

    Raises:
        AblateError: it is missing, has another form, or cannot be read.
    """
    if path.is_dir():
        return _folder(path, names)
    if not path.is_file():
        raise AblateError(f"there is no file or folder {path}")
    if names:
        raise AblateError(
            f"{option('names')} is for a folder of runs, and {path} is a file"
        )
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
    if ending not in readers:
        raise AblateError(f"{path}: results are read from a folder of runs, or {FORMS}")
    try:
        return readers[ending](path)
    except BROKEN as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> AblateError:
    return AblateError(f"{path} cannot be read: {shortened(str(error), 300)}")


def runs_of(frame: pd.DataFrame, source: str = "", start: int = 0) -> Runs:
    """Returns the runs of a table: one per line, or one per curve.

    Args:
        frame: lines in any order.
        source: the name of the file.
        start: the number of its first line with a run.

    Raises:
        AblateError: it has no line, or two columns with one name.
    """
    import numpy as np
    import pandas as pd

    label = source or "the frame"
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    doubled = frame.columns[frame.columns.duplicated()].tolist()
    if doubled:
        raise AblateError(
            f"{label} has two columns {shortened(str(doubled[0]))}; rename one"
        )
    if frame.empty:
        raise AblateError(f"{label} has no line with a run")
    lines = np.arange(len(frame)) + start if source else frame.index.to_numpy()
    frame = frame.reset_index(drop=True)
    frame = pd.DataFrame({name: typed(frame[name]) for name in frame.columns})
    where = _places(source, lines)
    for step in STEPS:
        if step in frame and pd.api.types.is_numeric_dtype(frame[step]):
            return _of_curves(frame, step, where, label)
    return Runs(frame=frame, where=where)


def _of_curves(
    frame: pd.DataFrame, step: str, where: Sequence[str], label: str
) -> Runs:
    """Returns the runs of a table with a column of epochs or steps.

    They are one per line if the step is a result, such as the best epoch.
    """
    import pandas as pd

    alone = Runs(frame=frame, where=where)
    # A setting has all of its values in the first epoch; a metric, or a rate that falls,
    # gets new ones later.
    at_start = frame[frame[step] == frame[step].min()]
    keys = [
        column
        for column in frame.columns
        if column not in STEPS and frame[column].nunique() == at_start[column].nunique()
    ]
    # These are not measured, so they belong to the settings of a curve.
    needed = [
        column
        for column in frame.columns
        if SEEDS.fullmatch(column) or not pd.api.types.is_numeric_dtype(frame[column])
    ]
    if not keys or not set(needed) <= set(keys):
        return alone
    ordered = frame.sort_values(step, kind="stable")
    groups = ordered.groupby(keys, sort=False, dropna=False)
    if groups.ngroups == len(frame):
        return alone
    has_seeds = any(SEEDS.fullmatch(column) for column in keys)
    if not has_seeds and not _are_curves(groups[step], ordered[step]):
        return alone
    doubled = frame.index[frame.duplicated([*keys, step])]
    if len(doubled):
        raise AblateError(
            f"{where[doubled[0]]} has the settings and the {step} of a line before; add a"
            " column, such as a seed, that tells runs apart"
        )
    # A rate that is the same in all runs at each step is part of the schedule.
    by_step = ordered.groupby(step)
    measured = [
        column
        for column in frame.columns
        if column not in (*keys, *STEPS) and by_step[column].nunique().max() > 1
    ]
    last = groups.last().reset_index()
    lengths = groups[step].max().tolist()
    for column in measured:
        ends = ordered[step].where(ordered[column].notna())
        ends_of_runs = ends.groupby(
            [ordered[key] for key in keys], sort=False, dropna=False
        )
        last[column] = without_lost(
            last[column].tolist(), ends_of_runs.max().tolist(), lengths
        )
    places = frame.groupby(keys, sort=False, dropna=False).head(1)
    first_lines = {
        key: where[place]
        for place, key in zip(
            places.index, places[keys].astype(str).agg("\0".join, axis=1), strict=True
        )
    }
    return Runs(
        frame=last[[*keys, *measured]],
        where=[
            first_lines[key] for key in last[keys].astype(str).agg("\0".join, axis=1)
        ],
        settings=frozenset(keys),
        metrics=frozenset(measured),
        lengths=lengths,
        notes=(
            f"{label} has {len(frame)} lines by {step}: the last value of each of"
            f" {len(last)} runs counts.",
        ),
    )


def _are_curves(steps_of_runs: Any, steps: pd.Series[Any]) -> bool:
    """Whether each run has all steps up to its last one."""
    counts = {
        step: number for number, step in enumerate(sorted(steps.unique()), start=1)
    }
    return all(
        (run.nunique() == counts[run.max()] and len(run) == run.nunique())
        or len(run) > run.nunique()
        for _, run in steps_of_runs
    )


def _places(source: str, lines: Any) -> list[str]:
    name = Path(source).name if source else ""
    return [f"{name}, line {line}" if name else f"line {line}" for line in lines]


def _csv(path: Path) -> Runs:
    import pandas as pd

    with path.open("rb") as binary:
        is_wide = binary.read(2) in (b"\xff\xfe", b"\xfe\xff")
    encoding = "utf-16" if is_wide else "utf-8-sig"
    with path.open(encoding=encoding, errors="replace", newline="") as file:
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
        # Where semicolons part columns, a comma is usually that of a decimal number.
        decimal="," if separator == ";" else ".",
        encoding=encoding,
        encoding_errors="replace",
        keep_default_na=False,
        na_values=[""],
        skipinitialspace=True,
        index_col=False,
        low_memory=False,
    )
    return runs_of(frame, str(path), start=2)


def _parquet(path: Path) -> Runs:
    import pyarrow.parquet as pq

    # The metadata of pandas, with the index, are not read.
    frame = pq.read_table(path).to_pandas(ignore_metadata=True)
    return runs_of(frame, str(path), start=1)


def _json(path: Path) -> Runs:
    import pandas as pd

    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if path.suffix.lower() == ".json":
        data = json.loads(text)
        if isinstance(data, Mapping):
            lists = [value for value in data.values() if isinstance(value, list)]
            if len(lists) == len(data):
                return runs_of(pd.DataFrame(dict(data)), str(path), start=1)
            data = lists[0] if len(lists) == 1 else [data]
    else:
        data = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data):
        raise AblateError(
            f'{path} needs one object per run, as in {{"seed": 0, "accuracy": 0.9}}'
        )
    return runs_of(pd.json_normalize(data), str(path), start=1)


def _folder(path: Path, names: str) -> Runs:
    """Returns the runs of a folder.

    A run is a folder with a file of metrics; several tables in one folder are several
    runs.
    """
    pattern = _pattern(names) if names else None
    files = _files(path, METRIC_FILES) or _files(path, OTHER_FILES)
    if not files:
        raise AblateError(
            f"{path} has no folder with metrics; looked for"
            f" {', '.join((*METRIC_FILES, *OTHER_FILES))}"
        )
    if len(files) > MOST_RUNS:
        raise AblateError(
            f"{path} has {len(files):,} runs; at most {MOST_RUNS:,} are read"
        )
    curves = []
    for name, of_run in files.items():
        curve = Curve(name=name, settings=_settings_of(of_run[0].parent, path))
        for file in of_run:
            try:
                curve.follow(rows_of(file))
            except BROKEN as error:
                raise _broken(file, error) from error
        curves.append(curve)
    note = _named(curves, names, pattern) if pattern else _named_alike(curves)
    runs = of_curves(curves, str(path))
    return replace(runs, notes=(*runs.notes, *([note] if note else [])))


def _files(path: Path, forms: Sequence[str]) -> dict[str, list[Path]]:
    """Returns the files of metrics of each run, by the name of the run."""
    by_folder: dict[Path, list[Path]] = {}
    for form in forms:
        for file in sorted(path.rglob(form)):
            # Anything else, such as a pipe, would block.
            if file.is_file() and file.name not in SETTING_FILES:
                by_folder.setdefault(file.parent, []).append(file)
    files: dict[str, list[Path]] = {}
    for folder in sorted(by_folder):
        name = str(folder.relative_to(path)) if folder != path else folder.name
        of_folder = list(dict.fromkeys(by_folder[folder]))
        tables = [file for file in of_folder if "tfevents" not in file.name]
        if len({file.suffix for file in tables}) == len(tables):
            files[name] = of_folder
            continue
        for file in tables:
            stem = file.stem if folder == path else f"{name}/{file.stem}"
            files[stem] = [file]
    return files


def _named(curves: Sequence[Curve], names: str, pattern: re.Pattern[str]) -> str:
    """Adds to runs what the names of their folders say, by their form."""
    for curve in curves:
        match = pattern.search(curve.name)
        if match is None:
            raise AblateError(
                f"{option('names')} {names}: the folder {shortened(curve.name)} has"
                " another form"
            )
        curve.settings |= match.groupdict()
    return ""


def _named_alike(curves: Sequence[Curve]) -> str:
    """Adds what names such as `norm=rms/seed3` and `rms-3` say. Returns a note on it."""
    added = False
    for curve in curves:
        pairs = dict(PAIR.findall(curve.name))
        seed = SEED.search(curve.name)
        if seed is not None:
            pairs.setdefault("seed", seed["seed"])
        new = {
            name: level for name, level in pairs.items() if name not in curve.settings
        }
        if set(new) != {"seed"} or curve.settings:
            curve.settings |= new
            added = added or bool(new)
    if any(curve.settings for curve in curves):
        if not added:
            return ""
        return (
            "Some settings are from the names of the folders;"
            f" {option('names')} says otherwise."
        )
    matches = [NUMBERED.fullmatch(_last_part(curve.name)) for curve in curves]
    numbered = [match for match in matches if match is not None]
    are_seeds = len(numbered) == len(matches) and _are_seeds(numbered)
    for curve, match in zip(curves, matches, strict=True):
        if are_seeds and match is not None:
            curve.settings |= {"name": match["name"], "seed": match["seed"]}
        else:
            curve.settings["name"] = _last_part(curve.name)
    what = "Names and seeds" if are_seeds else "Names"
    return (
        f"{what} are from the names of the folders; {option('names')} says otherwise."
    )


def _are_seeds(numbered: Sequence[re.Match[str]]) -> bool:
    """Whether the numbers at the ends of names are seeds: 0 to n, 1 to n, or marked."""
    if all(match["mark"] for match in numbered):
        return True
    by_name: dict[str, list[int]] = {}
    for match in numbered:
        by_name.setdefault(match["name"], []).append(int(match["seed"]))
    return all(
        sorted(seeds) in (list(range(len(seeds))), list(range(1, len(seeds) + 1)))
        for seeds in by_name.values()
    )


def _last_part(name: str) -> str:
    """Returns a name without the part that Lightning adds."""
    parts = [
        part for part in Path(name).parts if not re.fullmatch(r"version_\d+", part)
    ]
    return "/".join(parts) if parts else name


def _pattern(names: str) -> re.Pattern[str]:
    """Returns the expression of a form such as `{norm}-{seed}`."""
    parts = re.split(r"\{([A-Za-z_]\w*)\}", names)
    fields = parts[1::2]
    if not fields or len(set(fields)) < len(fields):
        raise AblateError(
            f"{option('names')} {names}: needs different names in braces, as in '{{norm}}-{{seed}}'"
        )
    made = "".join(
        f"(?P<{part}>[^/]+?)" if number % 2 else re.escape(part)
        for number, part in enumerate(parts)
    )
    return re.compile(rf"(?:^|/){made}(?:$|/)")


def _settings_of(folder: Path, root: Path) -> dict[str, Any]:
    """Returns what the files beside the metrics of a run declare."""
    import yaml

    for place in dict.fromkeys((folder, folder.parent if folder != root else folder)):
        for name in SETTING_FILES:
            file = place / name
            if not file.is_file():
                continue
            if file.stat().st_size > MOST_BYTES:
                raise AblateError(
                    f"{file} has more than {MOST_BYTES:,} bytes; settings are shorter"
                )
            try:
                text = file.read_text(encoding="utf-8", errors="replace")
                data = yaml.load(text, Loader=_plain_loader())
                settings = dict(itertools.islice(_flat(data), MOST_SETTINGS + 1))
            except (yaml.YAMLError, *BROKEN) as error:
                raise _broken(file, error) from error
            if len(settings) > MOST_SETTINGS:
                raise AblateError(f"{file} has more than {MOST_SETTINGS:,} settings")
            if settings:
                return settings
    return {}


@cache
def _plain_loader() -> Any:
    """Returns a loader of YAML that makes plain lists, mappings and texts of all tags."""
    import yaml

    class Plain(yaml.SafeLoader):
        pass

    def plain(loader: Plain, tag: str, node: yaml.Node) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node)
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node)
        return str(node.value)

    Plain.add_multi_constructor("", plain)
    return Plain


def _flat(data: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields nested settings by dotted names; lists and what is nested deeper as text."""
    if not isinstance(data, Mapping):
        return
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and depth < DEEPEST:
            # Weights & Biases writes {lr: {value: 0.1}}.
            if set(value) <= {"value", "desc"} and "value" in value:
                value = value["value"]
            else:
                yield from _flat(value, f"{name}.", depth + 1)
                continue
        if value is None or isinstance(value, str | int | float | bool):
            yield name, value
        elif isinstance(value, list) and not any(
            isinstance(v, list | dict) for v in value
        ):
            yield name, str(value)


def _database(path: Path) -> Runs:
    """Returns the runs of MLflow's or Optuna's SQLite database."""
    with closing(
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    ) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        tables = {
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        }
        if {"experiments", "runs", "params", "latest_metrics"} <= tables:
            return of_curves(_mlflow(connection), str(path))
        if {"trials", "trial_params", "trial_values"} <= tables:
            return of_curves(_optuna(connection), str(path))
    raise AblateError(f"{path} is a database of neither MLflow nor Optuna")


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


def _finite(value: Any) -> float:
    number = number_of(value)
    return math.nan if number is None else number
