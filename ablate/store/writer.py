"""The one writer: studies and plans go in before training, events while it runs. Each call is one transaction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, text, update

from ablate.errors import StoreError
from ablate.records import (
    KNOWN,
    Architecture,
    Cost,
    Ended,
    Event,
    Measured,
    Plan,
    Progressed,
    Provenance,
    Started,
    Status,
    Trial,
)
from ablate.store import views
from ablate.store.database import WriterLock, open_writer, written
from ablate.store.tables import (
    architectures,
    attempts,
    cell_trials,
    cells,
    diagnostics,
    epochs,
    levels,
    provenance,
    stores,
    studies,
    trials,
)

FINAL = ("train_loss", "loss", "top1", "top5")
CHUNK = 500


def now() -> datetime:
    """UTC, without a zone, as the columns keep it."""
    return datetime.fromtimestamp(time.time(), UTC).replace(tzinfo=None)


class Writer:
    """Writes to one store. Only one is open on a SQLite file at a time.

    Raises:
        StoreError: the store cannot be opened, or another process is writing to it.
    """

    def __init__(self, url: str) -> None:
        self._lock = WriterLock(url)
        try:
            self._engine = open_writer(url)
        except BaseException:
            self._lock.release()
            raise
        self._provenance: int | None = None
        self._open: dict[str, int] = {}

    def close(self) -> None:
        self._engine.dispose()
        self._lock.release()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def store_id(self) -> str:
        """Drawn when the store was made. A checkpoint belongs to one store: results of a deleted one never come back unseen."""
        with written(self._engine) as connection:
            found = connection.execute(select(stores.c.id)).scalar()
            if found is None:
                found = uuid.uuid4().hex[:12]
                connection.execute(insert(stores).values(id=found, created_at=now()))
            return str(found)

    def register(self, plan: Plan, file: str, cost_revision: int) -> int:
        """Stores a study's declaration and plan, in the place of an earlier plan of the same name. Trials are only added.

        Returns:
            the study's id.
        """
        with written(self._engine) as connection:
            study = self._study(connection, plan, file)
            connection.execute(delete(cells).where(cells.c.study_id == study))
            self._architectures(
                connection, [(c.architecture, c.cost) for c in plan.cells if c.architecture and c.cost], cost_revision
            )
            self._trials(connection, plan.trials)
            self._cells(connection, study, plan)
            self._view(connection, study, plan)
        return study

    def begin(self, study: int, document: str, found: Provenance) -> None:
        """Notes on what the coming attempts run, and clears up after a run that was killed: its open attempts are lost."""
        with written(self._engine) as connection:
            connection.execute(update(attempts).where(attempts.c.ended_at.is_(None)).values(status="lost", ended_at=now()))
            connection.execute(update(trials).where(trials.c.status == Status.RUNNING).values(status=Status.PLANNED))
            made = connection.execute(
                insert(provenance).values(study_id=study, document=document, started_at=now(), **asdict(found))
            )
            self._provenance = _key(made)

    def write(self, happened: Event) -> None:
        """Stores one event of an executor."""
        with written(self._engine) as connection:
            if isinstance(happened, Started):
                self._started(connection, happened)
            elif isinstance(happened, Progressed):
                self._progressed(connection, happened)
            elif isinstance(happened, Measured):
                self._measured(connection, happened)
            else:
                self._ended(connection, happened)

    def _study(self, connection: Connection, plan: Plan, file: str) -> int:
        space = plan.space
        values = {key: getattr(space, key) for key in ("question", "expect", "source", "metric", "direction", "document")}
        values |= {"file": file, "updated_at": now()}
        known = connection.execute(select(studies.c.id, studies.c.file).where(studies.c.name == space.name)).first()
        if known is not None:
            found, declared_by = known
            other = Path(declared_by).resolve() != Path(file).resolve() and Path(declared_by).is_file()
            if other and not space.named:
                raise StoreError(
                    f"{declared_by} declares a study '{space.name}' too; write `name:` in {file}, or use another --store"
                )
            connection.execute(update(studies).where(studies.c.id == found).values(**values))
            return int(found)
        view = views.results_view_name(space.name)
        taken = connection.execute(select(func.count()).where(studies.c.results_view == view)).scalar()
        made = connection.execute(insert(studies).values(name=space.name, results_view=view, created_at=now(), **values))
        study = _key(made)
        if taken:
            connection.execute(update(studies).where(studies.c.id == study).values(results_view=f"{view}_{study}"))
        return study

    def _architectures(self, connection: Connection, costs: Sequence[tuple[Architecture, Cost]], revision: int) -> None:
        by_hash = {architecture.hash: (architecture, cost) for architecture, cost in costs}
        stored = _existing(connection, architectures.c.hash, list(by_hash))
        rows = [
            {**asdict(architecture), **asdict(cost), "hash": key, "cost_revision": revision}
            for key, (architecture, cost) in by_hash.items()
            if key not in stored
        ]
        _insert(connection, architectures, rows)
        for key in stored:
            cost = by_hash[key][1]
            stale = (architectures.c.hash == key) & (architectures.c.cost_revision != revision)
            connection.execute(update(architectures).where(stale).values(**asdict(cost), cost_revision=revision))

    def _trials(self, connection: Connection, wanted: tuple[Trial, ...]) -> None:
        stored = _existing(connection, trials.c.hash, [trial.hash for trial in wanted])
        rows = [
            {
                "hash": trial.hash,
                "architecture_hash": trial.architecture.hash,
                "recipe": trial.recipe.canonical(),
                "data": trial.data.canonical(),
                "start": trial.start.identity if trial.start else None,
                "seed": trial.seed,
                "epochs": trial.recipe.epochs,
                "status": Status.PLANNED,
                "epochs_done": 0,
            }
            for trial in wanted
            if trial.hash not in stored
        ]
        _insert(connection, trials, rows)

    def _cells(self, connection: Connection, study: int, plan: Plan) -> None:
        rows = [
            {
                "study_id": study,
                "number": cell.index,
                "role": cell.role,
                "architecture_hash": cell.architecture.hash if cell.architecture and cell.cost else None,
                "same_as": cell.same_as,
                "note": cell.note,
            }
            for cell in plan.cells
        ]
        _insert(connection, cells, rows)
        ids = {
            number: key for key, number in connection.execute(select(cells.c.id, cells.c.number).where(cells.c.study_id == study))
        }
        told = [
            {
                "cell_id": ids[cell.index],
                "factor": factor,
                "position": position,
                "level": level,
                "read": factor not in cell.unread,
                "text": str(level).lower() if isinstance(level, bool) else str(level),
                "number": level if isinstance(level, int | float) and not isinstance(level, bool) else None,
            }
            for cell in plan.cells
            for position, (factor, level) in enumerate(cell.levels.items())
        ]
        _insert(connection, levels, told)
        trained = [
            {"cell_id": ids[cell.index], "seed": trial.seed, "trial_hash": trial.hash}
            for cell in plan.cells
            for trial in cell.trials
        ]
        _insert(connection, cell_trials, trained)

    def _view(self, connection: Connection, study: int, plan: Plan) -> None:
        name = connection.execute(select(studies.c.results_view).where(studies.c.id == study)).scalar_one()
        numeric = {
            factor: all(isinstance(level, int | float) and not isinstance(level, bool) for level in found)
            for factor, found in plan.space.factors.items()
        }
        connection.execute(text(f'DROP VIEW IF EXISTS "{name}"'))
        connection.exec_driver_sql(views.results_view(name, study, numeric))

    def _started(self, connection: Connection, happened: Started) -> None:
        before = connection.execute(select(func.count()).where(attempts.c.trial_hash == happened.trial)).scalar_one()
        # A worker that died without a word leaves its attempt open; the next one shows that it was lost.
        lost = (attempts.c.trial_hash == happened.trial) & attempts.c.ended_at.is_(None)
        connection.execute(update(attempts).where(lost).values(status="lost", ended_at=now()))
        made = connection.execute(
            insert(attempts).values(
                trial_hash=happened.trial,
                provenance_id=self._provenance,
                number=before + 1,
                status=Status.RUNNING,
                first_epoch=happened.epoch,
                started_at=now(),
                error="",
                weights=happened.weights,
                **asdict(happened.place),
            )
        )
        self._open[happened.trial] = _key(made)
        self._set_status(connection, happened.trial, {"status": Status.RUNNING})

    def _progressed(self, connection: Connection, happened: Progressed) -> None:
        numbers = [epoch.number for epoch in happened.epochs]
        same = (epochs.c.trial_hash == happened.trial) & epochs.c.number.in_(numbers)
        connection.execute(delete(epochs).where(same))
        connection.execute(insert(epochs), [{"trial_hash": happened.trial, **asdict(epoch)} for epoch in happened.epochs])
        self._set_status(connection, happened.trial, {"epochs_done": max(numbers)})

    def _measured(self, connection: Connection, happened: Measured) -> None:
        rows = [
            {
                "trial_hash": happened.trial,
                "epoch": taken.epoch,
                "name": taken.name,
                "layer": taken.layer,
                "value": taken.value,
                "numbers": None if taken.values is None else list(taken.values),
            }
            for taken in happened.measurements
        ]
        for epoch in {row["epoch"] for row in rows}:
            names = {row["name"] for row in rows if row["epoch"] == epoch}
            same = (diagnostics.c.trial_hash == happened.trial) & (diagnostics.c.epoch == epoch) & diagnostics.c.name.in_(names)
            connection.execute(delete(diagnostics).where(same))
        _insert(connection, diagnostics, rows)

    def _ended(self, connection: Connection, happened: Ended) -> None:
        attempt = self._open.pop(happened.trial, None)
        word = "interrupted" if happened.status == Status.RUNNING else happened.status
        if attempt is not None:
            connection.execute(
                update(attempts).where(attempts.c.id == attempt).values(status=word, ended_at=now(), error=happened.error)
            )
        values: dict[str, Any] = {"status": Status.PLANNED if happened.status == Status.RUNNING else happened.status}
        if happened.status == Status.COMPLETED:
            mine = epochs.c.trial_hash == happened.trial
            last = connection.execute(select(epochs).where(mine).order_by(epochs.c.number.desc()).limit(1)).mappings().one()
            seconds = connection.execute(select(func.sum(epochs.c.seconds)).where(mine)).scalar_one()
            values |= {key: last[key] for key in FINAL} | {"seconds": seconds}
        if happened.status != Status.RUNNING:
            values["ended_at"] = now()
        self._set_status(connection, happened.trial, values)

    def _set_status(self, connection: Connection, trial: str, values: Mapping[str, Any]) -> None:
        """Changes a trial, unless its result is known: that stands, whatever a late or doubled event says."""
        open_ = (trials.c.hash == trial) & trials.c.status.not_in(KNOWN)
        connection.execute(update(trials).where(open_).values(**values))


def _key(result: Any) -> int:
    return int(result.inserted_primary_key[0])


def _existing(connection: Connection, column: Any, wanted: list[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(wanted), CHUNK):
        found.update(connection.execute(select(column).where(column.in_(wanted[start : start + CHUNK]))).scalars())
    return found


def _insert(connection: Connection, table: Any, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)
