"""Reads trials: their results, their attempts, and what they ran on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from ablate.errors import UnknownName
from ablate.records import (
    Architecture,
    Epoch,
    Known,
    Recipe,
    Status,
    Trained,
    Trial,
)
from ablate.records.stored import Attempt, Circumstances, StoredTrial, TrialRow
from ablate.store.database import patient
from ablate.store.declarations import CHUNK, key_of_trial, trained_before
from ablate.store.results import final_values
from ablate.store.rows import check_complete
from ablate.store.space_data import metrics_of
from ablate.store.sql_tables import (
    all_cell_trials,
    architectures,
    attempts,
    cell_trials,
    cells,
    epoch_metrics,
    epochs,
    every_trial,
    provenance,
    studies,
    trial_metrics,
    trials,
)
from ablate.store.studies import StudyReader, shown_status
from ablate.text import advice

# Fields of `Circumstances` that are the same for all trials of a run.
PROVENANCE = (
    "command",
    "ablate",
    "commit",
    "dirty",
    "python",
    "torch",
    "timm",
    "ray",
    "platform",
    "cpu",
    "gpus",
    "started_at",
)


class TrialReader:
    """Reads trials, of a study or by their hashes."""

    def __init__(self, engine: Engine, studies: StudyReader) -> None:
        self._engine = engine
        self._studies = studies

    @patient
    def have_results(self, planned: Iterable[Trial]) -> bool:
        """Whether a trial that differs from one of these in its seed alone has a result."""
        rows = list(planned)
        networks = {trial.architecture.hash for trial in rows}
        with self._engine.connect() as connection:
            trained = trained_before(connection, networks, datetime.max)
        return not trained.keys().isdisjoint(map(key_of_trial, rows))

    @patient
    def of(self, name: str, *, beside: bool = False) -> list[TrialRow]:
        """Returns the trials of a study, by row and seed.

        Args:
            beside: also return those beside its table, at the settings that rows try.
        """
        tries = (
            select(
                attempts.c.trial_hash,
                func.count().label("attempts"),
                func.max(attempts.c.id).label("last"),
            )
            .group_by(attempts.c.trial_hash)
            .subquery()
        )
        last = attempts.alias()
        listed = every_trial(beside=beside)
        with self._engine.connect() as connection:
            study = connection.execute(
                select(studies.c.id, studies.c.space).where(studies.c.name == name)
            ).first()
            if study is None:
                return []
            query = (
                select(
                    cells.c.number.label("row"),
                    listed.c.stage,
                    listed.c.setting,
                    listed.c.seed,
                    shown_status(connection),
                    trials.c.epochs_done,
                    trials.c.epochs,
                    trials.c.seconds,
                    func.coalesce(tries.c.attempts, 0).label("attempts"),
                    trials.c.hash.label("trial"),
                    last.c.error,
                    last.c.weights,
                )
                .join(cells, cells.c.id == listed.c.cell_id)
                .join(studies, studies.c.id == cells.c.study_id)
                .join(trials, trials.c.hash == listed.c.trial_hash)
                # A planned trial has no attempt, and stays in the list.
                .join(tries, tries.c.trial_hash == trials.c.hash, isouter=True)
                .join(last, last.c.id == tries.c.last, isouter=True)
                .where(studies.c.name == name)
                .order_by(
                    cells.c.number, listed.c.stage, listed.c.seed, listed.c.setting
                )
            )
            # Before the values, because a writer may be active: a trial that is seen as
            # completed has its values.
            rows = connection.execute(query).all()
            values = {
                metric.name: final_values(connection, metric, study.id)
                for metric in metrics_of(study.space)
                if metric.compared
            }
            return [
                TrialRow(
                    row=row.row,
                    stage=row.stage,
                    setting=row.setting,
                    seed=row.seed,
                    status=Status(row.status),
                    epochs_done=row.epochs_done,
                    epochs=row.epochs,
                    metrics={
                        metric: by_trial.get(row.trial)
                        for metric, by_trial in values.items()
                    },
                    seconds=row.seconds,
                    attempts=row.attempts,
                    trial=row.trial,
                    error=(row.error or "").strip().rpartition("\n")[2],
                    weights=row.weights or "",
                )
                for row in rows
            ]

    @patient
    def get(self, text: str) -> StoredTrial:
        """Returns a trial by its hash or a prefix of it. Raises UnknownName."""
        study, key = self._studies.target(text)
        if key is None:
            raise UnknownName(
                f"'{text}' is a study; name one of its trials, as"
                f" `{advice.command('status', text)}` lists them"
            )
        query = (
            select(
                cells.c.number.label("row"),
                trials.c.seed,
                trials.c.hash,
                trials.c.status,
                trials.c.epochs_done,
                trials.c.epochs,
                trials.c.seconds,
                architectures.c.backbone,
                architectures.c.image_size,
                architectures.c.settings,
                trials.c.recipe,
                trials.c.data,
            )
            .join(all_cell_trials, all_cell_trials.c.trial_hash == trials.c.hash)
            .join(cells, cells.c.id == all_cell_trials.c.cell_id)
            .join(studies, studies.c.id == cells.c.study_id)
            .join(architectures, architectures.c.hash == trials.c.architecture_hash)
            .where(trials.c.hash == key, studies.c.name == study)
            # Rows with the same network share their trials; the first one stands for all.
            .order_by(cells.c.number)
            .limit(1)
        )
        with self._engine.connect() as connection:
            return StoredTrial(
                study=study, **connection.execute(query).mappings().one()
            )

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
                    select(
                        trials.c.hash,
                        trials.c.status,
                        trials.c.ended_at,
                        trials.c.selected_epoch,
                    ).where(trials.c.hash.in_(chunk))
                ).all()
                final = _final_metrics(connection, chunk)
                curves: dict[str, list[Epoch]] = {}
                if with_epochs:
                    curves = _curves(connection, chunk)
                for key, state, ended_at, selected in states:
                    trials_known[key] = Known(
                        status=Status(state),
                        epochs=tuple(curves.get(key, ())),
                        final=final.get(key, {}),
                        ended_at=ended_at,
                        selected_epoch=selected,
                    )
        return trials_known

    @patient
    def attempts(self, trial: str) -> list[Attempt]:
        """Returns all attempts at a trial, in their order."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(*(attempts.c[field.name] for field in fields(Attempt)))
                .where(attempts.c.trial_hash == trial)
                .order_by(attempts.c.number)
            )
            return [Attempt(**row) for row in rows.mappings()]

    @patient
    def circumstances(self, name: str) -> list[Circumstances]:
        """Returns what each completed trial of a study ran on.

        Raises UnknownName.
        """
        self._studies.get(name)
        # The attempt that completed a trial is the one that its result comes from.
        last = (
            select(attempts.c.trial_hash, func.max(attempts.c.id).label("id"))
            .where(attempts.c.status == Status.COMPLETED)
            .group_by(attempts.c.trial_hash)
            .subquery()
        )
        query = (
            select(
                cells.c.number.label("row"),
                trials.c.seed,
                trials.c.hash.label("trial"),
                attempts.c.device,
                attempts.c.threads,
                attempts.c.host,
                *(provenance.c[key] for key in PROVENANCE),
            )
            .select_from(all_cell_trials)
            .join(cells, cells.c.id == all_cell_trials.c.cell_id)
            .join(
                studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id)
            )
            .join(trials, trials.c.hash == all_cell_trials.c.trial_hash)
            .join(last, last.c.trial_hash == trials.c.hash)
            .join(attempts, attempts.c.id == last.c.id)
            .join(provenance, provenance.c.id == attempts.c.provenance_id)
            .order_by(cells.c.number, trials.c.seed, trials.c.hash)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        check_complete(name, "the attempts", map(tuple, rows))
        return [Circumstances(**row._mapping) for row in rows]

    @patient
    def statuses(self) -> dict[str, tuple[Status, str]]:
        """Returns the state of each trial in a study, and the name of one study."""
        query = (
            select(trials.c.hash, trials.c.status, studies.c.name)
            .join(all_cell_trials, all_cell_trials.c.trial_hash == trials.c.hash)
            .join(cells, cells.c.id == all_cell_trials.c.cell_id)
            .join(studies, studies.c.id == cells.c.study_id)
        )
        with self._engine.connect() as connection:
            return {
                key: (Status(state), name)
                for key, state, name in connection.execute(query)
            }

    @patient
    def trained(self, name: str) -> list[Trained]:
        """Returns the trials of a study, each once."""
        query = (
            select(
                trials.c.hash,
                trials.c.recipe,
                trials.c.status,
                trials.c.start,
                architectures,
            )
            .join(architectures, architectures.c.hash == trials.c.architecture_hash)
            .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(
                studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id)
            )
            .order_by(cells.c.number, cell_trials.c.seed)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return list({row[0]: _trained(row) for row in rows}.values())

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


def _trained(row: Any) -> Trained:
    """Returns the trial of a row of `trials` joined with its architecture."""
    return Trained(
        hash=row[0],
        architecture=Architecture(
            backbone=row.backbone,
            image_size=row.image_size,
            channels=row.channels,
            classes=row.classes,
            settings=row.settings,
            code=row.code or {},
            head=row.head,
            image_width=row.image_width,
        ),
        recipe=Recipe(**row.recipe),
        completed=row.status == Status.COMPLETED,
        start=row.start or "",
    )


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
