"""Imports studies of another store. A trial that both stores have stays one trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select, update

from ablate.errors import StoreError
from ablate.records import WITH_RESULT, Status
from ablate.store.declarations import group_of, regroup
from ablate.store.plans import CHUNK, free_view, insert_all, key_of
from ablate.store.sql_tables import (
    architectures,
    attempts,
    cell_trials,
    cells,
    correct_images,
    diagnostics,
    epoch_metrics,
    epochs,
    levels,
    provenance,
    sources,
    studies,
    trial_metrics,
    trials,
    tuning_trials,
)
from ablate.store.wide_views import put_stored

# The states by how much they say; planned and running trials say nothing.
RANK = {
    Status.COMPLETED: 3,
    Status.DIVERGED: 3,
    Status.PRUNED: 2,
    Status.ABANDONED: 1,
    Status.FAILED: 1,
}
RESULT = (
    "status",
    "epochs_done",
    "seconds",
    "selected_epoch",
    "ended_at",
)


@dataclass(frozen=True)
class Merged:
    """What a merge brought.

    Attributes:
        studies: studies that are new here.
        trials: number of trials that are new here or now have a result.
        known: number of trials that had a result here before.
    """

    studies: tuple[str, ...]
    trials: int
    known: int


def merge(source: Connection, target: Connection, names: Sequence[str]) -> Merged:
    """Imports studies from one open store into another; all if no name is given.

    `store.other` has checked the values of the other store.

    A trial that has a result here keeps it. If a trial got further in the other store
    (a result rather than an early stop, an early stop rather than a failure), it is
    replaced together with its epochs, diagnostics, attempts and provenance. A study
    that both stores have also gets the cells and seeds that only the other store has.
    Checkpoints stay where they are.

    Raises:
        StoreError: both stores have a study of one name with different declarations.
    """
    theirs = {
        row["name"]: dict(row) for row in source.execute(select(studies)).mappings()
    }
    chosen = _with_earlier(theirs, names)
    target_studies = {
        row["name"]: dict(row) for row in target.execute(select(studies)).mappings()
    }
    # All names are checked before anything is written.
    for study in chosen:
        here = target_studies.get(study["name"])
        if here is not None and _declaration(here) != _declaration(study):
            raise StoreError(
                f"both stores have a study '{study['name']}', with different"
                " declarations. Find the YAML file with which this study was run in the"
                " other store. Write another `name:` in it, run it again with the other"
                " store (nothing is trained twice), and import the renamed study"
            )
    hashes: dict[str, None] = {}
    new = []
    for study in chosen:
        rows_of = _study_rows(source, study["id"])
        hashes.update(
            dict.fromkeys(
                row["trial_hash"]
                for row in (*rows_of["cell_trials"], *rows_of["tuning_trials"])
            )
        )
        if study["name"] not in target_studies:
            new.append((study, rows_of))
    # Rows are written in the order of their foreign keys: trials need architectures,
    # cells need trials, attempts need both.
    _architectures(source, target)
    _sources(source, target)
    taken, known = _trials(source, target, list(hashes))
    places = {study["id"]: _put_study(target, study, rows_of) for study, rows_of in new}
    for study in chosen:
        if study["name"] in target_studies:
            study_id = places[study["id"]] = target_studies[study["name"]]["id"]
            rows_of = _study_rows(source, study["id"])
            _add_to_study(target, study_id, rows_of, tuned=_is_tuned(study))
            _take_generation(target, target_studies[study["name"]], study)
            # What follows from the choices of both stores is left to the next run.
            if study["finished_at"] and not _is_tuned(study):
                target.execute(
                    update(studies)
                    .where(studies.c.id == study_id, studies.c.finished_at.is_(None))
                    .values(finished_at=study["finished_at"])
                )
    _attempts(source, target, taken, places)
    regroup(target, [places[study["id"]] for study, _ in new])
    return Merged(tuple(study["name"] for study, _ in new), len(taken), known)


def _sources(source: Connection, target: Connection) -> None:
    """Copies which texts mean the same, where this store does not know it."""
    known = set(target.execute(select(sources.c.syntax)).scalars())
    rows = [dict(row) for row in source.execute(select(sources)).mappings()]
    insert_all(target, sources, (row for row in rows if row["syntax"] not in known))


def _declaration(study: Mapping[str, Any]) -> tuple[str, Any]:
    """What two studies of one name must have in common.

    An option of the command line can add looks to what the text declares.
    """
    return study["document"], study["space"].get("looks")


def _study_rows(source: Connection, study: int) -> dict[str, list[dict[str, Any]]]:
    cells_of_study = select(cells.c.id).where(cells.c.study_id == study)
    queries = {
        "cells": (
            select(cells).where(cells.c.study_id == study).order_by(cells.c.number)
        ),
        "levels": (
            select(levels)
            .where(levels.c.cell_id.in_(cells_of_study))
            .order_by(levels.c.cell_id, levels.c.position)
        ),
        "cell_trials": select(cell_trials).where(
            cell_trials.c.cell_id.in_(cells_of_study)
        ),
        "tuning_trials": select(tuning_trials).where(
            tuning_trials.c.cell_id.in_(cells_of_study)
        ),
    }
    return {name: _rows(source, query) for name, query in queries.items()}


def _rows(source: Connection, query: Select[Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in source.execute(query).mappings()]


def _put_study(
    target: Connection, study: dict[str, Any], rows_of: dict[str, list[dict[str, Any]]]
) -> int:
    """Inserts a study that is new here, with its cells, levels and wide view."""
    # Not the name that the other store gives: it becomes part of a statement.
    view = free_view(target, study["name"])
    values = {key: value for key, value in study.items() if key != "id"} | {
        "results_view": view,
        "group_id": None,
    }
    number = key_of(target.execute(insert(studies).values(**values)))
    _put_cells(target, number, rows_of["cells"], rows_of)
    put_stored(target, {**values, "id": number})
    return number


def _with_earlier(
    theirs: Mapping[str, dict[str, Any]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns the studies with these names, and the earlier ones of their groups.

    All studies if there are no names.
    """
    chosen = [theirs[name] for name in names or theirs]
    numbers = {study["id"] for study in chosen}
    for study in theirs.values():
        is_earlier = any(
            group_of(study) == group_of(other)
            and study["created_at"] < other["created_at"]
            for other in chosen
        )
        if is_earlier and study["id"] not in numbers:
            chosen = [*chosen, study]
    return chosen


def _take_generation(
    target: Connection, here: Mapping[str, Any], there: Mapping[str, Any]
) -> None:
    """Gives a study that both stores have the larger number of its generations."""
    number = max(here["generation"], there["generation"])
    of_study = studies.c.id == here["id"]
    target.execute(update(studies).where(of_study).values(generation=number))


def _put_cells(
    target: Connection,
    study: int,
    new: list[dict[str, Any]],
    rows_of: dict[str, list[dict[str, Any]]],
) -> None:
    """Inserts cells with their levels and the trials of their seeds."""
    ids: dict[int, int] = {}
    for cell in new:
        row = {key: value for key, value in cell.items() if key != "id"} | {
            "study_id": study
        }
        # Row IDs differ between stores, so references are translated.
        ids[cell["id"]] = key_of(target.execute(insert(cells).values(**row)))
    for table, rows in (
        (levels, rows_of["levels"]),
        (cell_trials, rows_of["cell_trials"]),
        (tuning_trials, rows_of["tuning_trials"]),
    ):
        mine = [
            {**row, "cell_id": ids[row["cell_id"]]}
            for row in rows
            if row["cell_id"] in ids
        ]
        insert_all(target, table, mine)


def _is_tuned(study: Mapping[str, Any]) -> bool:
    return bool(study["space"].get("tune"))


def _add_to_study(
    target: Connection,
    study: int,
    rows_of: dict[str, list[dict[str, Any]]],
    *,
    tuned: bool,
) -> None:
    """Adds the cells and seeds that only the other store has.

    Args:
        tuned: whether rows choose their settings. What follows from a choice is then
            left to the next run, which chooses by the results of both stores.
    """
    if tuned:
        rows_of = {
            **rows_of,
            "cell_trials": [],
            "tuning_trials": [
                row for row in rows_of["tuning_trials"] if row["stage"] == "tuning"
            ],
        }
    stored = select(cells.c.number, cells.c.id).where(cells.c.study_id == study)
    here = {row.number: row.id for row in target.execute(stored)}
    _put_cells(
        target,
        study,
        [cell for cell in rows_of["cells"] if cell["number"] not in here],
        rows_of,
    )
    numbers = {cell["id"]: cell["number"] for cell in rows_of["cells"]}
    for table in (cell_trials, tuning_trials):
        key = [column.name for column in table.primary_key]
        stored = select(*table.primary_key).where(table.c.cell_id.in_(here.values()))
        existing = {tuple(row) for row in target.execute(stored)}
        rows = [
            {**row, "cell_id": here[numbers[row["cell_id"]]]}
            for row in rows_of[table.name]
            if numbers[row["cell_id"]] in here
        ]
        more = [row for row in rows if tuple(row[name] for name in key) not in existing]
        insert_all(target, table, more)


def _architectures(source: Connection, target: Connection) -> None:
    here = set(target.execute(select(architectures.c.hash)).scalars())
    theirs = _rows(source, select(architectures))
    insert_all(
        target, architectures, [row for row in theirs if row["hash"] not in here]
    )


def _trials(
    source: Connection, target: Connection, hashes: list[str]
) -> tuple[list[str], int]:
    """Imports trials.

    Returns the trials that are new or now have a result, and the number of those that
    had a result here before.
    """
    taken, known = [], 0
    for start in range(0, len(hashes), CHUNK):
        chunk = hashes[start : start + CHUNK]
        stored = target.execute(
            select(trials.c.hash, trials.c.status, trials.c.ended_at).where(
                trials.c.hash.in_(chunk)
            )
        )
        here: dict[str, Any] = {}
        ended: dict[str, Any] = {}
        for trial in stored:
            here[trial.hash] = trial.status
            ended[trial.hash] = trial.ended_at
        for row in source.execute(
            select(trials).where(trials.c.hash.in_(chunk))
        ).mappings():
            key, there = row["hash"], RANK.get(row["status"], 0)
            known += here.get(key) in WITH_RESULT
            if key not in here:
                # A lease belongs to a driver of the other store and means nothing here.
                values = {**row, "owner": None, "fence": 0, "leased_until": None}
                target.execute(
                    insert(trials).values(
                        values
                        if there
                        else values | {"status": Status.PLANNED, "epochs_done": 0}
                    )
                )
            elif there > RANK.get(here[key], 0):
                changed = {name: row[name] for name in RESULT} | {"owner": None}
                target.execute(
                    update(trials).where(trials.c.hash == key).values(**changed)
                )
            elif ended[key] and row["ended_at"] and row["ended_at"] > ended[key]:
                # A study whose trials ended before it was declared takes no verdicts.
                # In the other store this one ended later.
                target.execute(
                    update(trials)
                    .where(trials.c.hash == key)
                    .values(ended_at=row["ended_at"])
                )
            if there > RANK.get(here.get(key, ""), 0):
                taken.append(key)
    for table in (epochs, epoch_metrics, trial_metrics, correct_images, diagnostics):
        for start in range(0, len(taken), CHUNK):
            chunk = taken[start : start + CHUNK]
            target.execute(delete(table).where(table.c.trial_hash.in_(chunk)))
            rows = _rows(source, select(table).where(table.c.trial_hash.in_(chunk)))
            insert_all(target, table, rows)
    return taken, known


def _attempts(
    source: Connection, target: Connection, taken: list[str], places: dict[int, int]
) -> None:
    """Imports the attempts at these trials, after those made here.

    Their provenance is imported too.
    """
    runs: dict[int, int] = {}
    for start in range(0, len(taken), CHUNK):
        chunk = taken[start : start + CHUNK]
        before: dict[str, int] = {}
        for key in target.execute(
            select(attempts.c.trial_hash).where(attempts.c.trial_hash.in_(chunk))
        ).scalars():
            before[key] = before.get(key, 0) + 1
        for row in source.execute(
            select(attempts).where(attempts.c.trial_hash.in_(chunk))
        ).mappings():
            run = row["provenance_id"]
            if run not in runs:
                stored_run = dict(
                    source.execute(select(provenance).where(provenance.c.id == run))
                    .mappings()
                    .one()
                )
                # The trial may have been trained by a run of a study that is not
                # imported. The run is then recorded under a study that is.
                study = places.get(stored_run["study_id"], next(iter(places.values())))
                made = target.execute(
                    insert(provenance).values(
                        **{k: v for k, v in stored_run.items() if k != "id"}
                        | {"study_id": study}
                    )
                )
                runs[run] = key_of(made)
            values = {key: value for key, value in row.items() if key != "id"}
            number = before.get(row["trial_hash"], 0) + row["number"]
            target.execute(
                insert(attempts).values(
                    **values | {"provenance_id": runs[run], "number": number}
                )
            )
