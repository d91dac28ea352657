"""Stores runs that were trained elsewhere as a study, which every view of a study shows.

A row is what its levels are within the studies of one name, so a file with further seeds
becomes the next generation of its study, which is tested at a lower level. The result of
a run is a part of its identity: another result of the same seed is another trial.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ablate import space as spaces
from ablate.errors import AblateError, first, shortened
from ablate.machine import provenance
from ablate.records import (
    CHAINS,
    COLUMNS,
    LONGEST_LEVEL,
    LONGEST_NAME,
    METRIC_NAME,
    RESULT,
    STUDY_NAME,
    TRAINER,
    UNCOUNTED,
    Architecture,
    Cell,
    CellResult,
    Claim,
    Criterion,
    Data,
    Design,
    Factors,
    Known,
    Metric,
    Network,
    Plan,
    Recipe,
    Reported,
    Resources,
    Scheduler,
    Seeds,
    Space,
    Status,
    StudyResults,
    Trial,
    level_text,
)
from ablate.report.wording import change_text
from ablate.results.elsewhere.columns import Columns
from ablate.results.elsewhere.numbering import levels_key, numbered
from ablate.results.elsewhere.runs import Runs
from ablate.space.comparison import FOLDER as COMPARISONS
from ablate.store.database import exists
from ablate.store.reader import Reader
from ablate.store.session import StoreSession
from ablate.text import escape
from ablate.text.advice import option

# Stands in place of a trainer.
REPORTED = "reported"
# Where the studies of chains and of comparisons of commits are.
FOLDERS = (CHAINS, COMPARISONS)
# Characters of the name of a factor. PostgreSQL cuts the names of columns after 63.
LONGEST_FACTOR = 60


class Judged(Protocol):
    """What is read of judged runs."""

    @property
    def table(self) -> Runs: ...

    @property
    def columns(self) -> Columns: ...

    @property
    def results(self) -> StudyResults: ...

    @property
    def margin(self) -> float: ...

    @property
    def file(self) -> str: ...

    @property
    def names(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def notes(self) -> list[str]: ...

    @property
    def sentence(self) -> str: ...


def keep(judged: Judged, name: str, url: str) -> str:
    """Stores judged runs as a study.

    Args:
        name: of the study; empty: that of the file.
        url: the store, which is made if there is none.

    Returns:
        the name of the study.

    Raises:
        AblateError: the runs have no row 0, or a name is missing or too long.
        StoreError: the store has another study of this name.
    """
    study = _name_of(judged.file, name)
    if judged.columns.baseline is None:
        raise AblateError(
            "a study compares rows with row 0, and these runs were judged without one;"
            " judge them with needs_baseline=True"
        )
    _refuse_long(judged.results)
    earlier = _generations(study, url)
    labels = earlier[-1].labels if earlier else ()
    results, labels = numbered(
        judged.results,
        judged.labels,
        earlier[-1].results if earlier else None,
        labels,
        has_seeds=bool(judged.columns.seed),
    )
    notes = [*_replaced(results, earlier), *judged.notes]
    metric = _metric_of(results)
    content = _content(judged)
    declared = Space(
        name=study,
        named=bool(name),
        document=_document(judged, content),
        claim=Claim(
            question=f"Trained elsewhere, reported in {judged.file or 'a frame'}"
        ),
        network=Network(backbone=f"{TRAINER}{REPORTED}", trainer=REPORTED),
        factors=_factors(results),
        design=Design(name="rows"),
        seeds=Seeds(tuple(sorted(_seeds(results.cells)))),
        data=earlier[-1].data if earlier else _data(study),
        recipe=Recipe(epochs=1),
        criterion=Criterion(
            metric=metric.name,
            direction=results.direction,
            objectives={metric.name: results.direction},
            metrics=(metric,),
            margin=judged.margin,
        ),
        resources=Resources(),
        scheduler=Scheduler(),
        reported=Reported(
            file=judged.file,
            content=content,
            command=_command(judged),
            is_paired=results.is_paired,
            notes=tuple(notes),
            labels=labels,
        ),
    )
    known: dict[str, Known] = {}
    plan = Plan(declared, tuple(_cell(cell, declared, known) for cell in results.cells))
    with StoreSession(url) as store:
        if not store.exists:
            store.create()
        # Files of one name in two folders are two files.
        file = str(Path(judged.file).resolve()) if judged.file else ""
        store.writer.report(plan, file, known, provenance.collect())
    return study


def _name_of(file: str, name: str) -> str:
    """Returns the name of the study: what the user says, else that of the file."""
    if not name and not file:
        raise AblateError(f"a frame has no file, so the study needs a {option('name')}")
    study = name or spaces.study_name(file)
    if study.startswith(FOLDERS):
        raise AblateError(
            f"{study}: studies of chains and comparisons have such names; write another"
            f" {option('name')}"
        )
    if len(study) > LONGEST_NAME or not re.fullmatch(STUDY_NAME, study):
        raise AblateError(
            f"{shortened(study)} cannot name a study; write {option('name')} NAME, with"
            f" letters, digits, '_', '-', '.' and '/', a letter or digit first, and"
            f" {LONGEST_NAME} characters at most"
        )
    return study


def _refuse_long(results: StudyResults) -> None:
    """Raises AblateError if a factor or a level is too long for a store."""
    for name in results.factors:
        if len(name) > LONGEST_FACTOR:
            raise AblateError(
                f"the column {shortened(name)} has {len(name)} characters, and a factor in"
                f" a store {LONGEST_FACTOR} at most; rename it"
            )
    for cell in results.cells:
        for name, level in cell.levels.items():
            if len(str(level)) > LONGEST_LEVEL:
                raise AblateError(
                    f"{name}: {shortened(str(level))} has {len(str(level))} characters, and"
                    f" a level in a store {LONGEST_LEVEL} at most; shorten it"
                )


def _metric_of(results: StudyResults) -> Metric:
    """Returns the metric with a name that columns of a store can have."""
    title = results.metric.title
    letters = re.sub(r"[^A-Za-z0-9_]+", "_", title).strip("_")
    taken = COLUMNS | {factor.lower() for factor in results.factors}
    numbers = itertools.count(1)
    name = letters[:20]
    while not METRIC_NAME.fullmatch(name) or name.lower() in taken:
        name = f"metric{next(numbers)}_{letters}"[:20]
    return Metric(
        name=name,
        title=title,
        digits=results.metric.digits,
        direction=results.direction,
    )


def _factors(results: StudyResults) -> Factors:
    cells = results.cells
    levels = {
        name: tuple(dict.fromkeys(cell.levels[name] for cell in cells))
        for name in results.factors
    }
    return Factors(
        levels=levels,
        fixed={},
        baseline=cells[0].levels,
        full={},
        rows=tuple(cell.levels for cell in cells),
    )


def _seeds(cells: Iterable[CellResult]) -> set[int]:
    return set[int]().union(*(cell.statuses for cell in cells))


def _data(study: str) -> Data:
    """Returns what stands for the data: studies of other names compare other things."""
    return Data(
        name=f"{REPORTED}:{study}",
        path="",
        image_size=0,
        channels=0,
        classes=0,
    )


def _cell(result: CellResult, declared: Space, known: dict[str, Known]) -> Cell:
    """Returns a row of the plan, and adds the results of its trials to the known ones."""
    architecture = Architecture(
        backbone=declared.network.backbone,
        image_size=0,
        channels=0,
        classes=0,
        # As texts: a new level may turn all levels of a column into texts.
        settings=dict(levels_key(result.levels)),
    )
    trials = []
    for seed, status in sorted(result.statuses.items()):
        value = result.values.get(seed)
        trial = Trial(
            architecture=architecture,
            recipe=declared.recipe,
            data=declared.data,
            seed=seed,
            code={
                "metric": declared.criterion.compared.title,
                RESULT: repr(value) if status is Status.COMPLETED else status.value,
            },
        )
        final = {} if value is None else {declared.criterion.metric: value}
        known[trial.hash] = Known(status=status, epochs=(), final=final)
        trials.append(trial)
    return Cell(
        index=result.index,
        levels=result.levels,
        role="variant" if result.index else "reference",
        architecture=architecture,
        cost=UNCOUNTED,
        trials=tuple(trials),
    )


def _content(judged: Judged) -> str:
    """Returns the SHA-256 of what was read (`Reported.content`)."""
    if judged.file and Path(judged.file).is_file():
        with open(judged.file, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    text = judged.table.frame.to_csv(index=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _command(judged: Judged) -> str:
    """Returns what to type to judge the runs again, with all that was understood."""
    columns = judged.columns
    baseline = dict(zip(columns.factors, columns.baseline or (), strict=True))
    if not judged.file:
        margin = f", margin={judged.margin:g}" if judged.margin else ""
        return (
            f"ablate.judge(frame, metric={columns.metric!r},"
            f" direction={columns.direction!r}, seed={columns.seed!r},"
            f" by={list(columns.factors)!r}, baseline={baseline!r}{margin})"
        )
    words = ["ablate", "judge", judged.file, "--metric", columns.metric]
    words += ["--direction", columns.direction]
    if columns.seed:
        words += ["--seed", columns.seed]
    for factor, level in baseline.items():
        words += ["--by", factor, "--baseline", f"{factor}={level_text(level)}"]
    if judged.margin:
        words += ["--margin", f"{judged.margin:g}"]
    if judged.names:
        words += ["--names", judged.names]
    return " ".join(map(escape.shell, words))


def _document(judged: Judged, content: str) -> str:
    """Returns what stands in place of a YAML text."""
    return (
        f"# Trained elsewhere: {judged.sentence}\n"
        f"# Read from {judged.file or 'a frame'}, SHA-256 {content}.\n"
    )


@dataclass(frozen=True)
class _Kept:
    """A generation of a study that was kept before."""

    results: StudyResults
    data: Data
    labels: tuple[str, ...]


def _generations(study: str, url: str) -> list[_Kept]:
    """Returns what was kept before under a name, the first generation first."""
    if not exists(url):
        return []
    with Reader(url) as reader:
        kept = []
        for name, _ in reader.studies.generations(study):
            space = reader.studies.get(name).space
            if space is not None and space.reported is not None:
                results = reader.studies.results(name)
                labels = space.reported.labels
                kept.append(_Kept(results=results, data=space.data, labels=labels))
        return kept


def _replaced(results: StudyResults, earlier: Sequence[_Kept]) -> list[str]:
    """Returns a note on results that differ from those that were kept before."""
    changed: dict[str, str] = {}
    now = {levels_key(cell.levels): cell for cell in results.cells}
    for before in earlier:
        if before.results.metric.title != results.metric.title:
            continue
        for old in before.results.cells:
            cell = now.get(levels_key(old.levels))
            if cell is None:
                continue
            for seed, status in old.statuses.items():
                # A run that failed had no result that could be replaced.
                was = (status, old.values.get(seed))
                found = (cell.statuses.get(seed), cell.values.get(seed))
                if status is Status.FAILED or was == found:
                    continue
                place = (
                    f"{change_text(cell.levels)}, seed {_label(seed, before.labels)}"
                )
                changed.setdefault(
                    place, f"{place} ({_text(*was)} before, {_text(*found)} now)"
                )
    if not changed:
        return []
    listed = "; ".join(first(list(changed.values()), "results"))
    return [
        f"Results differ from those that were kept before: {listed}. A row has no verdict"
        " if a part of its results, or of row 0, was replaced or left out. If the file"
        f" was wrong, keep the corrected one as another study, with {option('name')}."
    ]


def _label(seed: int, labels: Sequence[str]) -> str:
    return labels[seed] if labels else str(seed)


def _text(status: Status | None, value: float | None) -> str:
    if status is None:
        return "missing"
    if value is None:
        return status.value
    return repr(value)
