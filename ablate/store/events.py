"""What the events of trials change in the store.

What it guarantees: reporting an epoch or a measurement again replaces it, and an event
never changes a known result.

How: each function runs in a transaction of the writer. Statements are built once, with
parameters: to build one takes longer than to run it.

What would break it: changing a trial without the condition in `_set_status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    Update,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from ablate.masking import masked
from ablate.records import KNOWN, Ended, Event, Measured, Progressed, Started, Status
from ablate.store.plans import insert_all, key_of, now
from ablate.store.tables import (
    attempts,
    diagnostics,
    epoch_metrics,
    epochs,
    trial_metrics,
    trials,
)

TRIAL: BindParameter[str] = bindparam("of_trial")
MOMENT: BindParameter[str] = bindparam("moment")
# How often a trial was tried, how many of these attempts are open, and its last stored
# epoch. `trials.epochs_done` may be less, after an attempt that began at an older
# checkpoint.
TRIED = (
    select(func.count(), func.count() - func.count(attempts.c.ended_at))
    .where(attempts.c.trial_hash == TRIAL)
    .add_columns(
        select(func.coalesce(func.max(epochs.c.number), 0))
        .where(epochs.c.trial_hash == TRIAL)
        .scalar_subquery()
    )
)
LOSE_OPEN = (
    update(attempts)
    .where((attempts.c.trial_hash == TRIAL) & attempts.c.ended_at.is_(None))
    .values(status="lost", ended_at=MOMENT)
)
ADD_ATTEMPT = insert(attempts)
END_ATTEMPT = (
    update(attempts)
    .where(attempts.c.id == bindparam("attempt"))
    .values(status=bindparam("word"), ended_at=MOMENT, error=bindparam("reason"))
)
LAST_EPOCH = select(func.max(epochs.c.number), func.sum(epochs.c.seconds)).where(
    epochs.c.trial_hash == TRIAL
)
METRICS_OF_EPOCH = select(epoch_metrics.c.name, epoch_metrics.c.value).where(
    (epoch_metrics.c.trial_hash == TRIAL)
    & (epoch_metrics.c.epoch == bindparam("of_epoch"))
)
FORGET_FINAL = delete(trial_metrics).where(trial_metrics.c.trial_hash == TRIAL)


class EventStore:
    """Stores events, one after another.

    Attributes:
        provenance: the run that the attempts belong to.
    """

    def __init__(self) -> None:
        self.provenance: int | None = None
        # By trial: its open attempt, and its last stored epoch.
        self._open: dict[str, int] = {}
        self._stored: dict[str, int] = {}

    def put(self, connection: Connection, happened: Event) -> None:
        """Stores one event."""
        if isinstance(happened, Started):
            self._started(connection, happened)
        elif isinstance(happened, Progressed):
            self._progressed(connection, happened)
        elif isinstance(happened, Measured):
            _measured(connection, happened)
        else:
            self._ended(connection, happened)

    def _started(self, connection: Connection, happened: Started) -> None:
        trial = {"of_trial": happened.trial}
        before, still_open, stored = connection.execute(TRIED, trial).one()
        if still_open:
            # A worker that died without reporting leaves its attempt open. The next
            # attempt shows that it was lost.
            connection.execute(LOSE_OPEN, {**trial, "moment": now()})
        made = connection.execute(
            ADD_ATTEMPT,
            {
                "trial_hash": happened.trial,
                "provenance_id": self.provenance,
                "number": before + 1,
                "status": Status.RUNNING,
                "first_epoch": happened.epoch,
                "started_at": now(),
                "error": "",
                "weights": happened.weights,
                **vars(happened.place),
            },
        )
        self._open[happened.trial], self._stored[happened.trial] = key_of(made), stored
        _set_status(connection, happened.trial, {"status": Status.RUNNING})

    def _progressed(self, connection: Connection, happened: Progressed) -> None:
        key = happened.trial
        numbers = [epoch.number for epoch in happened.epochs]
        # An attempt that resumed at an older checkpoint reports epochs again; the new
        # values replace the old ones. Only then is a delete needed.
        if key not in self._stored or min(numbers) <= self._stored[key]:
            for table, number in (
                (epochs, epochs.c.number),
                (epoch_metrics, epoch_metrics.c.epoch),
            ):
                same = (table.c.trial_hash == key) & number.in_(numbers)
                connection.execute(delete(table).where(same))
        rows: list[dict[str, Any]] = []
        metrics: list[dict[str, Any]] = []
        for epoch in happened.epochs:
            row = {"trial_hash": key, **vars(epoch)}
            measured = row.pop("metrics")
            rows.append(row)
            for name, value in measured.items():
                metrics.append(
                    {
                        "trial_hash": key,
                        "epoch": epoch.number,
                        "name": name,
                        "value": value,
                    }
                )
        insert_all(connection, epochs, rows)
        insert_all(connection, epoch_metrics, metrics)
        self._stored[key] = max(self._stored.get(key, 0), *numbers)
        _set_status(connection, key, {"epochs_done": max(numbers)})

    def _ended(self, connection: Connection, happened: Ended) -> None:
        attempt = self._open.pop(happened.trial, None)
        self._stored.pop(happened.trial, None)
        interrupted = happened.status == Status.RUNNING
        if attempt is not None:
            connection.execute(
                END_ATTEMPT,
                {
                    "attempt": attempt,
                    "word": "interrupted" if interrupted else happened.status,
                    "moment": now(),
                    "reason": masked(happened.error),
                },
            )
        values: dict[str, Any] = {
            "status": Status.PLANNED if interrupted else happened.status,
            "owner": None,
        }
        if happened.status == Status.COMPLETED:
            last, spent = connection.execute(
                LAST_EPOCH, {"of_trial": happened.trial}
            ).one()
            values["seconds"] = spent
            values["selected_epoch"] = last
            if happened.tested is not None:
                values["selected_epoch"] = happened.tested.epoch
        if not interrupted:
            values["ended_at"] = now()
        changed = _set_status(connection, happened.trial, values)
        if changed and happened.status == Status.COMPLETED:
            _put_final(connection, happened, values["selected_epoch"])


def _measured(connection: Connection, happened: Measured) -> None:
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
        same = (
            (diagnostics.c.trial_hash == happened.trial)
            & (diagnostics.c.epoch == epoch)
            & diagnostics.c.name.in_(names)
        )
        connection.execute(delete(diagnostics).where(same))
    insert_all(connection, diagnostics, rows)


def _set_status(connection: Connection, trial: str, values: Mapping[str, Any]) -> bool:
    """Changes a trial unless its result is known. Returns whether it did.

    A known result stays, even if a late or repeated event says otherwise.
    """
    given = {f"new_{name}": value for name, value in values.items()}
    changed = connection.execute(_setting(tuple(values)), {"of_trial": trial, **given})
    return bool(changed.rowcount)


@cache
def _setting(columns: tuple[str, ...]) -> Update:
    """The statement that sets these columns of a trial without a known result."""
    is_open = (trials.c.hash == TRIAL) & trials.c.status.not_in(KNOWN)
    values: dict[str, BindParameter[Any]] = {
        name: bindparam(f"new_{name}") for name in columns
    }
    return update(trials).where(is_open).values(values)


def _put_final(connection: Connection, happened: Ended, epoch: int) -> None:
    """Stores the final metrics of a completed trial.

    They are those of the selected epoch, or what the test set gave afterwards.
    """
    trial = {"of_trial": happened.trial}
    rows = connection.execute(METRICS_OF_EPOCH, {**trial, "of_epoch": epoch})
    final = {row.name: row.value for row in rows}
    if happened.tested is not None:
        final |= happened.tested.metrics
    connection.execute(FORGET_FINAL, trial)
    insert_all(
        connection,
        trial_metrics,
        [
            {"trial_hash": happened.trial, "name": name, "value": value}
            for name, value in final.items()
        ],
    )
