"""What a study that is declared now may test, from what the store holds.

A declaration replaces its study, goes on with it, or becomes the next generation of it.
`ablate.lineage` decides what follows for each row; this module reads what it needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select, update

from ablate.identity import content_hash
from ablate.lineage import FEWEST_SEEDS, Comparisons, Earlier, Row, generation_of
from ablate.primary import primary_rows
from ablate.records import (
    FIRST_LEVEL,
    LEVEL,
    RESOLVED,
    VARIED,
    Cell,
    Generation,
    Plan,
    RowStanding,
    Space,
    Standing,
    Status,
    Trial,
    confirmation_seeds,
)
from ablate.redeclared import changes
from ablate.space_data import to_data
from ablate.store.moment import after_results
from ablate.store.tables import cell_trials, cells, studies, trials

# What identifies a trial beside its architecture and its seed.
IDENTITY = ("recipe", "data", "code", "start", "teacher", "vary")
# States in which a trial shows what it measured.
SHOWING = (Status.COMPLETED, Status.DIVERGED, Status.PRUNED)
CHUNK = 500


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
            studies.c.document,
            studies.c.space,
            studies.c.created_at,
            studies.c.level,
            studies.c.left_out,
            studies.c.lineage,
        ).where(studies.c.name == space.name)
    ).first()
    rows = rows_of(space, plan.cells)
    changed: tuple[str, ...] = ()
    if stored is not None and stored.space is not None:
        changed = tuple(changes(stored.space, _plain(to_data(space))))
    if stored is not None and _is_same(stored, space.document, digest, changed):
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
    if stored is not None and _could_be_seen(connection, stored.id):
        number, retired = stored.generation + 1, stored.id
    elif stored is not None:
        number, study = stored.generation, stored.id
    moment = after_results(connection)
    return Declaration(
        study=study,
        retired=retired,
        is_same=False,
        generation=placed(
            connection, space, rows, networks_of(plan.cells), moment, study, number
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
        declared, _ = _comparisons(connection, study)
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
            _earlier(connection, networks[0], moment, study.id),
            _trained(connection, filter(None, networks.values()), moment),
        )
        if generation.lineage is None or generation.level >= study.level:
            continue
        connection.execute(
            update(studies)
            .where(studies.c.id == study.id)
            .values(
                level=generation.level,
                lineage=generation.lineage,
                left_out=max(study.left_out, generation.left_out),
            )
        )


def _stored_generation(
    connection: Connection, study: Any, rows: Sequence[Row]
) -> Generation:
    """Returns the place of a stored study, whose rows may have other numbers now."""
    keys = _keys(connection, cells.c.study_id == study.id)
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
        for number, key in _keys(connection, cells.c.study_id == study).items()
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


def _is_same(stored: Any, document: str, digest: str, changed: Collection[str]) -> bool:
    """Whether a space compares what a stored study compares."""
    if stored.declaration:
        return bool(stored.declaration == digest)
    # A version that did not store it ran the study.
    if stored.space is None:
        return bool(stored.document == document)
    return not changed


def _could_be_seen(connection: Connection, study: int) -> bool:
    """Whether a row of a study has results for as many seeds as a verdict needs."""
    shown = (
        select(cell_trials.c.cell_id)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .join(trials, trials.c.hash == cell_trials.c.trial_hash)
        .where(cells.c.study_id == study, trials.c.status.in_(SHOWING))
        .group_by(cell_trials.c.cell_id)
        .having(func.count() >= FEWEST_SEEDS)
        .limit(1)
    )
    return connection.execute(shown).first() is not None


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
    if space.strategy is not None:
        # Which cells there are follows from results. The rest of the space decides.
        data = to_data(space)
        for name in ("strategy", "factors", "fixed", "baseline", "limits", "recipe"):
            compared[name] = data[name]
        compared["reference"] = [
            key_of_trial(cell.trials[0]) for cell in plan.cells[:1] if cell.trials
        ]
        return content_hash(_plain(compared))
    keys = {
        cell.index: key_of_trial(cell.trials[0]) for cell in plan.cells if cell.trials
    }
    rows = primary_rows(space.criterion.primary, plan.cells)
    compared["primary"] = [
        *(keys.get(row, "") for row in rows if row is not None),
        *(one for one in space.criterion.primary if isinstance(one, str)),
    ]
    compared["reference"] = keys.get(0, "")
    compared["rows"] = sorted(
        {
            f"{cell.role == 'control'} {keys[cell.index]}"
            for cell in plan.cells
            if cell.trials
        }
    )
    return content_hash(_plain(compared))


def _plain(value: Any) -> Any:
    """Returns a value with lists in place of tuples, as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def key_of_trial(trial: Trial) -> str:
    """Returns what identifies a planned trial beside its seed."""
    return _key(
        trial.architecture.hash,
        {
            "recipe": trial.canonical_recipe,
            "data": trial.data.canonical(),
            "code": dict(trial.code),
            "start": trial.start.identity if trial.start else None,
            "teacher": trial.teacher.identity if trial.teacher else None,
            "vary": trial.vary if trial.vary != VARIED else None,
        },
    )


def key_of_row(row: Any) -> str:
    """Returns what identifies a stored trial beside its seed."""
    return _key(row.architecture_hash, {name: getattr(row, name) for name in IDENTITY})


def _key(architecture: str, identity: Mapping[str, Any]) -> str:
    # The seed decides on the split.
    data = without_split(identity["data"])
    values = _plain({**identity, "data": data, "code": identity["code"] or {}})
    return content_hash([architecture, values])


def without_split(data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns data without the seed of their split."""
    return {key: value for key, value in data.items() if key != "split"}


def placed(
    connection: Connection,
    space: Space,
    rows: Sequence[Row],
    networks: Mapping[int, str],
    moment: datetime,
    study: int | None,
    number: int,
) -> Generation:
    """Returns the place of a study in its lineage.

    Args:
        rows: its rows, row 0 first, with all seeds that they may get.
        networks: the hash of the architecture of each row.
        moment: when it was declared, in UTC.
        study: its number, if it is stored.
        number: the number of the generation.
    """
    if not rows or rows[0].number != 0:
        level = LEVEL if space.seeds.final else FIRST_LEVEL
        return Generation(number=number, level=level)
    return generation_of(
        _comparisons_of(space, rows),
        _earlier(connection, networks[0], moment, study),
        _trained(connection, set(networks.values()), moment),
        number,
    )


def rows_of(space: Space, planned: Iterable[Cell]) -> list[Row]:
    """Returns the rows of planned cells, with the trials that verdicts are taken from.

    If a search confirms its best cells, these are the trials with fresh seeds.
    """
    fresh = space.confirmation_seeds
    rows = []
    for cell in planned:
        hashes = {
            trial.seed: trial.hash
            for trial in cell.trials
            if not fresh or trial.seed in fresh
        }
        if hashes:
            key = key_of_trial(cell.trials[0])
            rows.append(Row(number=cell.index, key=key, trials=hashes))
    return rows


def networks_of(planned: Iterable[Cell]) -> dict[int, str]:
    """Returns the hash of the architecture of each planned cell that has trials."""
    return {
        cell.index: cell.trials[0].architecture.hash for cell in planned if cell.trials
    }


def added(
    connection: Connection,
    space: Space,
    study: int,
    new: Sequence[Cell],
    earlier: dict[int, list[Earlier]],
) -> Generation | None:
    """Returns the place of a study that a search adds cells to.

    None if verdicts are taken from none of the cells' trials.

    Args:
        new: the cells, which may have been compared before.
        earlier: the studies before each study; those of this one are added to it. A
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
    row_0 = _rows(connection, study, space.confirmation_seeds, only=0)
    by_number = {row.number: row for row in (*row_0, *rows_of(space, new))}
    rows = [by_number[number] for number in sorted(by_number)]
    if len(rows) < 2 or rows[0].number != 0:
        return None
    if study not in earlier:
        earlier[study] = _earlier(connection, networks[0], stored.created_at, study)
    return generation_of(
        _comparisons_of(space, rows),
        earlier[study],
        _trained(connection, set(networks.values()), stored.created_at),
        stored.generation,
    )


def _comparisons_of(space: Space, rows: Sequence[Row]) -> Comparisons:
    """Returns the comparisons of a space, row 0 first."""
    return Comparisons(
        reference=rows[0],
        rows=rows[1:],
        metric=f"{space.criterion.metric} {space.criterion.direction}",
        grows=space.seeds.looks is not None,
        final=space.seeds.final,
    )


def _grows(space: Mapping[str, Any] | None) -> bool:
    """Whether the rows of a stored study, or their seeds, follow from results."""
    return bool(space and (space.get("looks") or space.get("strategy")))


def _trained(
    connection: Connection, networks: Iterable[str], moment: datetime
) -> dict[str, dict[int, str]]:
    """Returns the trials of networks that had results before a time.

    They are by the key of their row and by seed.
    """
    listed = sorted(networks)
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for start in range(0, len(listed), CHUNK):
        wanted = select(
            trials.c.hash,
            trials.c.seed,
            trials.c.architecture_hash,
            *(trials.c[name] for name in IDENTITY),
        ).where(
            trials.c.architecture_hash.in_(listed[start : start + CHUNK]),
            trials.c.status.in_(SHOWING),
            trials.c.ended_at < moment,
        )
        for row in connection.execute(wanted):
            found[key_of_row(row)][row.seed] = row.hash
    return found


def _earlier(
    connection: Connection, network: str, moment: datetime, study: int | None
) -> list[Earlier]:
    """Returns the studies that have the network of row 0, the latest first.

    Args:
        moment: only studies that were declared before.
        study: the study itself.
    """
    having = (
        select(cells.c.study_id)
        .join(studies, studies.c.id == cells.c.study_id)
        .where(cells.c.architecture_hash == network, studies.c.created_at < moment)
        .distinct()
    )
    numbers = {row[0] for row in connection.execute(having)} - {study}
    stored = connection.execute(
        select(studies)
        .where(studies.c.id.in_(numbers))
        .order_by(studies.c.created_at.desc(), studies.c.id.desc())
    )
    earlier = []
    for row in stored.all():
        declared, tests = _comparisons(connection, row)
        if declared is not None:
            lineage = row.lineage if row.lineage is not None else row.id
            spent = row.level if tests else 0.0
            earlier.append(
                Earlier(
                    study=row.id,
                    lineage=lineage,
                    declared=declared,
                    spent=spent,
                    open=_open(connection, row.id),
                )
            )
    return earlier


def _open(connection: Connection, study: int) -> frozenset[str]:
    """Returns the trials of a study that have not ended."""
    wanted = (
        select(trials.c.hash)
        .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .where(cells.c.study_id == study, trials.c.status.not_in(RESOLVED))
    )
    return frozenset(connection.execute(wanted).scalars())


def _comparisons(connection: Connection, study: Any) -> tuple[Comparisons | None, bool]:
    """Returns the comparisons of a stored study, and whether it tests any row."""
    rows = _rows(connection, study.id, fresh_seeds(study.space or {}))
    if not rows or rows[0].number != 0:
        return None, False
    tested = (
        select(cells.c.id)
        .where(cells.c.study_id == study.id, cells.c.number > 0)
        .where(cells.c.standing == Standing.TESTED, cells.c.same_as.is_(None))
        .limit(1)
    )
    declared = Comparisons(
        reference=rows[0],
        rows=rows[1:],
        metric=f"{study.metric} {study.direction}",
        grows=_grows(study.space),
    )
    return declared, connection.execute(tested).first() is not None


def fresh_seeds(space: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the fresh seeds on which a search confirms its best cells.

    Args:
        space: the space as `ablate.space_data` described it.
    """
    strategy = space.get("strategy")
    if not strategy:
        return ()
    return confirmation_seeds(space.get("seeds", ()), strategy.get("confirm"))


def _rows(
    connection: Connection,
    study: int,
    fresh: Collection[int],
    only: int | None = None,
) -> list[Row]:
    """Returns the rows of a stored study, in their order.

    Args:
        fresh: the seeds that verdicts are taken from, if they are not all seeds.
        only: the number of the one row that is read.
    """
    mine = cells.c.study_id == study
    if only is not None:
        mine &= cells.c.number == only
    numbers: dict[int, dict[int, str]] = defaultdict(dict)
    for number, seed, key in connection.execute(
        select(cells.c.number, cell_trials.c.seed, cell_trials.c.trial_hash)
        .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
        .where(mine)
    ):
        if not fresh or seed in fresh:
            numbers[number][seed] = key
    keys = _keys(connection, mine)
    return [
        Row(number=number, key=keys[number], trials=numbers[number])
        for number in sorted(numbers)
    ]


def _keys(connection: Connection, mine: ColumnElement[bool]) -> dict[int, str]:
    """Returns what identifies the trials of each cell beside their seeds."""
    # All trials of a cell have the same key.
    some = (
        select(cells.c.number, func.min(cell_trials.c.trial_hash).label("hash"))
        .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
        .where(mine)
        .group_by(cells.c.number)
        .subquery()
    )
    wanted = select(
        some.c.number,
        trials.c.architecture_hash,
        *(trials.c[name] for name in IDENTITY),
    ).join(trials, trials.c.hash == some.c.hash)
    return {row.number: key_of_row(row) for row in connection.execute(wanted)}
