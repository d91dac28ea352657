"""Reads a store. Nothing here can write, because the connection does not allow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, func, select

from ablate.records import (
    WITH_RESULT,
    CorrectImages,
    Cost,
    Epoch,
    Known,
    Level,
    Plan,
    Status,
    StudyResults,
    Trial,
    base_name,
)
from ablate.store.comparisons import without_split
from ablate.store.correct_images import images_of
from ablate.store.database import patient
from ablate.store.lineages import Declaration, declare
from ablate.store.results import COSTS, read_results
from ablate.store.sql_tables import (
    architectures,
    cell_trials,
    cells,
    epoch_metrics,
    epochs,
    levels,
    sources,
    studies,
    trial_metrics,
    trials,
)
from ablate.store.trials import TrialReader

CHUNK = 500


class Reader(TrialReader):
    """Reads one store: its studies, what is known of trials, and single trials."""

    def costs(self, revision: int) -> dict[str, Cost]:
        """Returns costs by architecture hash, for one revision of the rules."""
        query = select(
            architectures.c.hash, *(architectures.c[name] for name in COSTS)
        ).where(architectures.c.cost_revision == revision)
        with self._engine.connect() as connection:
            return {row[0]: Cost(*row[1:]) for row in connection.execute(query)}

    @patient
    def identities(self) -> dict[str, str]:
        """Returns the identity of users' files by the hash of their syntax."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(sources.c.syntax, sources.c.identity))
            return {row[0]: row[1] for row in rows}

    @patient
    def files_of_identity(self) -> dict[str, dict[str, str]]:
        """Returns the hash of each file's syntax, by the identity of a user's part."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(sources.c.identity, sources.c.files))
            return {row[0]: row[1] for row in rows}

    def known(
        self, hashes: Iterable[str], *, with_epochs: bool = True
    ) -> dict[str, Known]:
        """Returns state and epochs of those trials that the store has."""
        return self._known(list(hashes), with_epochs=with_epochs)

    @patient
    def _known(self, trial_hashes: list[str], *, with_epochs: bool) -> dict[str, Known]:
        trials_known = dict[str, Known]()
        with self._engine.connect() as connection:
            for start in range(0, len(trial_hashes), CHUNK):
                chunk = trial_hashes[start : start + CHUNK]
                # States are read first, because a writer may be active: all epochs of a
                # trial that is seen as completed are in the store.
                states = connection.execute(
                    select(trials.c.hash, trials.c.status, trials.c.ended_at).where(
                        trials.c.hash.in_(chunk)
                    )
                ).all()
                final = _final_metrics(connection, chunk)
                curves: dict[str, list[Epoch]] = {}
                if with_epochs:
                    curves = _curves(connection, chunk)
                for key, state, ended_at in states:
                    trials_known[key] = Known(
                        status=Status(state),
                        epochs=tuple(curves.get(key, ())),
                        final=final.get(key, {}),
                        ended_at=ended_at,
                    )
        return trials_known

    @patient
    def beginnings(self, trial: Trial) -> tuple[str, ...]:
        """Returns the same trial's shorter versions (fewer epochs), the longest first.

        Empty if a longer training does not begin in the same way.
        """
        if not trial.recipe.extends or trial.architecture.trainer:
            return ()
        query = (
            select(trials.c.hash, trials.c.epochs)
            .where(
                trials.c.architecture_hash == trial.architecture.hash,
                trials.c.seed == trial.seed,
            )
            .where(trials.c.epochs < trial.recipe.epochs, trials.c.epochs_done > 0)
            .order_by(trials.c.epochs.desc())
        )

        with self._engine.connect() as connection:
            matches = connection.execute(query).all()
        return tuple(
            row.hash for row in matches if row.hash == _shorter(trial, row.epochs).hash
        )

    def seconds_per_flop_epoch(self, data: Mapping[str, Any]) -> float | None:
        """Returns the measured seconds per epoch and FLOP on these data.

        It is the median over recent trials; None if there are none.
        """
        query = (
            select(
                # FLOPs that were not counted are 0.
                trials.c.seconds
                / trials.c.epochs
                / func.coalesce(func.nullif(architectures.c.flops, 0), 1),
                trials.c.data,
            )
            .join(architectures, architectures.c.hash == trials.c.architecture_hash)
            .where(trials.c.seconds.is_not(None))
            .order_by(trials.c.ended_at.desc())
            .limit(1000)
        )
        data_without_split = without_split(data)
        with self._engine.connect() as connection:
            rates = sorted(
                float(rate)
                for rate, trained_on in connection.execute(query)
                if without_split(trained_on) == data_without_split
            )
        if rates:
            return rates[len(rates) // 2]
        return None

    def declaration(self, plan: Plan) -> Declaration:
        """Returns what becomes of a study that is declared now.

        Args:
            plan: with all seeds that its cells may get.
        """
        with self._engine.connect() as connection:
            return declare(connection, plan)

    def names(self) -> dict[int, str]:
        """Returns the names of all studies, by their numbers."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(studies.c.id, studies.c.name)).all()
        return {row.id: row.name for row in rows}

    def generations(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Returns the names and spaces of all generations of a study, the first first."""
        base = base_name(name)
        query = select(studies.c.name, studies.c.space).order_by(studies.c.generation)
        with self._engine.connect() as connection:
            return [
                (row.name, row.space or {})
                for row in connection.execute(query)
                if base_name(row.name) == base
            ]

    def relatives(self, name: str) -> list[str]:
        """Returns the names of the other studies that compare the same rows.

        Generations of the study itself are left out.
        """
        base = base_name(name)
        with self._engine.connect() as connection:
            lineage = func.coalesce(studies.c.lineage, studies.c.id)
            own_lineage = (
                select(lineage).where(studies.c.name == name).scalar_subquery()
            )
            query = (
                select(studies.c.name)
                .where(lineage == own_lineage)
                .order_by(studies.c.id)
            )
            names = connection.execute(query).scalars().all()
        return [other for other in names if base_name(other) != base]

    def correct_images(self, name: str) -> dict[tuple[int, int], CorrectImages]:
        """Returns which test images trials get right, by row and seed.

        Raises UnknownName if there is no such study.
        """
        self.study(name)
        with self._engine.connect() as connection:
            return images_of(connection, name)

    def results(self, name: str) -> StudyResults:
        """Returns all cells of a study with their known results. Raises UnknownName."""
        self.study(name)
        with self._engine.connect() as connection:
            study = (
                connection.execute(select(studies).where(studies.c.name == name))
                .mappings()
                .one()
            )
            return read_results(connection, dict(study))

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


def _final_metrics(
    connection: Connection, chunk: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns the final metrics of completed trials by hash."""
    rows = connection.execute(
        select(trial_metrics).where(trial_metrics.c.trial_hash.in_(chunk))
    )
    final: dict[str, dict[str, float]] = {}
    for row in rows:
        final.setdefault(row.trial_hash, {})[row.name] = row.value
    return final


def _curves(connection: Connection, chunk: Sequence[str]) -> dict[str, list[Epoch]]:
    """Returns the epochs of trials by hash, in their order."""
    # Epochs are read first: a writer may add one in between, and each of those read
    # must have its metrics.
    rows = connection.execute(
        select(epochs).where(epochs.c.trial_hash.in_(chunk)).order_by(epochs.c.number)
    ).all()
    measured: dict[tuple[str, int], dict[str, float]] = {}
    for key, number, name, value in connection.execute(
        select(
            epoch_metrics.c.trial_hash,
            epoch_metrics.c.epoch,
            epoch_metrics.c.name,
            epoch_metrics.c.value,
        ).where(epoch_metrics.c.trial_hash.in_(chunk))
    ):
        measured.setdefault((key, number), {})[name] = value
    curves: dict[str, list[Epoch]] = {}
    for row in rows:
        epoch = Epoch(
            number=row.number,
            metrics=measured.get((row.trial_hash, row.number), {}),
            lr=row.lr,
            seconds=row.seconds,
            joules=row.joules,
        )
        curves.setdefault(row.trial_hash, []).append(epoch)
    return curves


def _shorter(trial: Trial, epochs: int) -> Trial:
    """Returns the same trial with fewer epochs."""
    return replace(trial, recipe=replace(trial.recipe, epochs=epochs))
