"""Reads the studies of a store, and what a name refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Select,
    case,
    false,
    func,
    select,
    true,
    type_coerce,
    union,
)
from sqlalchemy.sql.selectable import Subquery

from ablate.errors import (
    StoreError,
    UnknownName,
    unknown,
)
from ablate.records import (
    WITH_RESULT,
    Across,
    CorrectImages,
    Level,
    Metric,
    Plan,
    Space,
    Status,
    StudyResults,
    base_name,
)
from ablate.records.stored import TriedSetting
from ablate.store.correct_images import images_of
from ablate.store.database import clock, file_of, patient
from ablate.store.declarations import Declaration, declare, refuse_other_study
from ablate.store.lock import is_held
from ablate.store.results import final_values, read_results, studies_of_groups
from ablate.store.space_data import from_data
from ablate.store.sql_tables import (
    all_cell_trials,
    cell_trials,
    cells,
    epoch_metrics,
    every_trial,
    levels,
    studies,
    trials,
    tuning_trials,
)
from ablate.store.wide_views import query_of
from ablate.text import advice


@dataclass(frozen=True)
class StudyStatus:
    """A stored study: its space, the number of its trials by status, and its epochs.

    `epochs` counts the epochs of all trials, `epochs_done` those that are trained.
    """

    name: str
    question: str
    document: str
    space: Space
    file: str
    results_view: str
    updated_at: datetime
    by_status: Mapping[Status, int]
    epochs_done: int
    epochs: int
    finished: bool
    # When its last trial ended, in UTC.
    last_result_at: datetime = datetime.min

    def refuse_reported(self) -> None:
        """Raises StoreError if its runs were trained elsewhere."""
        reported = self.space.reported
        if reported is not None:
            raise StoreError(
                f"{self.name} was trained elsewhere, and only its results are known. To"
                f" change them: {reported.again(self.name)}{advice.place('judge')}"
            )

    @property
    def unfinished(self) -> int:
        """The number of trials that a resume would train.

        For a search, only trials of cells proposed so far count.
        """
        return sum(
            n
            for state, n in self.by_status.items()
            if state in (Status.PLANNED, Status.RUNNING, Status.FAILED)
        )


def _is_of(ladder: Across, across: Across) -> bool:
    """Whether a size belongs to a ladder as it was last declared."""
    if (across.axis, across.sizes) != (ladder.axis, ladder.sizes):
        return False
    return not across.is_predicted or across.predict == ladder.predict


def shown_status(connection: Connection) -> Any:
    """Returns the status of a trial; it runs only as long as a driver holds it.

    A driver that was killed leaves trials without a worker: they are planned. On SQLite,
    a driver holds the lock of the store; on a server, it leases each trial.
    """
    file = file_of(connection)
    if file is not None:
        is_left: Any = false() if is_held(file) else true()
    else:
        until = trials.c.leased_until
        is_left = until.is_(None) | (until < clock(connection))
    is_running = trials.c.status == Status.RUNNING.value
    shown = case((is_running & is_left, Status.PLANNED.value), else_=trials.c.status)
    return type_coerce(shown, trials.c.status.type).label("status")


def _counts(connection: Connection, pairs: Subquery) -> Select[Any]:
    """Returns the query of what is known of the trials of studies, by status.

    Args:
        pairs: studies, and the hashes of their trials.
    """
    shown = (
        select(
            pairs.c.study_id,
            shown_status(connection),
            trials.c.epochs_done,
            trials.c.epochs,
            trials.c.ended_at,
        )
        .join(trials, trials.c.hash == pairs.c.trial_hash)
        .subquery()
    )
    return select(
        shown.c.study_id,
        shown.c.status,
        func.count().label("number"),
        func.sum(shown.c.epochs_done).label("epochs_done"),
        func.sum(shown.c.epochs).label("epochs"),
        func.max(shown.c.ended_at).label("ended_at"),
    ).group_by(shown.c.study_id, shown.c.status)


def _trials_of(study: int) -> Subquery:
    """Returns the trials of one study. Rows may share trials."""
    return union(
        *(
            select(cells.c.study_id, table.c.trial_hash)
            .join(cells, cells.c.id == table.c.cell_id)
            .where(cells.c.study_id == study)
            for table in (cell_trials, tuning_trials)
        )
    ).subquery()


class StudyReader:
    """Reads the studies of a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @patient
    def all(self) -> list[StudyStatus]:
        """Returns all studies, the most recent one last."""
        # Rows may share trials.
        pairs = (
            select(cells.c.study_id, all_cell_trials.c.trial_hash)
            .join(all_cell_trials, all_cell_trials.c.cell_id == cells.c.id)
            .distinct()
            .subquery()
        )
        with self._engine.connect() as connection:
            stored = select(studies).order_by(studies.c.updated_at, studies.c.id)
            rows = connection.execute(stored).mappings().all()
            by_study: dict[int, list[Any]] = {}
            for count in connection.execute(_counts(connection, pairs)):
                by_study.setdefault(count.study_id, []).append(count)
        return [_status(row, by_study.get(row["id"], [])) for row in rows]

    @patient
    def get(self, name: str) -> StudyStatus:
        """Returns one study. Raises UnknownName, which suggests the nearest name."""
        with self._engine.connect() as connection:
            stored = select(studies).where(studies.c.name == name)
            row = connection.execute(stored).mappings().first()
            if row is not None:
                trials_of = _trials_of(row["id"])
                counts = connection.execute(_counts(connection, trials_of)).all()
                return _status(row, counts)
        raise self._unknown(name)

    @patient
    def refuse_other(self, space: Space, file: str) -> None:
        """Raises StoreError if the name of a space is that of somebody else's study.

        Args:
            file: that of the space.
        """
        with self._engine.connect() as connection:
            refuse_other_study(connection, space, file)

    def _unknown(self, name: str) -> UnknownName:
        """Returns the error for a name that no study has."""
        names = list(self.names().values())
        base = base_name(name)
        if name != base and base in names:
            earlier = [study for study in names if study != base_name(study) == base]
            return UnknownName(
                f"unknown study '{name}'; the newest generation is {base}, and the earlier"
                f" ones are {', '.join(earlier) or 'none'}"
            )
        if sizes := self.sizes(name):
            ahead = self.predicted(name)
            every = [*sizes, *([ahead] if ahead is not None else [])]
            listed = ", ".join(size.name for size in every)
            return UnknownName(
                f"{name} has several sizes, each of which is a study; name one: {listed}"
            )
        if names:
            return UnknownName(unknown("study", name, names))
        return UnknownName(f"unknown study '{name}'; the store holds none yet")

    @patient
    def sizes(self, name: str) -> list[StudyStatus]:
        """Returns the studies of a ladder as it was last run, in the order of its sizes.

        Args:
            name: that of the ladder; none if there is no such ladder.
        """
        sizes = self._ladder(name)
        return [study for across, study in sizes if not across.is_predicted]

    @patient
    def predicted(self, name: str) -> StudyStatus | None:
        """Returns the study of the predicted size of a ladder; None: it has none yet."""
        sizes = self._ladder(name)
        return next((study for across, study in sizes if across.is_predicted), None)

    @patient
    def stored_sizes(self, name: str) -> list[Across]:
        """Returns what is stored of a ladder in all studies that ever were one of its
        sizes.
        """
        spaces = [study.space for study in self.all()]
        across = [space.across for space in spaces if space is not None]
        return [each for each in across if each is not None and each.ladder == name]

    def _ladder(self, name: str) -> list[tuple[Across, StudyStatus]]:
        sizes: list[tuple[Across, StudyStatus]] = []
        for study in self.all():
            across = study.space.across if study.space is not None else None
            # A size that was renamed, or is an earlier generation, is none of them.
            if (
                across is not None
                and across.ladder == name
                and across.study == study.name
            ):
                sizes.append((across, study))
        # The last one is the most recent. What was taken out of the file is left.
        last = [each for each in sizes if _is_of(sizes[-1][0], each[0])]
        return sorted(last, key=lambda each: each[0].number)

    @patient
    def of_any_size(self, name: str) -> StudyStatus:
        """Returns one study; of a ladder, that of the first size.

        Raises:
            UnknownName: the store has neither a study nor a ladder of that name.
        """
        sizes = self.sizes(name)
        return sizes[0] if sizes else self.get(name)

    @patient
    def names(self) -> dict[int, str]:
        """Returns the names of all studies, by their numbers."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(studies.c.id, studies.c.name)).all()
        return {row.id: row.name for row in rows}

    @patient
    def target(self, word: str) -> tuple[str, str | None]:
        """Resolves a word to a study or to a trial.

        Returns the name of a study and None, or the name of a study and the hash of a
        trial of it. A trial is given by its hash or a prefix of it.

        Raises:
            UnknownName: the word is neither.
        """
        names = {study.name for study in self.all()}
        if word in names:
            return word, None
        query = (
            select(studies.c.name, all_cell_trials.c.trial_hash)
            .join(cells, cells.c.study_id == studies.c.id)
            .join(all_cell_trials, all_cell_trials.c.cell_id == cells.c.id)
            .where(all_cell_trials.c.trial_hash.startswith(word, autoescape=True))
            .order_by(studies.c.updated_at.desc())
        )
        with self._engine.connect() as connection:
            matches = connection.execute(query).all()
        hashes = {row[1] for row in matches}
        if not hashes and self.sizes(word):
            # It names the sizes.
            self.get(word)
        if not hashes or len(word) < 4:
            raise UnknownName(
                unknown("study or trial", word, names)
                + "; `ablate status STUDY` lists trials; write at least 4 characters"
                " of a hash"
            )
        if len(hashes) > 1:
            raise UnknownName(
                f"{len(hashes)} trials have a hash that begins with '{word}'; write"
                " more of the hash"
            )
        return str(matches[0][0]), str(matches[0][1])

    @patient
    def generations(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Returns the names and spaces of all generations of a study, the first first."""
        base = base_name(name)
        query = select(studies.c.name, studies.c.space).order_by(studies.c.generation)
        with self._engine.connect() as connection:
            return [
                (row.name, row.space)
                for row in connection.execute(query)
                if base_name(row.name) == base
            ]

    @patient
    def relatives(self, name: str) -> list[str]:
        """Returns the names of the other studies of the group of a study.

        Generations of the study itself are left out.
        """
        base = base_name(name)
        with self._engine.connect() as connection:
            group = func.coalesce(studies.c.group_id, studies.c.id)
            own_group = select(group).where(studies.c.name == name).scalar_subquery()
            query = (
                select(studies.c.name).where(group == own_group).order_by(studies.c.id)
            )
            names = connection.execute(query).scalars().all()
        return [other for other in names if base_name(other) != base]

    @patient
    def results(self, name: str) -> StudyResults:
        """Returns all cells of a study with their known results. Raises UnknownName."""
        self.get(name)
        with self._engine.connect() as connection:
            study = (
                connection.execute(select(studies).where(studies.c.name == name))
                .mappings()
                .one()
            )
            return read_results(connection, dict(study))

    @patient
    def values(self, name: str, metric: Metric) -> dict[int, dict[int, float]]:
        """Returns the final values of any metric, by row and seed.

        Raises UnknownName if there is no such study.
        """
        self.get(name)
        query = (
            select(cells.c.number, cell_trials.c.seed, cell_trials.c.trial_hash)
            .join(studies, studies.c.id == cells.c.study_id)
            .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
            .where(studies.c.name == name)
            .order_by(cells.c.number, cell_trials.c.seed)
        )
        with self._engine.connect() as connection:
            study = select(studies.c.id).where(studies.c.name == name)
            number = connection.execute(study).scalar_one()
            by_trial = final_values(connection, metric, number)
            rows = connection.execute(query).all()
        by_row: dict[int, dict[int, float]] = {}
        for row, seed, trial in rows:
            if trial in by_trial:
                by_row.setdefault(row, {})[seed] = by_trial[trial]
        return by_row

    @patient
    def tried(self, results: StudyResults) -> list[TriedSetting]:
        """Returns the trials of rows at the settings that they try, those of the table too.

        They are by row, stage, setting and seed; none without nuisance hyperparameters.
        """
        if results.tune is None:
            return []
        score = epoch_metrics.alias()
        listed = every_trial()
        query = (
            select(
                cells.c.number.label("row"),
                listed.c.stage,
                listed.c.setting,
                listed.c.seed,
                trials.c.hash,
                trials.c.status,
                score.c.value.label("score"),
            )
            .select_from(listed)
            .join(cells, cells.c.id == listed.c.cell_id)
            .join(studies, studies.c.id == cells.c.study_id)
            .join(trials, trials.c.hash == listed.c.trial_hash)
            .join(
                score,
                (score.c.trial_hash == trials.c.hash)
                & (score.c.epoch == trials.c.selected_epoch)
                & (score.c.name == results.tune.metric)
                & (trials.c.status == Status.COMPLETED),
                isouter=True,
            )
            .where(studies.c.name == results.name, listed.c.setting.is_not(None))
            .order_by(cells.c.number, listed.c.stage, listed.c.setting, listed.c.seed)
        )
        with self._engine.connect() as connection:
            study = select(studies.c.id).where(studies.c.name == results.name)
            number = connection.execute(study).scalar_one()
            by_trial = final_values(connection, results.metric, number)
            rows = connection.execute(query).all()
        return [
            TriedSetting(
                row=row.row,
                stage=row.stage or "table",
                setting=row.setting,
                seed=row.seed,
                status=Status(row.status),
                score=row.score,
                value=by_trial.get(row.hash),
                trial=row.hash,
            )
            for row in rows
        ]

    @patient
    def correct_images(self, name: str) -> dict[tuple[int, int], CorrectImages]:
        """Returns which test images trials get right, by row and seed.

        Raises UnknownName if there is no such study.
        """
        self.get(name)
        with self._engine.connect() as connection:
            return images_of(connection, name)

    @patient
    def wide(self, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Returns column names and rows of a study's wide view, by cell and seed.

        Raises UnknownName if there is no such study.
        """
        self.get(name)
        with self._engine.connect() as connection:
            stored = select(studies).where(studies.c.name == name)
            study = connection.execute(stored).mappings().one()
            query = query_of(connection, dict(study))
            rows = connection.exec_driver_sql(
                f"SELECT * FROM ({query}) AS wide ORDER BY cell, seed"
            )
            return list(rows.keys()), [tuple(row) for row in rows]

    @patient
    def declaration(self, plan: Plan) -> Declaration:
        """Returns what becomes of a study that is declared now.

        Args:
            plan: with all seeds that its cells may get.
        """
        with self._engine.connect() as connection:
            declaration = declare(connection, plan)
            earlier = studies_of_groups(
                connection,
                declaration.groups,
                declaration.moment,
                without=declaration.study,
            )
        before = replace(declaration.before, studies=earlier)
        return replace(declaration, before=before)

    @patient
    def proposed(
        self, name: str, *, only_known: bool = False
    ) -> list[dict[str, Level]]:
        """Returns the levels of a study's cells in order; empty without such a study.

        Controls are left out, as they are not proposals.

        Args:
            only_known: leave out cells without any trial that has a result.
        """
        query = (
            select(cells.c.number, levels.c.factor, levels.c.level)
            .join(levels, levels.c.cell_id == cells.c.id)
            .join(
                studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id)
            )
            .where(cells.c.role != "control")
            .order_by(cells.c.number, levels.c.position)
        )
        if only_known:
            ended = select(cell_trials.c.cell_id).join(
                trials, trials.c.hash == cell_trials.c.trial_hash
            )
            query = query.where(
                cells.c.id.in_(
                    ended.where(trials.c.status.in_((*WITH_RESULT, Status.PRUNED)))
                )
            )
        levels_by_cell: dict[int, dict[str, Level]] = {}
        with self._engine.connect() as connection:
            for number, factor, level in connection.execute(query):
                levels_by_cell.setdefault(number, {})[factor] = level
        return [levels_by_cell[number] for number in sorted(levels_by_cell)]


def _status(study: Any, counts: Sequence[Any]) -> StudyStatus:
    """Returns the status of a row of `studies`, given its trials by state."""
    return StudyStatus(
        name=study["name"],
        question=study["question"],
        document=study["document"],
        space=from_data(study["space"], study["document"]),
        file=study["file"],
        results_view=study["results_view"],
        updated_at=study["updated_at"],
        by_status={Status(count.status): count.number for count in counts},
        epochs_done=sum(count.epochs_done for count in counts),
        # A training may end early.
        epochs=sum(
            count.epochs_done if count.status == Status.COMPLETED else count.epochs
            for count in counts
        ),
        finished=study["finished_at"] is not None,
        last_result_at=max(
            (count.ended_at for count in counts if count.ended_at is not None),
            default=datetime.min,
        ),
    )
