"""What a study that is declared now may test, from what the store holds.

A declaration replaces its study, goes on with it, or becomes the next generation of it.
`ablate.store.lineage` decides what follows for each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select, update

from ablate.errors import StoreError
from ablate.identity import content_hash
from ablate.records import (
    FIRST_LEVEL,
    LEVEL,
    Cell,
    Generation,
    Plan,
    RowStanding,
    Space,
    Standing,
    Tune,
)
from ablate.records.changes import changes
from ablate.records.plain import decisive, to_data
from ablate.records.primary import primary_rows
from ablate.store.comparisons import (
    SHOWING,
    choosing_trials,
    comparisons_of,
    history,
    key_of_trial,
    networks_of,
    networks_of_settings,
    plain,
    reported_before,
    rows_of,
    stored_comparisons,
    stored_keys,
    stored_rows,
    trained_before,
)
from ablate.store.lineage import FEWEST_SEEDS, History, Row, generation_of
from ablate.store.moment import after_results
from ablate.store.space_data import reported_of
from ablate.store.sql_tables import cell_trials, cells, studies, trials
from ablate.text.advice import option


@dataclass(frozen=True)
class Declaration:
    """What becomes of a study that is declared.

    Attributes:
        study: the number of the stored study that the declaration replaces or goes on
            with; None: a new one is made.
        retired: the number of the study that becomes an earlier generation.
        is_same: whether the study compares what it compared before.
        generation: its place in its lineage.
        moment: when it is declared, in UTC.
        digest: hash of what is compared.
        changes: what differs from the stored study.
    """

    study: int | None
    retired: int | None
    is_same: bool
    generation: Generation
    moment: datetime
    digest: str
    changes: tuple[str, ...] = ()


def declare(connection: Connection, plan: Plan) -> Declaration:
    """Returns what becomes of a study that is declared now. Stores nothing.

    Args:
        plan: with all seeds that its cells may get.
    """
    space = plan.space
    digest = digest_of(plan)
    stored = connection.execute(
        select(
            studies.c.id,
            studies.c.generation,
            studies.c.declaration,
            studies.c.space,
            studies.c.created_at,
            studies.c.level,
            studies.c.left_out,
            studies.c.lineage,
        ).where(studies.c.name == space.name)
    ).first()
    rows = rows_of(space, plan.cells)
    changed: tuple[str, ...] = ()
    if stored is not None:
        changed = tuple(changes(stored.space, plain(to_data(space))))
    if stored is not None and stored.declaration == digest:
        return Declaration(
            study=stored.id,
            retired=None,
            is_same=True,
            generation=_stored_generation(connection, stored, rows),
            moment=stored.created_at,
            digest=digest,
            changes=changed,
        )
    number, study, retired = 1, None, None
    if stored is not None and _is_kept(connection, stored.id):
        number, retired = stored.generation + 1, stored.id
    elif stored is not None:
        number, study = stored.generation, stored.id
    moment = after_results(connection)
    return Declaration(
        study=study,
        retired=retired,
        is_same=False,
        generation=placed(
            connection,
            space,
            rows,
            networks_of(plan.cells),
            moment,
            study,
            number,
            networks_of_settings(plan.cells),
        ),
        moment=moment,
        digest=digest,
        changes=changed,
    )


def lower_levels(connection: Connection, imported: Sequence[int]) -> None:
    """Gives studies the level that follows once other studies are imported.

    A study keeps its level, unless it compares what another one compared before.

    Args:
        imported: the numbers of the studies that are new here.
    """
    if not imported:
        return
    first = select(func.min(studies.c.created_at)).where(studies.c.id.in_(imported))
    later = connection.execute(
        select(studies)
        .where(studies.c.created_at >= first.scalar_subquery())
        .order_by(studies.c.created_at, studies.c.id)
    )
    for study in later.all():
        declared = stored_comparisons(connection, study)
        if declared is None:
            continue
        networks = dict(
            connection.execute(
                select(cells.c.number, cells.c.architecture_hash).where(
                    cells.c.study_id == study.id
                )
            ).all()
        )
        moment = study.created_at
        generation = generation_of(
            declared,
            history(connection, networks[0], moment, study.id),
            trained_before(connection, filter(None, networks.values()), moment),
            choosing=choosing_trials(connection),
        )
        if generation.lineage is None:
            continue
        connection.execute(
            update(studies)
            .where(studies.c.id == study.id)
            .values(
                level=min(study.level, generation.level),
                lineage=generation.lineage,
                left_out=max(study.left_out, generation.left_out),
            )
        )


def _stored_generation(
    connection: Connection, study: Any, rows: Sequence[Row]
) -> Generation:
    """Returns the place of a stored study, whose rows may have other numbers now."""
    keys = stored_keys(connection, cells.c.study_id == study.id)
    by_key = {
        keys[number]: row
        for number, row in standings_of(connection, study.id).items()
        if number in keys
    }
    return Generation(
        number=study.generation,
        level=study.level,
        left_out=study.left_out,
        lineage=study.lineage,
        rows={row.number: by_key[row.key] for row in rows if row.key in by_key},
    )


def renumber(connection: Connection, study: int, plan: Plan) -> None:
    """Gives references to rows of a study the numbers that the rows get now.

    Called before the cells of the plan are stored.
    """
    now = {row.key: row.number for row in rows_of(plan.space, plan.cells)}
    moved = {
        number: now[key]
        for number, key in stored_keys(connection, cells.c.study_id == study).items()
        if now.get(key, number) != number
    }
    if not moved:
        return
    for row in connection.execute(select(cells.c.id, cells.c.earlier)).all():
        pairs = [
            [other, moved.get(number, number) if other == study else number]
            for other, number in row.earlier
        ]
        if pairs != row.earlier:
            connection.execute(
                update(cells).where(cells.c.id == row.id).values(earlier=pairs)
            )


def standings_of(connection: Connection, study: int) -> dict[int, RowStanding]:
    """Returns the standing of each stored row of a study."""
    stored = connection.execute(
        select(cells.c.number, cells.c.standing, cells.c.earlier).where(
            cells.c.study_id == study
        )
    )
    return {row.number: standing_of(row.standing, row.earlier) for row in stored}


def standing_of(standing: str, earlier: Sequence[Sequence[int]]) -> RowStanding:
    """Returns the standing of a row as its columns have it."""
    return RowStanding(
        standing=Standing(standing),
        earlier=tuple((pair[0], pair[1]) for pair in earlier),
    )


def _is_kept(connection: Connection, study: int) -> bool:
    """Whether a study that is declared again stays as an earlier generation.

    It does if a row has results for as many seeds as a verdict needs, or if another
    study shows its verdicts.
    """
    shown = (
        select(cell_trials.c.cell_id)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .join(trials, trials.c.hash == cell_trials.c.trial_hash)
        .where(cells.c.study_id == study, trials.c.status.in_(SHOWING))
        .group_by(cell_trials.c.cell_id)
        .having(func.count() >= FEWEST_SEEDS)
        .limit(1)
    )
    if connection.execute(shown).first() is not None:
        return True
    others = connection.execute(
        select(cells.c.earlier).where(
            cells.c.study_id != study, cells.c.standing == Standing.SHOWN
        )
    )
    return any(earlier[0][0] == study for earlier in others.scalars())


def digest_of(plan: Plan) -> str:
    """Returns a hash of what a study compares: equal studies need no new generation.

    Texts, labels, the margin and the order of rows do not count.
    """
    space = plan.space
    looks = space.seeds.looks
    compared: dict[str, Any] = {
        "metric": [space.criterion.metric, space.criterion.direction],
        "seeds": sorted(space.seeds.numbers),
        "looks": [looks.first, looks.most, looks.step] if looks else [],
        "final": space.seeds.final,
        "scheduler": space.scheduler.name,
    }
    if space.reported is not None:
        compared["paired"] = space.reported.is_paired
        compared["results"] = sorted(trial.hash for trial in plan.trials)
    if space.seeds.baseline is not None:
        compared["baseline seeds"] = space.seeds.baseline
    if space.tune is not None:
        compared["tune"] = decisive(Tune, to_data(space)["tune"])
    if space.across is not None:
        compared["across"] = [space.across.axis, *sorted(space.across.texts())]
    if space.strategy is not None:
        # Which cells there are follows from results. The rest of the space decides.
        data = to_data(space)
        for name in ("strategy", "factors", "fixed", "baseline", "limits", "recipe"):
            compared[name] = data[name]
        compared["reference"] = [
            key_of_trial(cell.trials[0]) for cell in plan.cells[:1] if cell.trials
        ]
        return content_hash(plain(compared))
    keys = {
        cell.index: key_of_trial(cell.trials[0]) for cell in plan.cells if cell.trials
    }
    rows = primary_rows(space.criterion.primary, plan.cells)
    compared["primary"] = [
        *(keys.get(row, "") for row in rows if row is not None),
        *(name for name in space.criterion.primary if isinstance(name, str)),
    ]
    compared["reference"] = keys.get(0, "")
    compared["rows"] = sorted(
        {
            f"{cell.role == 'control'} {keys[cell.index]}"
            for cell in plan.cells
            if cell.trials
        }
    )
    return content_hash(plain(compared))


def placed(
    connection: Connection,
    space: Space,
    rows: Sequence[Row],
    networks: Mapping[int, str],
    moment: datetime,
    study: int | None,
    number: int,
    of_settings: Set[str] = frozenset(),
) -> Generation:
    """Returns the place of a study in its lineage.

    Args:
        rows: its rows, row 0 first, with all seeds that they may get.
        networks: the hash of the architecture of each row.
        moment: when it was declared, in UTC.
        study: its number, if it is stored.
        number: the number of the generation.
        of_settings: the hashes of the architectures at the settings that rows try.
    """
    if not rows or rows[0].number != 0:
        level = LEVEL if space.seeds.final else FIRST_LEVEL
        return Generation(number=number, level=level)
    reported: Mapping[str, Set[str]] | None = None
    if space.reported is not None:
        reported = reported_before(connection, networks.values(), moment)
    return generation_of(
        comparisons_of(space, rows),
        history(
            connection,
            networks[0],
            moment,
            study,
            name=space.name if space.reported is not None else "",
        ),
        trained_before(connection, {*networks.values(), *of_settings}, moment),
        number,
        choosing_trials(connection),
        reported,
    )


def added(
    connection: Connection,
    space: Space,
    study: int,
    new: Sequence[Cell],
    earlier: dict[int, History],
) -> Generation | None:
    """Returns the place of a study that a search adds cells to.

    None if verdicts are taken from none of the cells' trials.

    Args:
        new: the cells, which may have been compared before.
        earlier: what was declared before each study; for this one, it is added. A
            search adds thousands of cells, one at a time.
    """
    stored = connection.execute(
        select(studies.c.generation, studies.c.created_at).where(studies.c.id == study)
    ).one()
    network = connection.execute(
        select(cells.c.architecture_hash).where(
            cells.c.study_id == study, cells.c.number == 0
        )
    ).scalar()
    networks = networks_of(new)
    if network is not None:
        networks[0] = network
    row_0 = stored_rows(connection, study, space.confirmation_seeds, only=0)
    by_number = {row.number: row for row in (*row_0, *rows_of(space, new))}
    rows = [by_number[number] for number in sorted(by_number)]
    if len(rows) < 2 or rows[0].number != 0:
        return None
    if study not in earlier:
        earlier[study] = history(connection, networks[0], stored.created_at, study)
    return generation_of(
        comparisons_of(space, rows),
        earlier[study],
        trained_before(connection, set(networks.values()), stored.created_at),
        stored.generation,
        choosing_trials(connection),
    )


def refuse_other_study(connection: Connection, space: Space, file: str) -> None:
    """Raises StoreError if the name of a space is that of somebody else's study."""
    _refuse_other_origin(connection, space)
    if not space.named:
        _refuse_other_file(connection, space, file)


def _refuse_other_origin(connection: Connection, space: Space) -> None:
    """Raises StoreError if a study was trained here, and its results are reported now.

    It is an error the other way round, too.
    """
    stored = connection.execute(
        select(studies.c.space, studies.c.file).where(studies.c.name == space.name)
    ).first()
    if stored is None:
        return
    reported = reported_of(stored.space)
    if (reported is None) == (space.reported is None):
        return
    if reported is None:
        raise StoreError(
            f"the store has a study '{space.name}' that was trained here, from"
            f" {stored.file}; give the reported one a name, as in {option('name')}"
            f" {space.name}-reported"
        )
    raise StoreError(
        f"the store has a study '{space.name}' that was trained elsewhere, and reported"
        f" in {stored.file or 'a frame'}; write another `name:` in your file"
    )


def _refuse_other_file(connection: Connection, space: Space, file: str) -> None:
    """Raises StoreError if another file declares a study of this name.

    That is probably a mistake, as this file does not choose the name with `name:`. A file
    that was moved or deleted is no conflict.
    """
    name = space.name
    declared_by = connection.execute(
        select(studies.c.file).where(studies.c.name == name)
    ).scalar()
    if not declared_by or not Path(declared_by).exists():
        return
    if Path(declared_by).resolve() == Path(file).resolve():
        return
    if space.reported is not None:
        raise StoreError(
            f"the store has a study '{name}' that was reported in {declared_by}; give"
            f" this one a name, as in {option('name')} {name}-2"
        )
    raise StoreError(
        f"{declared_by} declares a study '{name}' too; write `name:` in"
        f" {file}, or use another {option('store')}"
    )
