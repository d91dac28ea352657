"""What a study that is declared now compares, and what was compared and known before.

A declaration replaces its study, goes on with it, or becomes the next generation of it.
Its group is that of the studies that have trials of its row 0. What is known of each of
its rows decides whether the row can have a verdict (`Standing`); the verdicts follow
from all studies of the group (`report.ledger`).

What would break it: a result that is known to a user but not to `trained_before`. Times
alone decide, so a result never has a time before a declaration that preceded it
(`store.moment`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, func, select, update

from ablate.errors import StoreError
from ablate.identity import content_hash
from ablate.records import (
    RESULT,
    VARIED,
    Before,
    Cell,
    Comparison,
    Plan,
    Seeds,
    Space,
    Standing,
    Status,
    Trial,
    Tune,
    base_name,
    confirmation_seeds,
)
from ablate.records.changes import changes
from ablate.records.plain import decisive, to_data
from ablate.records.primary import primary_rows
from ablate.store.moment import after_results
from ablate.store.space_data import reported_of
from ablate.store.sql_tables import cell_trials, cells, studies, trials, tuning_trials
from ablate.text.advice import option

# Fewer seeds say nothing of the noise, so they give no verdict.
FEWEST_SEEDS = 2
# What identifies a trial beside its architecture and its seed.
IDENTITY = ("recipe", "data", "code", "start", "teacher", "vary")
# States in which a trial shows what it measured.
SHOWING = (Status.COMPLETED, Status.DIVERGED, Status.PRUNED)
CHUNK = 500


@dataclass(frozen=True)
class Row:
    """A row of a study, with what identifies its trials.

    Attributes:
        key: what identifies the trials beside their seeds.
        trials: the hash of each declared trial, by seed.
        settings: the keys of the trainings of which the row chooses one by results. Its
            trials are then not known before, and their hashes stand for the choice.
    """

    number: int
    key: str
    trials: Mapping[int, str]
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Declaration:
    """What becomes of a study that is declared.

    Attributes:
        study: the number of the stored study that the declaration replaces or goes on
            with; None: a new one is made.
        retired: the number of the study that becomes an earlier generation.
        is_same: whether the study compares what it compared before.
        groups: the groups that it belongs to, and makes one.
        before: what was declared before, without the studies of its group.
        moment: when it is declared, in UTC.
        digest: hash of what is compared.
        changes: what differs from the stored study.
    """

    study: int | None
    retired: int | None
    is_same: bool
    groups: tuple[int, ...]
    before: Before
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
        select(studies).where(studies.c.name == space.name)
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
            groups=(group_of(dict(stored._mapping)),),
            before=_stored_before(connection, stored, rows),
            moment=stored.created_at,
            digest=digest,
            changes=changed,
        )
    number, study, retired = 1, None, None
    if stored is not None and _is_kept(connection, stored):
        number, retired = stored.generation + 1, stored.id
    elif stored is not None:
        number, study = stored.generation, stored.id
    moment = after_results(connection)
    known = Known.of(connection, space, rows, plan.cells, moment, study)
    return Declaration(
        study=study,
        retired=retired,
        is_same=False,
        groups=known.groups,
        before=Before(generation=number, rows=known.comparisons()),
        moment=moment,
        digest=digest,
        changes=changed,
    )


def group_of(study: Mapping[str, Any]) -> int:
    """Returns the group of a stored study: the number of one of its studies."""
    group: int | None = study["group_id"]
    return study["id"] if group is None else group


def added(
    connection: Connection, space: Space, study: int, new: Sequence[Cell]
) -> dict[int, Comparison]:
    """Returns the comparisons of cells that a search adds to its study.

    None of a cell whose trials give no verdict.
    """
    stored = connection.execute(select(studies).where(studies.c.id == study)).one()
    row_0 = stored_rows(connection, study, space.confirmation_seeds, only=0)
    by_number = {row.number: row for row in (*row_0, *rows_of(space, new))}
    rows = [by_number[number] for number in sorted(by_number)]
    if len(rows) < 2 or rows[0].number != 0:
        return {}
    known = Known.of(connection, space, rows, new, stored.created_at, study)
    return known.comparisons()


@dataclass(frozen=True)
class Earlier:
    """A study that was declared before."""

    study: int
    group: int
    metric: str
    data: Mapping[str, Any]
    rows: Sequence[Row]
    same_name: bool

    @property
    def reference(self) -> Row:
        return self.rows[0]


@dataclass(frozen=True)
class Known:
    """What was known of the comparisons of a study when it was declared.

    Attributes:
        rows: those of the study, row 0 first; none if it has no row 0.
        metric: the metric and its direction.
        data: the data set as plain data.
        trained: the trials with results, by the key of their row and by seed.
        choosing: the hashes of trials that only choose settings. A study that has other
            seeds leaves none of them out.
        reported: of a study that was trained elsewhere, the trials that were reported
            before, by the key of their row.
        earlier: the studies that may compare the same rows.
    """

    rows: Sequence[Row]
    metric: str
    data: Mapping[str, Any]
    trained: Mapping[str, Mapping[int, str]]
    choosing: Set[str]
    reported: Mapping[str, Set[str]]
    earlier: Sequence[Earlier] = field(default_factory=tuple)

    @classmethod
    def of(
        cls,
        connection: Connection,
        space: Space,
        rows: Sequence[Row],
        planned: Sequence[Cell],
        moment: datetime,
        study: int | None,
    ) -> Known:
        """Reads what was known of a space at a time.

        Args:
            planned: the cells of the rows.
            study: the number of the study, if it is stored.
        """
        if not rows or rows[0].number != 0:
            rows = ()
        networks = {
            trial.architecture.hash
            for cell in planned
            for trial in (*cell.trials[:1], *cell.by_setting)
        }
        networks |= {row.architecture_hash for row in _networks(connection, study)}
        is_reported = space.reported is not None
        return cls(
            rows=rows,
            metric=f"{space.criterion.metric} {space.criterion.direction}",
            data=plain(to_data(space)["data"]),
            trained=trained_before(connection, networks, moment),
            choosing=choosing_trials(connection),
            reported=(
                reported_before(connection, networks, moment) if is_reported else {}
            ),
            earlier=_earlier(
                connection, rows, moment, study, space.name if is_reported else ""
            ),
        )

    @property
    def groups(self) -> tuple[int, ...]:
        """The groups of the studies that have trials of row 0, and of other rows that
        might have become row 0: they were trained without a comparison.
        """
        return tuple(sorted({study.group for study in self._linked}))

    @property
    def _linked(self) -> list[Earlier]:
        if not self.rows:
            return []
        return [study for study in self.earlier if self._is_linked(study)]

    def _is_linked(self, study: Earlier) -> bool:
        reference = self.rows[0]
        if study.same_name:
            return True
        of_row_0 = [row for row in study.rows if row.key == reference.key]
        if len(study.rows) == 1 and (study.metric, study.data) == (
            self.metric,
            self.data,
        ):
            of_row_0 = list(study.rows)
        return any(
            len(row.trials.keys() & reference.trials.keys()) >= FEWEST_SEEDS
            for row in of_row_0
        )

    def comparisons(self) -> dict[int, Comparison]:
        """Returns the comparison of each row with row 0."""
        if not self.rows:
            return {}
        reference = self.rows[0]
        is_known = len(self._known_seeds(reference)) >= FEWEST_SEEDS
        standing = Standing.KNOWN if is_known else Standing.TESTED
        return {
            0: Comparison(standing=standing, key=reference.key),
            **{
                row.number: Comparison(
                    standing=self._standing(row),
                    key=row.key,
                    repeats=self._repeats(row),
                )
                for row in self.rows[1:]
            },
        }

    def _standing(self, row: Row) -> Standing:
        reference = self.rows[0]
        if self._is_replaced(row) or self._is_replaced(reference):
            return Standing.PARTIAL
        seeds, row_0 = self._known_seeds(row), self._known_seeds(reference)
        if len(seeds) < FEWEST_SEEDS:
            if len(row_0) >= FEWEST_SEEDS and self._left_out_seeds(reference):
                return Standing.PARTIAL
            return Standing.TESTED
        before = [
            other
            for study in self._linked
            if study.reference.key == reference.key and study.metric == self.metric
            for other in study.rows[1:]
            if other.key == row.key
        ]
        if not before or len(seeds & row_0) < FEWEST_SEEDS:
            return Standing.KNOWN
        left_out = self._left_out_seeds(row) | self._left_out_seeds(reference)
        for other in before:
            # A study that is cut short when its results look well leaves them out.
            left_out |= other.trials.keys() - row.trials.keys()
        return Standing.PARTIAL if left_out else Standing.TESTED

    def _known_seeds(self, row: Row) -> set[int]:
        """Returns the declared seeds of a row that had results."""
        if row.settings:
            known = set[int]().union(
                *(self.trained.get(key, {}) for key in row.settings)
            )
            return known & set(row.trials)
        results = self.trained.get(row.key, {})
        return {seed for seed, key in row.trials.items() if results.get(seed) == key}

    def _left_out_seeds(self, row: Row) -> set[int]:
        """Returns the seeds of a row that had results and are not declared."""
        return {
            seed
            for key in row.settings or (row.key,)
            for seed, trial in self.trained.get(key, {}).items()
            if seed not in row.trials and trial not in self.choosing
        }

    def _is_replaced(self, row: Row) -> bool:
        """Whether a result that was reported of a row is missing, or another one now."""
        return bool(self.reported.get(row.key, set()) - set(row.trials.values()))

    def _repeats(self, row: Row) -> int:
        """Returns how many groups with other seeds test the same comparison."""
        pair = {row.key, self.rows[0].key}
        groups = {
            study.group
            for study in self.earlier
            for other in study.rows[1:]
            if {other.key, study.reference.key} == pair
        }
        return len(groups - set(self.groups))


def _networks(connection: Connection, study: int | None) -> Sequence[Any]:
    """Returns the network of row 0 of a stored study."""
    query = select(cells.c.architecture_hash).where(
        cells.c.study_id == study,
        cells.c.number == 0,
        cells.c.architecture_hash.is_not(None),
    )
    return connection.execute(query).all()


def _earlier(
    connection: Connection,
    rows: Sequence[Row],
    moment: datetime,
    study: int | None,
    name: str,
) -> list[Earlier]:
    """Returns the studies with row 0 of a study that were declared before it.

    Args:
        study: its number, if it is stored.
        name: of a study that was trained elsewhere; its generations may call their rows
            and metric something else.
    """
    if not rows:
        return []
    before = (studies.c.created_at < moment) & studies.c.id.is_distinct_from(study)
    having = select(cells.c.study_id).where(cells.c.key == rows[0].key)
    single = select(cells.c.study_id).group_by(cells.c.study_id)
    single = single.having(func.count() == 1)
    numbers = set(connection.execute(having.union(single)).scalars())
    named = {
        row.id
        for row in connection.execute(
            select(studies.c.id, studies.c.name).where(before)
        )
        if name and base_name(row.name) == name
    }
    stored = connection.execute(
        select(studies)
        .where(before, studies.c.id.in_(numbers | named))
        .order_by(studies.c.created_at.desc(), studies.c.id.desc())
    )
    earlier = []
    for row in stored.all():
        its_rows = _stored_rows(connection, row)
        if its_rows and its_rows[0].number == 0:
            earlier.append(
                Earlier(
                    study=row.id,
                    group=group_of(dict(row._mapping)),
                    metric=f"{row.metric} {row.direction}",
                    data=row.space["data"],
                    rows=its_rows,
                    same_name=row.id in named,
                )
            )
    return earlier


def regroup(connection: Connection, imported: Sequence[int]) -> None:
    """Gives studies the group that follows once other studies are imported."""
    if not imported:
        return
    first = select(func.min(studies.c.created_at)).where(studies.c.id.in_(imported))
    later = connection.execute(
        select(studies)
        .where(studies.c.created_at >= first.scalar_subquery())
        .order_by(studies.c.created_at, studies.c.id)
    )
    for study in later.all():
        rows = _stored_rows(connection, study)
        if not rows or rows[0].number != 0:
            continue
        known = Known(
            rows=rows,
            metric=f"{study.metric} {study.direction}",
            data=study.space["data"],
            trained={},
            choosing=frozenset(),
            reported={},
            earlier=_earlier(
                connection,
                rows,
                study.created_at,
                study.id,
                base_name(study.name) if study.space.get("reported") else "",
            ),
        )
        join_groups(connection, study.id, known.groups)
        for number, comparison in known.comparisons().items():
            row = (cells.c.study_id == study.id) & (cells.c.number == number)
            connection.execute(
                update(cells).where(row).values(repeats=comparison.repeats)
            )


def join_groups(connection: Connection, study: int, groups: Sequence[int]) -> None:
    """Makes one group of those that a study belongs to, with the study."""
    group = min((*groups, study))
    together = func.coalesce(studies.c.group_id, studies.c.id).in_(groups)
    connection.execute(
        update(studies).where(together | (studies.c.id == study)).values(group_id=group)
    )


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
    code = {
        part: version
        for part, version in (identity["code"] or {}).items()
        if part != RESULT
    }
    values = plain({**identity, "data": data, "code": code})
    return content_hash([architecture, values])


def without_split(data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns data without the seed of their split."""
    return {key: value for key, value in data.items() if key != "split"}


def rows_of(space: Space, planned: Iterable[Cell]) -> list[Row]:
    """Returns the rows of planned cells, with the trials that verdicts are taken from.

    If a search confirms its best cells, these are the trials with fresh seeds.
    """
    fresh = space.confirmation_seeds
    rows = []
    for cell in planned:
        if cell.base is not None:
            rows.append(_tuned_row(space, cell))
            continue
        hashes = {
            trial.seed: trial.hash
            for trial in cell.trials
            if not fresh or trial.seed in fresh
        }
        if hashes:
            key = key_of_trial(cell.trials[0])
            rows.append(Row(number=cell.index, key=key, trials=hashes))
    return rows


def _tuned_row(space: Space, cell: Cell) -> Row:
    """Returns a row that chooses its setting by results."""
    assert cell.base is not None
    key = key_of_trial(cell.base)
    seeds = space.seeds.numbers if cell.index else space.seeds.of_row_0
    return Row(
        number=cell.index,
        key=key,
        trials=_chosen_trials(key, to_data(space)["tune"], seeds),
        settings=tuple(map(key_of_trial, cell.by_setting)),
    )


def _chosen_trials(
    key: str, tune: Mapping[str, Any], seeds: Iterable[int]
) -> dict[int, str]:
    """Returns hashes that stand for the trials of a row at the setting that it chooses.

    Two studies with equal ones choose in the same way, and have the same trials.

    Args:
        key: what identifies the row.
        tune: the section as plain data.
    """
    choice = plain(decisive(Tune, tune))
    return {seed: content_hash([key, choice, seed]) for seed in seeds}


def trained_before(
    connection: Connection, networks: Iterable[str], moment: datetime
) -> dict[str, dict[int, str]]:
    """Returns the trials of networks that had results before a time.

    They are by the key of their row and by seed.
    """
    listed = sorted(networks)
    trained: dict[str, dict[int, str]] = defaultdict(dict)
    for start in range(0, len(listed), CHUNK):
        query = _results_of(listed[start : start + CHUNK], moment)
        for row in connection.execute(query):
            trained[key_of_row(row)][row.seed] = row.hash
    return trained


def _results_of(networks: Sequence[str], moment: datetime) -> Select[Any]:
    """Returns the query of the trials of networks that showed a result before a time."""
    return select(
        trials.c.hash,
        trials.c.seed,
        trials.c.architecture_hash,
        *(trials.c[name] for name in IDENTITY),
    ).where(
        trials.c.architecture_hash.in_(networks),
        trials.c.status.in_(SHOWING),
        trials.c.ended_at < moment,
    )


def choosing_trials(connection: Connection) -> frozenset[str]:
    """Returns the hashes of the trials that only choose settings of rows."""
    query = select(tuning_trials.c.trial_hash).where(
        tuning_trials.c.stage == "tuning",
        tuning_trials.c.trial_hash.not_in(select(cell_trials.c.trial_hash)),
    )
    return frozenset(connection.execute(query).scalars())


def reported_before(
    connection: Connection, networks: Iterable[str], moment: datetime
) -> dict[str, set[str]]:
    """Returns the hashes of all trials that showed a result before a time.

    They are by the key of their row. A seed may have several.
    """
    listed = sorted(networks)
    reported: dict[str, set[str]] = defaultdict(set)
    for start in range(0, len(listed), CHUNK):
        for row in connection.execute(
            _results_of(listed[start : start + CHUNK], moment)
        ):
            reported[key_of_row(row)].add(row.hash)
    return reported


def _stored_rows(connection: Connection, study: Any) -> list[Row]:
    """Returns the rows of a stored study with the trials that give its verdicts."""
    if study.space.get("tune"):
        return _stored_tuned_rows(connection, study.id, study.space)
    return stored_rows(connection, study.id, fresh_seeds(study.space))


def fresh_seeds(space: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the fresh seeds on which a search confirms its best cells.

    Args:
        space: the space as `ablate.records.plain` describes it.
    """
    strategy = space.get("strategy")
    if not strategy:
        return ()
    return confirmation_seeds(space.get("seeds", ()), strategy.get("confirm"))


def stored_rows(
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
    of_study = cells.c.study_id == study
    if only is not None:
        of_study &= cells.c.number == only
    numbers: dict[int, dict[int, str]] = defaultdict(dict)
    for number, seed, key in connection.execute(
        select(cells.c.number, cell_trials.c.seed, cell_trials.c.trial_hash)
        .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
        .where(of_study)
    ):
        if not fresh or seed in fresh:
            numbers[number][seed] = key
    keys = connection.execute(select(cells.c.number, cells.c.key).where(of_study))
    return [
        Row(number=number, key=key, trials=numbers[number])
        for number, key in sorted(map(tuple, keys.all()))
        if key and numbers[number]
    ]


def _stored_tuned_rows(
    connection: Connection, study: int, space: Mapping[str, Any]
) -> list[Row]:
    """Returns the rows of a stored study that choose their settings, in their order."""
    seeds = [int(seed) for seed in space.get("seeds", ())]
    of_row_0 = Seeds(tuple(seeds), baseline=space.get("baseline_seeds")).of_row_0
    keys = connection.execute(
        select(cells.c.number, cells.c.key)
        .where(cells.c.study_id == study, cells.c.key != "")
        .order_by(cells.c.number)
    )
    return [
        Row(
            number=row.number,
            key=row.key,
            trials=_chosen_trials(
                row.key, space["tune"], seeds if row.number else of_row_0
            ),
        )
        for row in keys.all()
    ]


def _stored_before(connection: Connection, study: Any, rows: Sequence[Row]) -> Before:
    """Returns what was declared before a stored study, whose rows may have other numbers."""
    by_key = {
        comparison.key: comparison
        for comparison in comparisons_of(connection, study.id).values()
    }
    return Before(
        generation=study.generation,
        rows={row.number: by_key[row.key] for row in rows if row.key in by_key},
    )


def comparisons_of(connection: Connection, study: int) -> dict[int, Comparison]:
    """Returns the comparison of each stored row of a study."""
    stored = connection.execute(
        select(cells.c.number, cells.c.standing, cells.c.key, cells.c.repeats).where(
            cells.c.study_id == study
        )
    )
    return {
        row.number: Comparison(
            standing=Standing(row.standing), key=row.key, repeats=row.repeats
        )
        for row in stored
    }


def _is_kept(connection: Connection, study: Any) -> bool:
    """Whether a study that is declared again stays as an earlier generation.

    It does if a row has results for as many seeds as a verdict needs.
    """
    shown = (
        select(cell_trials.c.cell_id)
        .join(cells, cells.c.id == cell_trials.c.cell_id)
        .join(trials, trials.c.hash == cell_trials.c.trial_hash)
        .where(cells.c.study_id == study.id, trials.c.status.in_(SHOWING))
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


def plain(value: Any) -> Any:
    """Returns a value with lists in place of tuples, as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
