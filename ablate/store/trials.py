"""Reads single trials: their results, what they ran on, and their diagnostics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, select

from ablate.budget import Used
from ablate.errors import UnknownName, unknown
from ablate.records import (
    WITH_RESULT,
    Architecture,
    Measurement,
    Recipe,
    Status,
    Trained,
)
from ablate.store.comparisons import CHUNK
from ablate.store.rows import check_complete
from ablate.store.space_data import metrics_of
from ablate.store.sql_tables import (
    architectures,
    attempts,
    cell_trials,
    cells,
    diagnostics,
    epochs,
    provenance,
    studies,
    trial_metrics,
    trials,
)
from ablate.store.studies import Catalogue
from ablate.text import advice

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


def final_metric(name: str) -> ColumnElement[float | None]:
    """Returns the final value of a metric as a column beside `trials`."""
    return (
        select(trial_metrics.c.value)
        .where(
            trial_metrics.c.trial_hash == trials.c.hash, trial_metrics.c.name == name
        )
        .scalar_subquery()
        .label(name)
    )


class TrialReader(Catalogue):
    """Reads the trials of a study, or one trial by its hash."""

    def trained_identities(self, most: int) -> list[dict[str, Any]]:
        """Returns what the latest trials that ended were trained from.

        Each has the backbone, settings, code, recipe, data, start, teacher, seed and
        status: that of a result, or failed.
        """
        query = (
            select(
                trials.c.recipe,
                trials.c.data,
                trials.c.code,
                trials.c.start,
                trials.c.teacher,
                trials.c.vary,
                trials.c.seed,
                trials.c.status,
                architectures.c.backbone,
                architectures.c.settings,
                architectures.c.code.label("built_by"),
                architectures.c.classes,
                architectures.c.head,
            )
            .join(architectures)
            .where(trials.c.status.in_((*WITH_RESULT, Status.FAILED)))
            .order_by(trials.c.ended_at.desc())
            .limit(most)
        )
        with self._engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        for row in rows:
            row["code"] = {**(row.pop("built_by") or {}), **(row["code"] or {})}
        return rows

    def last_versions(self) -> dict[str, str]:
        """Returns the versions of Python, torch and timm in the last run; {} without one."""
        query = (
            select(provenance.c.python, provenance.c.torch, provenance.c.timm)
            .order_by(provenance.c.id.desc())
            .limit(1)
        )
        with self._engine.connect() as connection:
            row = connection.execute(query).mappings().first()
        return dict(row) if row else {}

    def trials(self, name: str) -> list[dict[str, Any]]:
        """Returns the trials of a study.

        Each has the cell, seed, state, metrics, number of attempts, the last line of
        the last error, and what was taken from its initial weights.
        """
        metrics = self._compared(name)
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
        query = (
            select(
                cells.c.number.label("row"),
                cell_trials.c.seed,
                trials.c.status,
                trials.c.epochs_done,
                trials.c.epochs,
                *(final_metric(metric) for metric in metrics),
                trials.c.seconds,
                func.coalesce(tries.c.attempts, 0).label("attempts"),
                trials.c.hash.label("trial"),
                last.c.error,
                last.c.weights,
            )
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, studies.c.id == cells.c.study_id)
            .join(trials, trials.c.hash == cell_trials.c.trial_hash)
            # A planned trial has no attempt, and stays in the list.
            .join(tries, tries.c.trial_hash == trials.c.hash, isouter=True)
            .join(last, last.c.id == tries.c.last, isouter=True)
            .where(studies.c.name == name)
            .order_by(cells.c.number, cell_trials.c.seed)
        )
        with self._engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        for row in rows:
            if row["error"] and row["error"].strip():
                row["error"] = row["error"].strip().splitlines()[-1]
            else:
                row["error"] = ""
            row["weights"] = row["weights"] or ""
        return rows

    def _compared(self, name: str) -> list[str]:
        """Returns the metrics by which a study may compare its cells."""
        with self._engine.connect() as connection:
            space = connection.execute(
                select(studies.c.space).where(studies.c.name == name)
            ).scalar()
        return [metric.name for metric in metrics_of(space) if metric.compared]

    def diagnostics(self, name: str) -> list[str]:
        """Returns the diagnostics stored for a study. Raises UnknownName."""
        self.study(name)
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

    def layers(self, name: str, diagnostic: str) -> list[dict[str, Any]]:
        """Returns a diagnostic of a study's completed trials at its last epoch.

        Each row has the cell, seed, epoch, layer, and a value or numbers.

        Raises:
            UnknownName: there is no such study, or none of its trials has that
                diagnostic.
        """
        stored = self.diagnostics(name)
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
                    cells.c.number.label("cell"),
                    cell_trials.c.seed,
                    diagnostics.c.epoch,
                    diagnostics.c.layer,
                )
                .add_columns(diagnostics.c.value, diagnostics.c.numbers)
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
            return [dict(row) for row in connection.execute(query).mappings()]

    def circumstances(self, name: str) -> list[dict[str, Any]]:
        """Returns what each completed trial of a study ran on.

        Each has the row, seed and trial, and device, threads, host and provenance of
        its last completed attempt.

        Raises UnknownName.
        """
        self.study(name)
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
                cell_trials.c.seed,
                trials.c.hash.label("trial"),
                attempts.c.device,
                attempts.c.threads,
                attempts.c.host,
                *(provenance.c[key] for key in PROVENANCE),
            )
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(
                studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id)
            )
            .join(trials, trials.c.hash == cell_trials.c.trial_hash)
            .join(last, last.c.trial_hash == trials.c.hash)
            .join(attempts, attempts.c.id == last.c.id)
            .join(provenance, provenance.c.id == attempts.c.provenance_id)
            .order_by(cells.c.number, cell_trials.c.seed)
        )
        with self._engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        check_complete(name, "the attempts", (tuple(row.values()) for row in rows))
        return rows

    def used(self, name: str = "") -> Used:
        """Returns what the runs of a study have used so far; of all, without a name.

        Trials that were begun in runs of other studies are left out, and so are epochs
        that a trial took over from a shorter one.
        """
        run = attempts.c.provenance_id == provenance.c.id
        begun_here = (
            select(attempts.c.trial_hash)
            .join(provenance, run)
            .join(studies, studies.c.id == provenance.c.study_id)
            .distinct()
        )
        if name:
            begun_here = begun_here.where(studies.c.name == name)
        begun = attempts.alias()
        # A trial that goes on from a shorter one starts at a later epoch; the epochs before
        # that one were paid for by the shorter trial.
        first = (begun.c.trial_hash == epochs.c.trial_hash) & (begun.c.number == 1)
        sums = (
            select(func.sum(epochs.c.seconds), func.sum(epochs.c.joules))
            .join(begun, first)
            .where(
                epochs.c.trial_hash.in_(begun_here),
                epochs.c.number > begun.c.first_epoch,
            )
        )
        with self._engine.connect() as connection:
            trials_begun = frozenset(connection.execute(begun_here).scalars())
            seconds, joules = connection.execute(sums).one()
        return Used(trials_begun, seconds or 0.0, joules or 0.0)

    def spent(self, name: str) -> list[dict[str, Any]]:
        """Returns what a study's training cost, by device.

        Each row has the number of trials, the epochs trained for them, the seconds that
        these took, the joules that they drew, and the number of epochs with known
        joules. Epochs that a trial took over from a shorter one count for the shorter
        one only.
        """
        last = (
            select(attempts.c.trial_hash, func.max(attempts.c.id).label("id"))
            .group_by(attempts.c.trial_hash)
            .subquery()
        )
        of_study = (
            select(cell_trials.c.trial_hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(
                studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id)
            )
            .distinct()
        )
        begun = attempts.alias()
        spent = (
            select(
                epochs.c.trial_hash,
                func.count().label("epochs"),
                func.sum(epochs.c.seconds).label("seconds"),
                func.count(epochs.c.joules).label("metered"),
                func.sum(epochs.c.joules).label("joules"),
            )
            .join(
                begun,
                (begun.c.trial_hash == epochs.c.trial_hash) & (begun.c.number == 1),
            )
            .where(
                epochs.c.trial_hash.in_(of_study), epochs.c.number > begun.c.first_epoch
            )
            .group_by(epochs.c.trial_hash)
            .subquery()
        )
        sums = (
            func.sum(spent.c[name]).label(name)
            for name in ("epochs", "seconds", "metered", "joules")
        )
        query = (
            select(attempts.c.device, func.count().label("trials"), *sums)
            .join(last, last.c.id == attempts.c.id)
            .join(spent, spent.c.trial_hash == attempts.c.trial_hash)
            .group_by(attempts.c.device)
            .order_by(attempts.c.device)
        )
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def trial(self, text: str) -> dict[str, Any]:
        """Returns a trial by its hash or a prefix of it.

        It has the study, row, seed, state, metrics, recipe, data and network.

        Raises UnknownName.
        """
        study, key = self.target(text)
        if key is None:
            raise UnknownName(
                f"'{text}' is a study; name one of its trials, as"
                f" `{advice.command('status', text)}` lists them"
            )
        query = (
            select(
                trials,
                cells.c.number.label("row"),
                cells.c.role,
                architectures.c.backbone,
                architectures.c.image_size,
                architectures.c.settings,
                architectures.c.params,
                architectures.c.flops,
            )
            .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, studies.c.id == cells.c.study_id)
            .join(architectures, architectures.c.hash == trials.c.architecture_hash)
            .where(trials.c.hash == key, studies.c.name == study)
            # Rows with the same network share their trials; the first one stands for all.
            .order_by(cells.c.number)
            .limit(1)
        )
        with self._engine.connect() as connection:
            return {"study": study, **connection.execute(query).mappings().one()}

    def layers_of(self, trial: str) -> list[dict[str, Any]]:
        """Returns the diagnostics of a trial, each at its last epoch.

        Each row has the name, layer, and a value or numbers.
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
            return [dict(row) for row in connection.execute(query).mappings()]

    def attempts(self, trial: str) -> list[dict[str, Any]]:
        """Returns all attempts at a trial, in their order."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(attempts)
                .where(attempts.c.trial_hash == trial)
                .order_by(attempts.c.number)
            )
            return [dict(row) for row in rows.mappings()]
