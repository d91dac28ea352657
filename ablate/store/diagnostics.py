"""Reads the diagnostics of a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Engine, func, select

from ablate.errors import UnknownName, unknown
from ablate.records import Measurement, Status
from ablate.records.stored import LayerValue
from ablate.store.database import patient
from ablate.store.declarations import CHUNK
from ablate.store.sql_tables import (
    cell_trials,
    cells,
    diagnostics,
    studies,
    trials,
)
from ablate.store.studies import StudyReader
from ablate.text import advice


class DiagnosticReader:
    """Reads what was measured inside networks."""

    def __init__(self, engine: Engine, studies: StudyReader) -> None:
        self._engine = engine
        self._studies = studies

    @patient
    def names(self, name: str) -> list[str]:
        """Returns the diagnostics stored for a study. Raises UnknownName."""
        self._studies.get(name)
        query = (
            select(diagnostics.c.name)
            .distinct()
            .join(cell_trials, cell_trials.c.trial_hash == diagnostics.c.trial_hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(
                studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id)
            )
            # Layer -1 records that a network does not have a diagnostic.
            .where(diagnostics.c.layer >= 0)
        )
        with self._engine.connect() as connection:
            return sorted(connection.execute(query).scalars())

    @patient
    def layers(self, name: str, diagnostic: str) -> list[LayerValue]:
        """Returns a diagnostic of a study's completed trials at its last epoch.

        Raises:
            UnknownName: there is no such study, or none of its trials has that
                diagnostic.
        """
        stored = self.names(name)
        if diagnostic not in stored:
            raise UnknownName(
                unknown("diagnostic", diagnostic, stored)
                if stored
                else (
                    f"no diagnostic of {name} is stored; take them with:"
                    f" {advice.command('diagnose', name)}"
                )
            )
        of_study = (studies.c.name == name) & (cells.c.study_id == studies.c.id)
        with self._engine.connect() as connection:
            last = (
                select(
                    diagnostics.c.trial_hash,
                    func.max(diagnostics.c.epoch).label("epoch"),
                )
                .where(diagnostics.c.name == diagnostic)
                .group_by(diagnostics.c.trial_hash)
                .subquery()
            )
            query = (
                select(
                    cells.c.number.label("row"),
                    cell_trials.c.seed,
                    diagnostics.c.layer,
                    diagnostics.c.value,
                    diagnostics.c.numbers,
                )
                .join(cell_trials, cell_trials.c.trial_hash == diagnostics.c.trial_hash)
                .join(cells, cells.c.id == cell_trials.c.cell_id)
                .join(studies, of_study)
                .join(
                    last,
                    (last.c.trial_hash == diagnostics.c.trial_hash)
                    & (last.c.epoch == diagnostics.c.epoch),
                )
                .join(trials, trials.c.hash == diagnostics.c.trial_hash)
                .where(
                    diagnostics.c.name == diagnostic,
                    diagnostics.c.layer >= 0,
                    trials.c.status == Status.COMPLETED,
                )
                .order_by(cells.c.number, cell_trials.c.seed, diagnostics.c.layer)
            )
            return [
                LayerValue(
                    row=row.row,
                    seed=row.seed,
                    layer=row.layer,
                    value=row.numbers if row.value is None else row.value,
                )
                for row in connection.execute(query)
            ]

    @patient
    def of_trial(self, trial: str) -> dict[str, dict[int, Any]]:
        """Returns the diagnostics of a trial, each at its last epoch.

        They are numbers, vectors or matrices, by the diagnostic's name and by layer.
        """
        of_trial = diagnostics.c.trial_hash == trial
        last = (
            select(diagnostics.c.name, func.max(diagnostics.c.epoch).label("epoch"))
            .where(of_trial)
            .group_by(diagnostics.c.name)
        )
        latest = last.subquery()
        query = (
            select(
                diagnostics.c.name,
                diagnostics.c.layer,
                diagnostics.c.value,
                diagnostics.c.numbers,
            )
            .join(
                latest,
                (latest.c.name == diagnostics.c.name)
                & (latest.c.epoch == diagnostics.c.epoch),
            )
            .where(of_trial, diagnostics.c.layer >= 0)
            .order_by(diagnostics.c.name, diagnostics.c.layer)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        values: dict[str, dict[int, Any]] = {}
        for row in rows:
            by_layer = values.setdefault(row.name, {})
            by_layer[row.layer] = row.numbers if row.value is None else row.value
        return values

    @patient
    def measurements(self, hashes: Sequence[str]) -> dict[str, list[Measurement]]:
        """Returns the diagnostics of trials, by trial and in the order of epochs."""
        query = (
            select(
                diagnostics.c.trial_hash,
                diagnostics.c.epoch,
                diagnostics.c.name,
                diagnostics.c.layer,
                diagnostics.c.value,
            )
            .where(diagnostics.c.layer >= 0)
            .order_by(diagnostics.c.epoch, diagnostics.c.name, diagnostics.c.layer)
        )
        measured: dict[str, list[Measurement]] = {}
        with self._engine.connect() as connection:
            for start in range(0, len(hashes), CHUNK):
                chunk = hashes[start : start + CHUNK]
                some = query.where(diagnostics.c.trial_hash.in_(chunk))
                for key, epoch, name, layer, value in connection.execute(some):
                    measurement = Measurement(
                        epoch=epoch, name=name, layer=layer, value=value
                    )
                    measured.setdefault(key, []).append(measurement)
        return measured

    @patient
    def undiagnosed(self, name: str, names: Sequence[str]) -> int:
        """Counts completed trials in which one of these diagnostics was not taken."""
        query = (
            select(trials.c.hash, diagnostics.c.name)
            .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(
                studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id)
            )
            .join(diagnostics, diagnostics.c.trial_hash == trials.c.hash, isouter=True)
            .where(trials.c.status == Status.COMPLETED)
            .distinct()
        )
        taken: dict[str, set[str]] = defaultdict(set)
        with self._engine.connect() as connection:
            for key, stored in connection.execute(query):
                # Parts of a diagnostic are stored under its name and a dot.
                taken[key].add((stored or "").partition(".")[0])
        return sum(not set(names) <= values for values in taken.values())
