"""Verdicts on runs that were trained elsewhere."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError, counted, first, shortened
from ablate.records import (
    LEVEL,
    UNCOUNTED,
    Before,
    CellResult,
    Metric,
    Reported,
    Status,
    StudyResults,
    is_number,
    level_text,
)
from ablate.report.effect import Effect
from ablate.report.effects import effects
from ablate.report.effects_table import effects_table
from ablate.report.results_table import results_table
from ablate.report.table import Table, html
from ablate.report.target_table import TargetTest, target_table, target_tests
from ablate.report.wording import (
    REPORTED_POLICY,
    UNKNOWN,
    reported_notes,
    rows_text,
)
from ablate.results.elsewhere.columns import (
    MISSING,
    Columns,
    Setting,
    columns_of,
    is_about,
    settings_of,
)
from ablate.results.elsewhere.read import read_runs
from ablate.results.elsewhere.runs import Runs, number_of
from ablate.results.elsewhere.tables import runs_of
from ablate.results.study import Study
from ablate.text.advice import option

if TYPE_CHECKING:
    import pandas as pd

# Words of a status that is the end of a complete run, and of some that are not.
COMPLETE = frozenset(
    "finished completed complete success succeeded done ok terminated".split()
)
FAILED = frozenset(
    "failed fail crashed killed pruned running error canceled cancelled preempted"
    " preempting timeout oom pending".split()
)
# The largest number that every tool reads as it is written.
MOST_SEED = 2**53


@dataclass(frozen=True)
class Judged:
    """Runs that were trained elsewhere, as a study with verdicts.

    Attributes:
        table: the runs as they were read.
        columns: what the columns of the runs were taken for.
        results: one cell per setting, row 0 first.
        margin: the least difference that matters.
        file: what the runs were read from; empty: a frame.
        names: the form of the names of folders, as it was given.
        labels: the seed of each number, if seeds are no whole numbers.
    """

    table: Runs = field(repr=False)
    columns: Columns
    results: StudyResults
    margin: float
    file: str
    names: str
    labels: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What the runs were taken for, in one line."""
        return self.columns.sentence(self.runs)

    @property
    def notes(self) -> list[str]:
        """What a reader has to know of the runs."""
        return reported_notes(self.results)

    @property
    def runs(self) -> int:
        """The number of runs."""
        return sum(len(cell.statuses) for cell in self.results.cells)

    def effects(self) -> list[Effect]:
        """Returns the difference of each row from row 0, with its verdict."""
        return effects(self.results, self.margin)

    def effects_table(self) -> Table:
        """Returns the verdicts as a table."""
        return effects_table(self.results, self.effects(), self.margin)

    def results_table(self) -> Table:
        """Returns the mean of each row as a table."""
        return results_table(self.results, policy=REPORTED_POLICY)

    def target_tests(self, target: float, level: float = LEVEL) -> list[TargetTest]:
        """Returns for each row whether its mean is better than a number."""
        return target_tests(self.results, target, level)

    def target_table(self, target: float, level: float = LEVEL) -> Table:
        """Returns the same as a table."""
        return target_table(self.results, target, level).with_notes(self.notes)

    def keep(
        self, name: str = "", *, runs: str | Path = "runs", store: str = ""
    ) -> Study:
        """Stores the runs as a study, which every table and chart of studies can show.

        If the store has a study of this name that was reported before, this is its next
        generation, unless the results are the same.

        Args:
            name: of the study; by default that of the file.
            runs: the folder with the store.
            store: the file or URL of the store; by default ablate.db in `runs`.

        Raises:
            AblateError: the runs have no row 0, a name is missing or too long, or another
                file was kept under this name.
        """
        from ablate.results.elsewhere.kept import keep
        from ablate.scheduling.options import Options

        url = Options(Path(runs), store).url
        return Study(keep(self, name, url), url)

    def _repr_html_(self) -> str:
        return str(html(self.effects_table()))


def judge(
    runs: str | Path | Any,
    *,
    metric: str = "",
    direction: str = "",
    seed: str = "",
    by: Sequence[str] = (),
    baseline: Mapping[str, Any] | None = None,
    names: str = "",
    margin: float = 0.0,
    needs_baseline: bool = True,
) -> Judged:
    """Judges runs that were trained elsewhere.

    If the seeds of each row are those of row 0, or a part of them, rows are compared seed
    by seed, otherwise by their means. What is not given is found from the columns.

    Args:
        runs: a file, a folder with a folder per run, or a frame of pandas or polars.
        metric: the column that is compared.
        direction: `max` or `min`: which values are better.
        seed: the column of seeds, or several with commas between them.
        by: the columns that tell settings apart.
        baseline: the levels of row 0.
        names: the form of the names of folders, such as `{norm}-{seed}`.
        margin: the least difference that matters.
        needs_baseline: whether rows are compared with a row 0.

    Raises:
        AblateError: the runs cannot be read, or a column is ambiguous.
    """
    if isinstance(by, str):
        by = [by]
    if baseline is not None and not isinstance(baseline, Mapping):
        raise AblateError(
            'baseline has levels by column, as in baseline={"norm": "layer"}; found'
            f" {type(baseline).__name__}"
        )
    if baseline and not needs_baseline:
        raise AblateError(
            "rows are not compared without a row 0; leave the baseline out"
        )
    if not 0 <= margin < math.inf:
        raise AblateError(f"margin is a number from 0 up, found {margin}")
    said_columns = (*by, *seed.split(","), *(baseline or {}))
    if isinstance(runs, str | Path):
        file = str(runs)
        table = read_runs(Path(runs), names, said_columns)
    else:
        if names:
            raise AblateError("names are for a folder of runs, not for a frame")
        file = ""
        table = runs_of(_pandas(runs), said=said_columns)
    table = _with_pairs(table, seed)
    said = {name: _word(level) for name, level in (baseline or {}).items()}
    columns = columns_of(
        table, metric, direction, seed, by, said, needs_baseline=needs_baseline
    )
    _refuse_doubled(table, columns)
    results = _results(table, columns, file)
    notes = (*_notes(table, columns, results), UNKNOWN)
    reported = Reported(file=file, is_paired=results.is_paired, notes=notes)
    return Judged(
        table=table,
        columns=columns,
        results=replace(results, reported=reported),
        margin=margin,
        file=file,
        names=names,
        labels=_labels(table, columns),
    )


def _equal_runs(runs: Runs, columns: Columns) -> list[int]:
    """Returns for each run how many are equal to it in all that counts.

    Results that are whole numbers may be equal by chance.
    """
    frame = runs.frame
    metric = frame[columns.metric]
    is_whole = (metric.dropna() % 1 == 0).all()
    if columns.seed or is_whole:
        return [1] * len(frame)
    counting = [name for name in frame.columns if not is_about(name)]
    sizes = frame.groupby(counting, dropna=False)[columns.metric].transform("size")
    return [int(size) for size in sizes]


def _refuse_doubled(runs: Runs, columns: Columns) -> None:
    """Raises AblateError if each run is there several times, as in a file listed twice."""
    times = min(_equal_runs(runs, columns), default=1)
    if times > 1:
        raise AblateError(
            f"each run is listed {times} times, with equal results to the last digit; give"
            " each once, or add a column of seeds"
        )


def _with_pairs(runs: Runs, seed: str) -> Runs:
    """Returns the runs with a column for several columns of seeds, such as `seed,fold`."""
    names = [name.strip() for name in seed.split(",")]
    frame = runs.frame
    if len(names) < 2 or seed in frame or not all(name in frame for name in names):
        return runs
    parts = frame[names]
    texts = parts.astype(str).agg(",".join, axis=1).where(parts.notna().all(axis=1))
    return replace(runs, frame=frame.drop(columns=names).assign(**{seed: texts}))


def _word(level: Any) -> str:
    if level is None:
        return MISSING
    if is_number(level):
        return repr(level)
    return level if isinstance(level, str) else level_text(level)


def _pandas(frame: Any) -> pd.DataFrame:
    """Returns a frame of pandas.

    Raises:
        AblateError: it is no frame.
    """
    import pandas as pd

    if isinstance(frame, pd.DataFrame):
        return frame
    if hasattr(frame, "to_dicts"):
        # polars
        return pd.DataFrame(frame.to_dicts())
    try:
        return pd.DataFrame(frame)
    except (TypeError, ValueError):
        raise AblateError(
            "runs are a file, a folder, or a frame with a line per run; found"
            f" {type(frame).__name__}"
        ) from None


def _results(runs: Runs, columns: Columns, file: str) -> StudyResults:
    """Returns the runs as a study: a cell for each setting.

    Raises:
        AblateError: a setting has two runs with one seed.
    """
    frame = runs.frame
    settings = settings_of(frame, columns.factors)
    seeds = _seeds(runs, columns, settings)
    values = [_value(value) for value in frame[columns.metric]]
    failed = _failed(runs)
    statuses: defaultdict[Setting, dict[int, Status]] = defaultdict(dict)
    measured: defaultdict[Setting, dict[int, float]] = defaultdict(dict)
    for setting, seed, value, is_failed in zip(
        settings, seeds, values, failed, strict=True
    ):
        status = Status.COMPLETED
        if math.isinf(value):
            status = Status.DIVERGED
        elif is_failed or math.isnan(value):
            status = Status.FAILED
        statuses[setting][seed] = status
        if status is Status.COMPLETED:
            measured[setting][seed] = value
    cells = tuple(
        CellResult(
            index=number,
            levels=dict(zip(columns.factors, setting, strict=True)),
            unread=frozenset(),
            role="variant" if number else "reference",
            note="",
            same_as=None,
            cost=UNCOUNTED,
            statuses=statuses[setting],
            values=measured[setting],
        )
        for number, setting in enumerate(columns.settings)
    )
    metric = Metric(
        name="metric",
        title=columns.metric,
        digits=_digits(
            [value for each in measured.values() for value in each.values()]
        ),
        direction=columns.direction,
    )
    is_paired = bool(columns.seed) and _share_seeds(cells)
    return StudyResults(
        name=Path(file).name or "frame",
        question="",
        expect="",
        source="",
        metric=metric,
        direction=columns.direction,
        factors=columns.factors,
        cells=cells,
        metrics=(metric,),
        before=Before(is_whole=True),
        reported=Reported(file=file, is_paired=is_paired),
    )


def _value(value: Any) -> float:
    number = number_of(value)
    is_missing = number is None or (isinstance(value, float) and math.isnan(value))
    return math.nan if is_missing else float(number or 0.0)


def _share_seeds(cells: Sequence[CellResult]) -> bool:
    """Whether each row has all of its seeds in common with row 0, two at least."""
    seeds = cells[0].statuses.keys()
    shared = [cell.statuses.keys() & seeds for cell in cells[1:]]
    return any(len(both) > 1 for both in shared) and all(
        len(both) == min(len(cell.statuses), len(seeds))
        for both, cell in zip(shared, cells[1:], strict=True)
    )


def _seeds(runs: Runs, columns: Columns, settings: Sequence[Setting]) -> list[int]:
    """Returns the seed of each run; without seeds, the number of the run in its setting.

    Raises:
        AblateError: a setting has two runs with one seed.
    """
    if not columns.seed:
        counts = Counter[Setting]()
        numbers_in_setting = []
        for setting in settings:
            numbers_in_setting.append(counts[setting])
            counts[setting] += 1
        return numbers_in_setting
    import pandas as pd

    column = runs.frame[columns.seed]
    labels = _labels(runs, columns)
    numbers = {label: number for number, label in enumerate(labels)}
    seeds = []
    first_of: dict[tuple[Setting, Any], int] = {}
    for place, (setting, value) in enumerate(zip(settings, column, strict=True)):
        if pd.isna(value):
            raise AblateError(
                f"{runs.where[place]} has no {columns.seed}; add it, or remove the run"
            )
        key = (setting, value)
        if key in first_of:
            levels = ", ".join(
                f"{name} = {level}"
                for name, level in zip(columns.factors, setting, strict=True)
            )
            is_whole = is_number(value) and float(value).is_integer()
            seed = int(value) if is_whole else value
            raise AblateError(
                f"two runs have {shortened(levels, 200)} and {columns.seed} {seed}:"
                f" {runs.where[first_of[key]]}, and {runs.where[place]}; remove one, or"
                " name the column that tells them apart"
            )
        first_of[key] = place
        seeds.append(numbers[str(value)] if labels else int(value))
    return seeds


def _labels(runs: Runs, columns: Columns) -> tuple[str, ...]:
    """Returns the seeds in their order, if they are not all whole numbers."""
    if not columns.seed:
        return ()
    values = runs.frame[columns.seed].dropna()
    if all(
        is_number(value) and float(value).is_integer() and abs(value) <= MOST_SEED
        for value in values
    ):
        return ()
    return tuple(dict.fromkeys(map(str, values)))


def _failed(runs: Runs) -> list[bool]:
    """Returns for each run whether its tracker says that it did not complete."""
    if runs.failed:
        return list(runs.failed)
    for name in runs.frame.columns:
        if name.lower() in ("state", "status"):
            words = [str(value).lower() for value in runs.frame[name]]
            if set(words) & (COMPLETE | FAILED):
                return [word not in COMPLETE for word in words]
    return [False] * len(runs.frame)


def _unused(runs: Runs, columns: Columns) -> list[str]:
    """Returns the columns that differ between runs, and that nothing was taken from."""
    used = {columns.metric, columns.seed, *columns.factors}
    return [
        name
        for name in runs.frame.columns
        if name not in used
        and name not in runs.metrics
        and not is_about(name)
        and runs.frame[name].nunique() > 1
    ]


def _digits(values: Sequence[float]) -> int:
    """Returns the digits that show three places of the spread of the values."""
    if len(values) < 2 or max(values) == min(values):
        return 4
    spread = max(values) - min(values)
    return min(15, max(0, 2 - math.floor(math.log10(spread))))


def _notes(runs: Runs, columns: Columns, results: StudyResults) -> list[str]:
    """Returns what is unusual: runs without a number, of other lengths, missing ones."""
    notes = list(runs.notes)
    values = runs.frame[columns.metric]
    failed = _failed(runs)
    bad = [
        f"{where} ({'not finite' if math.isinf(value) else 'failed' if is_failed else 'missing'})"
        for where, value, is_failed in zip(runs.where, values, failed, strict=True)
        if not math.isfinite(value) or is_failed
    ]
    if bad:
        notes.append(
            f"{counted(len(bad), 'run')} without a result, so the rows have no verdict:"
            f" {'; '.join(first(bad, 'runs'))}."
        )
    longest = max(
        (length for length in runs.lengths if not math.isnan(length)), default=math.nan
    )
    short = [
        f"{where} (at {length:g})"
        for where, length in zip(runs.where, runs.lengths, strict=False)
        if length < longest
    ]
    if short:
        notes.append(
            f"{counted(len(short), 'run')} ended before {longest:g}:"
            f" {'; '.join(first(short, 'runs'))}. The last value of each counts."
        )
    apart = [
        cell.index
        for cell in results.cells[1:]
        if cell.statuses.keys() - results.cells[0].statuses.keys()
    ]
    if columns.seed and not results.is_paired and apart:
        notes.append(
            f"All rows are compared unpaired, because {rows_text(apart)} and row 0 have"
            f" other values of {columns.seed}."
        )
    equal = [
        where
        for where, size in zip(runs.where, _equal_runs(runs, columns), strict=True)
        if size > 1
    ]
    if equal:
        notes.append(
            f"{counted(len(equal), 'run')} are exactly equal to another one of their row:"
            f" {'; '.join(first(equal, 'runs'))}. If one run is listed twice, remove one."
        )
    constant = [
        cell.index
        for cell in results.cells
        if columns.seed and len(cell.values) > 1 and len({*cell.values.values()}) == 1
    ]
    if constant:
        notes.append(
            f"{rows_text(constant).capitalize()}: the result is the same for every seed;"
            " the script seems to ignore its seed."
        )
    unused = _unused(runs, columns)
    if unused:
        notes.append(
            f"Not used: {', '.join(first(unused, 'columns'))}. If one tells settings"
            f" apart, write {option('by')} NAME for each column that does."
        )
    sizes = {cell.index: len(cell.statuses) for cell in results.cells}
    most = max(sizes.values())
    fewer = [
        f"row {row} has {number}" for row, number in sizes.items() if number < most
    ]
    if fewer:
        notes.append(
            f"Not all rows have {most} runs: {', '.join(first(fewer, 'rows'))}."
        )
    if most < 2 or any(number < 2 for number in sizes.values()):
        notes.append(
            "A row with one run says nothing about its noise: give row 0 and each row two"
            " runs at least, and better five."
        )
    return notes
