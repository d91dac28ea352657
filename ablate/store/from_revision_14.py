"""Converts a store of revision 14, in which a study had phases, to generations.

Each phase of a study becomes a generation with the level that the phase had, so a row
keeps its verdicts: that of a later phase in the newest generation, and that of an
earlier phase in the generation that has its trials. Exploratory rows stay exploratory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, text

from ablate.records import (
    LEVEL,
    Standing,
    Status,
    confirmation_seeds,
    generation_name,
)
from ablate.records.changes import changes
from ablate.store.checked import JSON, DateTime
from ablate.store.comparisons import key_of_row
from ablate.store.lineage import FEWEST_SEEDS
from ablate.store.plans import free_view, key_of
from ablate.store.sql_tables import cell_trials, cells, levels, studies, trials

COLUMNS = {
    "studies": ("generation", "declaration", "lineage", "level", "left_out"),
    "cells": ("standing", "earlier"),
}
# A later revision adds the others.
OF_CELLS = [column for column in cells.c if column.name != "key"]
# Changes that gave no row another chance.
ONLY_NOTED = {"margin", "primary", "final"}
_declarations = sa.table(
    "declarations",
    sa.column("id"),
    sa.column("study_id"),
    sa.column("declared_at", DateTime()),
    sa.column("document"),
    sa.column("space", JSON(lambda value: isinstance(value, dict), "an object")),
    sa.column("compared"),
    sa.column("unfinished"),
    sa.column("trained", JSON(lambda value: isinstance(value, list), "a list")),
)
_known = sa.table(
    "known_trials",
    sa.column("study_id"),
    sa.column("trial_hash"),
    sa.column("declared_at", DateTime()),
)


def convert(connection: Connection) -> None:
    """Converts a store. The caller has dropped the views, and creates them again."""
    operations = Operations(MigrationContext.configure(connection))
    for table, names in COLUMNS.items():
        for name in names:
            column = {"studies": studies, "cells": cells}[table].c[name]
            operations.add_column(table, column._copy())
    for study in connection.execute(sa.select(studies).order_by(studies.c.id)).all():
        _convert_study(connection, study._asdict())
    operations.drop_table("known_trials")
    operations.drop_table("declarations")


@dataclass
class _Phase:
    """A time in which a study was declared in one way.

    Attributes:
        begin: when it was declared, in UTC.
        declared: its last declaration.
        rows: the rows that could be compared when it or an earlier phase ended.
        finished: whether all of its trials had ended when it ended.
    """

    begin: datetime
    declared: Any
    rows: int = 0
    finished: bool = True


@dataclass
class _Study:
    """A study with its phases and its cells.

    Attributes:
        trials: the trials of each cell by its key in the store, by seed.
        known: the seeds of each cell that had results when it was declared.
        phase_of: the phase in which each trial ended, by cell and seed.
    """

    row: dict[str, Any]
    phases: list[_Phase]
    cells: list[dict[str, Any]]
    trials: dict[int, dict[int, str]] = field(default_factory=dict)
    known: dict[int, set[int]] = field(default_factory=dict)
    phase_of: dict[tuple[int, int], int] = field(default_factory=dict)

    def seeds(self, cell: int, phase: int) -> dict[int, str]:
        """Returns the trials of a cell that ended in a phase or before it, by seed."""
        return {
            seed: key
            for seed, key in self.trials.get(cell, {}).items()
            if self.phase_of.get((cell, seed), 0) <= phase
        }


def _convert_study(connection: Connection, row: dict[str, Any]) -> None:
    query = (
        sa.select(_declarations)
        .where(_declarations.c.study_id == row["id"])
        .order_by(_declarations.c.id)
    )
    declared = connection.execute(query).all()
    of_study = cells.c.study_id == row["id"]
    stored = connection.execute(
        sa.select(*OF_CELLS).where(of_study).order_by(cells.c.number)
    )
    study = _Study(
        row=row,
        phases=_phases(declared),
        cells=[cell._asdict() for cell in stored],
    )
    if not study.phases or not study.cells:
        return
    _read_trials(connection, study)
    changed = _changed(declared)
    chosen = _row_0_is_chosen(connection, study)
    generations: list[tuple[int, int]] = []
    for number, phase in enumerate(study.phases[:-1]):
        if phase.finished:
            made = _put_generation(
                connection, study, number, len(generations) + 1, chosen=chosen
            )
            if made is not None:
                generations.append((number, made))
    _put_newest(connection, study, generations, changed, chosen=chosen)


def _phases(declared: Sequence[Any]) -> list[_Phase]:
    """Returns the phases that followed from declarations."""
    if not declared:
        return []
    first, *others = declared
    phases = [_Phase(begin=first.declared_at, declared=first)]
    before = first
    for other in others:
        parts = _changed_parts(before.space, other.space)
        if not parts:
            continue
        if other.compared and parts - _noted(before.space, other.space):
            rows = max(phases[-1].rows, other.compared)
            phases[-1].rows = rows
            phases[-1].finished = other.unfinished == 0
            phases.append(_Phase(begin=other.declared_at, declared=other, rows=rows))
        elif other.compared or len(phases) > 1:
            phases[-1].declared = other
        else:
            phases[-1] = _Phase(begin=other.declared_at, declared=other)
        before = other
    return phases


def _changed_parts(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    return {line.partition(":")[0].split(" ")[0] for line in changes(before, after)}


def _noted(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    primary = [*(before.get("primary") or ()), *(after.get("primary") or ())]
    return ONLY_NOTED if "controls" in primary else ONLY_NOTED | {"control"}


def _changed(declared: Sequence[Any]) -> Standing | None:
    """Returns why a study gave no verdict any more; None if it did."""
    later = [
        number for number, study in enumerate(declared) if number and study.compared
    ]
    if not later:
        return None
    first, last = declared[later[0] - 1].space, declared[-1].space
    for name in ("metric", "direction", "baseline"):
        if first.get(name) != last.get(name):
            return Standing.KNOWN
    trained = set().union(*(study.trained for study in declared))
    seeds = last.get("seeds", ())
    fresh = confirmation_seeds(seeds, (last.get("strategy") or {}).get("confirm"))
    return Standing.PARTIAL if trained - {*seeds, *fresh} else None


def _read_trials(connection: Connection, study: _Study) -> None:
    """Reads which trials the cells have, when they ended, and what was known."""
    late = {
        row.trial_hash: row.declared_at
        for row in connection.execute(
            sa.select(_known).where(_known.c.study_id == study.row["id"])
        )
        if row.declared_at is not None
    }
    begins = [phase.begin for phase in study.phases]
    query = (
        sa.select(
            cell_trials.c.cell_id,
            cell_trials.c.seed,
            trials.c.hash,
            trials.c.status,
            trials.c.ended_at,
        )
        .join(trials, trials.c.hash == cell_trials.c.trial_hash)
        .where(cell_trials.c.cell_id.in_([cell["id"] for cell in study.cells]))
    )
    for row in connection.execute(query).all():
        study.trials.setdefault(row.cell_id, {})[row.seed] = row.hash
        moment = late.get(row.hash, row.ended_at)
        phase = len(begins) - 1
        if moment is not None:
            phase = bisect_right(begins, moment) - 1
        study.phase_of[row.cell_id, row.seed] = phase
        if row.status == Status.COMPLETED and (phase < 0 or row.hash in late):
            study.known.setdefault(row.cell_id, set()).add(row.seed)


def _row_0_is_chosen(connection: Connection, study: _Study) -> bool:
    """Whether row 0 may have been chosen for its results.

    It was a variant of another study, or seeds of it that were known are left out.
    """
    row_0 = study.cells[0]["id"]
    known_seeds = study.known.get(row_0, set())
    trials_of_row_0 = study.trials.get(row_0, {})
    if len(known_seeds) < FEWEST_SEEDS:
        return False
    elsewhere = (
        sa.select(cells.c.id)
        .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
        .where(cells.c.study_id != study.row["id"], cells.c.number > 0)
        .where(
            cells.c.role == "variant",
            cell_trials.c.trial_hash.in_(trials_of_row_0.values()),
        )
        .limit(1)
    )
    if connection.execute(elsewhere).first() is not None:
        return True
    alike = connection.execute(
        sa.select(trials).where(
            trials.c.architecture_hash == study.cells[0]["architecture_hash"],
            trials.c.status == Status.COMPLETED,
            trials.c.ended_at < study.phases[0].begin,
        )
    ).all()
    keys = {key_of_row(row) for row in alike if row.hash in trials_of_row_0.values()}
    return any(
        key_of_row(row) in keys and row.seed not in trials_of_row_0 for row in alike
    )


def _level(study: _Study, number: int) -> float:
    """Returns the level that a phase had."""
    is_final = bool(study.phases[0].declared.space.get("final"))
    had_results = any(
        phase < 0 and cell != study.cells[0]["id"]
        for (cell, _), phase in study.phase_of.items()
    )
    if is_final and not had_results:
        return 0.0 if number else LEVEL
    if number == 0:
        return 0.9 * LEVEL
    return 0.1 * LEVEL / (number * (number + 1))


def _put_generation(
    connection: Connection, study: _Study, phase: int, number: int, *, chosen: bool
) -> int | None:
    """Stores a phase that has ended as a study. Returns its number in the store."""
    declared = study.phases[phase].declared
    kept = [cell for cell in study.cells if _was_complete(study, cell["id"], phase)]
    if not kept or kept[0]["number"] != 0:
        return None
    name = generation_name(study.row["name"], number)
    values = {
        **study.row,
        "name": name,
        "results_view": free_view(connection, name),
        "metric": declared.space.get("metric", study.row["metric"]),
        "direction": declared.space.get("direction", study.row["direction"]),
        "document": declared.document,
        "space": {key: item for key, item in declared.space.items() if key != "code"},
        "generation": number,
        "level": _level(study, phase),
        "created_at": study.phases[phase].begin,
        "finished_at": study.row["updated_at"],
    }
    del values["id"]
    made = connection.execute(sa.insert(studies).values(**values))
    key = key_of(made)
    numbers = {cell["number"] for cell in kept}
    for cell in kept:
        if cell["same_as"] is not None and cell["same_as"] not in numbers:
            continue
        if cell["control_of"] is not None and cell["control_of"] not in numbers:
            continue
        is_known = len(study.known.get(cell["id"], ())) >= FEWEST_SEEDS or chosen
        standing = Standing.KNOWN if is_known else Standing.TESTED
        copied = {**cell, "study_id": key, "standing": standing, "earlier": []}
        del copied["id"]
        inserted = connection.execute(sa.insert(cells).values(**copied))
        _copy(connection, study, cell["id"], key_of(inserted), phase)
    return key


def _was_complete(study: _Study, cell: int, phase: int) -> bool:
    """Whether a cell had all of its seeds when a phase ended."""
    declared = study.phases[phase].declared.space
    has = study.seeds(cell, phase)
    if cell not in study.trials:
        # A folded cell has no trials.
        return True
    if declared.get("looks"):
        return sorted(has) == list(range(len(has)))
    return set(declared.get("seeds", ())) <= set(has)


def _copy(
    connection: Connection, study: _Study, cell: int, number: int, phase: int
) -> None:
    """Copies the levels of a cell, and the trials that it had in a phase."""
    rows = connection.execute(sa.select(levels).where(levels.c.cell_id == cell)).all()
    for row in rows:
        connection.execute(
            sa.insert(levels).values(**{**row._asdict(), "cell_id": number})
        )
    for seed, key in study.seeds(cell, phase).items():
        connection.execute(
            sa.insert(cell_trials).values(cell_id=number, seed=seed, trial_hash=key)
        )


def _put_newest(
    connection: Connection,
    study: _Study,
    generations: Sequence[tuple[int, int]],
    changed: Standing | None,
    *,
    chosen: bool,
) -> None:
    """Stores the last phase as the newest generation.

    Args:
        generations: the phase and the number of each earlier one.
        changed: why the study gave no verdict any more.
    """
    last = len(study.phases) - 1
    level = _level(study, last)
    present = sum(len(seeds) >= FEWEST_SEEDS for seeds in study.trials.values()) - 1
    connection.execute(
        sa.update(studies)
        .where(studies.c.id == study.row["id"])
        .values(
            generation=len(generations) + 1,
            level=level,
            lineage=generations[0][1] if generations else None,
            left_out=max(0, study.phases[last].rows - present) if last else 0,
            created_at=study.phases[last].begin,
        )
    )
    row_0 = study.cells[0]["id"]
    for cell in study.cells[1:]:
        earlier = [
            [key, cell["number"]]
            for phase, key in reversed(generations)
            if cell["id"] in study.trials and _was_complete(study, cell["id"], phase)
        ]
        standing = Standing.TESTED
        same = [
            [key, cell["number"]]
            for phase, key in reversed(generations)
            if [key, cell["number"]] in earlier
            and study.seeds(cell["id"], phase) == study.trials[cell["id"]]
            and study.seeds(row_0, phase) == study.trials[row_0]
        ]
        if changed is not None:
            standing = changed
        elif chosen or len(study.known.get(cell["id"], ())) >= FEWEST_SEEDS:
            standing = Standing.KNOWN
        elif same:
            standing = Standing.SHOWN
            earlier = [
                *same,
                *(comparison for comparison in earlier if comparison not in same),
            ]
        elif not level:
            standing = Standing.FINAL
        connection.execute(
            sa.update(cells)
            .where(cells.c.id == cell["id"])
            .values(standing=standing, earlier=earlier)
        )


def stamp(connection: Connection, revision: str) -> None:
    """Stores the revision of the store."""
    connection.execute(
        text("UPDATE alembic_version SET version_num = :revision"),
        {"revision": revision},
    )
