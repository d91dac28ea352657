"""What the events of trials change in the store.

What it guarantees: reporting an epoch or a measurement again replaces it, and an event
never changes a known result.

How: each function runs in a transaction of the writer. Statements are built once, with
parameters: to build one takes longer than to run it.

What would break it: changing a trial without the condition in `_set_status`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    Integer,
    Update,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from ablate.records import (
    WITH_RESULT,
    Ended,
    Event,
    Known,
    Measured,
    Progressed,
    Started,
    Status,
)
from ablate.store.moment import after_declarations, now
from ablate.store.plans import existing, insert_all, key_of
from ablate.store.sql_tables import (
    attempts,
    correct_images,
    diagnostics,
    epoch_metrics,
    epochs,
    trial_metrics,
    trials,
)
from ablate.text.masking import masked

TRIAL: BindParameter[str] = bindparam("of_trial")
# The most characters of an error that are stored.
LONGEST_ERROR = 20_000
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
LAST_EPOCH = (
    select(func.max(epochs.c.number))
    .where(epochs.c.trial_hash == TRIAL)
    .scalar_subquery()
)
SECONDS = (
    select(func.sum(epochs.c.seconds))
    .where(epochs.c.trial_hash == TRIAL)
    .scalar_subquery()
)
FORGET_FINAL = delete(trial_metrics).where(trial_metrics.c.trial_hash == TRIAL)
# The final metrics of a trial are those of its selected epoch.
ADD_FINAL = insert(trial_metrics).from_select(
    ["trial_hash", "name", "value"],
    select(epoch_metrics.c.trial_hash, epoch_metrics.c.name, epoch_metrics.c.value)
    .join(trials, trials.c.hash == epoch_metrics.c.trial_hash)
    .where(
        epoch_metrics.c.trial_hash == TRIAL,
        epoch_metrics.c.epoch == trials.c.selected_epoch,
    ),
)
FORGET_IMAGES = delete(correct_images).where(correct_images.c.trial_hash == TRIAL)
FORGET_ONE_FINAL = delete(trial_metrics).where(
    trial_metrics.c.trial_hash == TRIAL,
    trial_metrics.c.name == bindparam("of_name"),
)


@dataclass
class _Attempt:
    """An open attempt of this run.

    Attributes:
        key: its key in the store.
        first: whether the trial was never tried before.
        stored: the last epoch of the trial that may be stored.
    """

    key: int
    first: bool
    stored: int


class EventStore:
    """Stores events, one after another.

    Attributes:
        provenance: the run that the attempts belong to.
    """

    def __init__(self) -> None:
        self.provenance: int | None = None
        # By trial.
        self._open: dict[str, _Attempt] = {}

    @contextmanager
    def undone_if_it_fails(self, trial: str) -> Iterator[None]:
        """Forgets what a transaction has changed here, if it fails.

        The store may have it all the same: a server that restarts can commit and not
        answer. So the epochs that follow replace those that may be stored.
        """
        attempt = self._open.get(trial)
        before = None if attempt is None else replace(attempt)
        try:
            yield
        except BaseException:
            self._open.pop(trial, None)
            if before is not None:
                self._open[trial] = replace(before, stored=sys.maxsize)
            raise

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
        self._open[happened.trial] = _Attempt(
            key=key_of(made), first=not before, stored=stored
        )
        _set_status(connection, happened.trial, {"status": Status.RUNNING})

    def _progressed(self, connection: Connection, happened: Progressed) -> None:
        key = happened.trial
        numbers = [epoch.number for epoch in happened.epochs]
        # An attempt that resumed at an older checkpoint reports epochs again; the new
        # values replace the old ones. Only then is a delete needed.
        attempt = self._open.get(key)
        if attempt is None or min(numbers) <= attempt.stored:
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
        if attempt is not None:
            attempt.stored = max(attempt.stored, *numbers)
        _set_status(connection, key, {"epochs_done": max(numbers)})

    def _ended(self, connection: Connection, happened: Ended) -> None:
        attempt = self._open.pop(happened.trial, None)
        interrupted = happened.status == Status.RUNNING
        if attempt is not None:
            connection.execute(
                END_ATTEMPT,
                {
                    "attempt": attempt.key,
                    "word": "interrupted" if interrupted else happened.status,
                    "moment": now(),
                    "reason": masked(_capped(happened.error)),
                },
            )
        values: dict[str, Any] = {
            "status": Status.PLANNED if interrupted else happened.status,
            "owner": None,
        }
        if not interrupted:
            values["ended_at"] = after_declarations(connection)
        if happened.status != Status.COMPLETED:
            _set_status(connection, happened.trial, values)
        elif _complete(connection, happened, values):
            if attempt is None or not attempt.first:
                connection.execute(FORGET_FINAL, {"of_trial": happened.trial})
            _put_final(connection, happened)
            _put_correct_images(connection, happened)


def put_reported(connection: Connection, results: Mapping[str, Known]) -> None:
    """Stores the results of trials that were trained elsewhere.

    Nothing is known of their attempts and epochs.

    Args:
        results: by the hash of the trial; those that are stored already stay.
    """
    planned = existing(connection, trials.c.hash, list(results), trials.c.status)
    new = [trial for trial in results if planned[trial] == Status.PLANNED]
    moment = after_declarations(connection)
    for trial in new:
        result = results[trial]
        is_complete = result.status == Status.COMPLETED
        values = {
            "status": result.status,
            "ended_at": moment,
            "epochs_done": int(is_complete),
            "selected_epoch": 1 if is_complete else None,
        }
        _set_status(connection, trial, values)
    finals = (
        {"trial_hash": trial, "name": name, "value": value}
        for trial in new
        for name, value in results[trial].final.items()
    )
    insert_all(connection, trial_metrics, finals)


def _capped(error: str) -> str:
    """Returns the beginning and the end of an error that is very long."""
    if len(error) <= LONGEST_ERROR:
        return error
    half = LONGEST_ERROR // 2
    left_out = len(error) - 2 * half
    return f"{error[:half]}\n... {left_out:,} characters left out ...\n{error[-half:]}"


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


def _complete(
    connection: Connection, happened: Ended, values: Mapping[str, Any]
) -> bool:
    """Completes a trial unless its result is known. Returns whether it did.

    The selected epoch is the tested one, or the last one.
    """
    given = {f"new_{name}": value for name, value in values.items()}
    tested = None if happened.tested is None else happened.tested.epoch
    changed = connection.execute(
        _completing(tuple(values)),
        {"of_trial": happened.trial, "tested_epoch": tested, **given},
    )
    return bool(changed.rowcount)


@cache
def _setting(columns: tuple[str, ...]) -> Update:
    """The statement that sets these columns of a trial without a known result."""
    # Not `not_in`: SQLAlchemy would write its list into the statement each time.
    is_open = (trials.c.status != status for status in WITH_RESULT)
    values: dict[str, BindParameter[Any]] = {
        name: bindparam(f"new_{name}") for name in columns
    }
    return update(trials).where(trials.c.hash == TRIAL, *is_open).values(values)


@cache
def _completing(columns: tuple[str, ...]) -> Update:
    """The same statement, which also sets the time spent and the selected epoch."""
    tested = bindparam("tested_epoch", type_=Integer)
    return _setting(columns).values(
        seconds=SECONDS, selected_epoch=func.coalesce(tested, LAST_EPOCH)
    )


def _put_correct_images(connection: Connection, happened: Ended) -> None:
    """Stores which test images a completed trial classifies correctly, if it says so."""
    trial = happened.trial
    if happened.correct is None:
        return
    connection.execute(FORGET_IMAGES, {"of_trial": trial})
    connection.execute(
        insert(correct_images),
        {
            "trial_hash": trial,
            "images": happened.correct.images,
            "bits": happened.correct.bits,
        },
    )


def _put_final(connection: Connection, happened: Ended) -> None:
    """Stores the final metrics of a completed trial.

    They are those of the selected epoch, or what the test set gave afterwards.
    """
    trial = happened.trial
    connection.execute(ADD_FINAL, {"of_trial": trial})
    tested = happened.tested.metrics if happened.tested is not None else {}
    if not tested:
        return
    connection.execute(
        FORGET_ONE_FINAL, [{"of_trial": trial, "of_name": name} for name in tested]
    )
    insert_all(
        connection,
        trial_metrics,
        [
            {"trial_hash": trial, "name": name, "value": value}
            for name, value in tested.items()
        ],
    )
