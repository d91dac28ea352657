"""The one writer: studies and plans go in before training, events during training.

What it guarantees: each call is one transaction, so a kill leaves the store as it was
after some call. Of several drivers on one database server, at most one writes about a
trial at a time. `store.events` says what events change.

How: on SQLite a file lock admits one driver (`store.lock`). On a server a driver leases
a trial until a deadline by the clock of the database, and a thread (`Heart`) extends
the leases. Each lease increments the `fence` of the trial. A write is accepted only if
the trial still has the fence of this driver's lease: a driver that was suspended beyond
its deadline cannot overwrite the trial of its successor, even if it believes that it
still has the lease.

What would break it: comparing deadlines with the clock of a driver, or writing about
a trial without `_may_write` in the same transaction.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    delete,
    false,
    func,
    insert,
    select,
    update,
)

from ablate.errors import StoreError
from ablate.identity import text_hash
from ablate.machine.environment import seconds
from ablate.records import (
    COST_REVISION,
    Cell,
    Ended,
    Event,
    Known,
    Plan,
    Provenance,
    Space,
    Status,
)
from ablate.records.plain import to_data
from ablate.store import study_changes
from ablate.store.database import (
    clock,
    exclude_drivers,
    fold_log,
    open_writer,
    patient,
    sqlite_file,
    write_transaction,
)
from ablate.store.declarations import added, declare
from ablate.store.events import EventStore, put_reported
from ablate.store.lock import WriterLock
from ablate.store.merge import Merged, merge
from ablate.store.moment import now
from ablate.store.plans import (
    Rest,
    key_of,
    put_cells,
    put_comparisons,
    put_sources,
    put_study,
)
from ablate.store.sql_tables import (
    all_cell_trials,
    attempts,
    cells,
    drivers,
    provenance,
    stores,
    studies,
    trials,
)
from ablate.store.wide_views import put_declared

# A driver that does not extend its leases for this long loses its trials to others.
LEASE_SECONDS = seconds("ABLATE_LEASE_SECONDS", 60)
Claim = Literal["granted", "taken", "known"]


class Heart:
    """Extends the leases four times per lease period, in a thread of its own."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat, self._ended = beat, threading.Event()
        self._thread = threading.Thread(target=self._live, name="heart", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        while not self._ended.wait(LEASE_SECONDS / 4):
            # The next beat makes up for one that fails. If none gets through, the lease
            # expires.
            with contextlib.suppress(Exception):
                self._beat()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


class Writer:
    """Writes to one store. Only one writer can be open on a SQLite file at a time.

    Raises:
        StoreError: the store cannot be opened, or another process is writing to it.
    """

    def __init__(self, url: str) -> None:
        self._lock = WriterLock(sqlite_file(url))
        try:
            self._engine = open_writer(url)
        except BaseException:
            self._lock.release()
            raise
        self._events = EventStore()
        self._owner = uuid.uuid4().hex
        # By trial: the fence of this driver's latest lease.
        self._fences = dict[str, int]()
        self._heart: Heart | None = None

    @property
    def shared(self) -> bool:
        """Whether several drivers may write at once."""
        return self._engine.dialect.name != "sqlite"

    def close(self) -> None:
        if self._heart is not None:
            self._heart.stop()
        # Releasing the leases only saves other drivers the wait; if the database cannot
        # be reached, they expire.
        with contextlib.suppress(StoreError):
            if self._heart is not None:
                with write_transaction(self._engine) as connection:
                    connection.execute(
                        update(trials)
                        .where(trials.c.owner == self._owner)
                        .values(owner=None)
                    )
                    connection.execute(
                        delete(drivers).where(drivers.c.id == self._owner)
                    )
        self._engine.dispose()
        self._lock.release()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @patient
    def store_id(self) -> str:
        """The ID of the store, drawn when the store was made.

        A checkpoint belongs to one store, so results of a deleted store cannot reappear
        unnoticed.
        """
        with write_transaction(self._engine) as connection:
            exclude_drivers(connection)
            identity = connection.execute(select(stores.c.id)).scalar()
            if identity is None:
                identity = uuid.uuid4().hex[:12]
                connection.execute(insert(stores).values(id=identity, created_at=now()))
            return str(identity)

    @patient
    def register(
        self,
        plan: Plan,
        file: str,
        cost_revision: int,
        again: Sequence[Status] = (Status.FAILED,),
        *,
        drop_others: bool = True,
        full: Plan | None = None,
    ) -> int:
        """Stores a study and its plan.

        If results of an earlier declaration could be seen, the study becomes a new
        generation of it. Otherwise it replaces the earlier plan. No trial is removed.

        Args:
            full: the plan with all seeds that its cells may get, if these are more.
            again: states of trials that should be trained again.
            drop_others: whether stored cells that the plan lacks are left over from an
                earlier declaration, and so are removed. If not, another driver may have
                added them to the same search.

        Returns:
            The study's number.

        Raises:
            StoreError: another driver is working on a study of this name with another
                declaration.
        """
        space = plan.space
        with write_transaction(self._engine) as connection:
            exclude_drivers(connection)
            if self.shared:
                self._refuse_another_declaration(connection, space)
            rest: Rest = "remove" if drop_others else "keep unless changed"
            study = _put_plan(
                connection, plan, full or plan, file, cost_revision, again, rest
            )
            if self.shared:
                self._sign_in(connection, study, space)
            put_sources(connection)
        fold_log(self._engine)
        if self.shared and self._heart is None:
            self._heart = Heart(self._beat)
        return study

    @patient
    def report(
        self,
        plan: Plan,
        file: str,
        results: Mapping[str, Known],
        source: Provenance,
    ) -> int:
        """Stores a study that was trained elsewhere, with its results, at once.

        Args:
            file: what the results were read from.
            results: by the hash of the trial.
            source: what stores them.

        Returns:
            The study's number.

        Raises:
            StoreError: the store has a study of this name that was trained here.
        """
        with write_transaction(self._engine) as connection:
            exclude_drivers(connection)
            study = _put_plan(connection, plan, plan, file, COST_REVISION, (), "remove")
            put_reported(connection, results)
            connection.execute(
                insert(provenance).values(
                    study_id=study,
                    document=plan.space.document,
                    started_at=now(),
                    **asdict(source),
                )
            )
            connection.execute(
                update(studies).where(studies.c.id == study).values(finished_at=now())
            )
        fold_log(self._engine)
        return study

    @patient
    def extend(
        self,
        study: int,
        new: Sequence[Cell],
        cost_revision: int,
        again: Sequence[Status] = (Status.FAILED,),
        begun: Collection[str] = (),
        *,
        searched: Space | None = None,
    ) -> None:
        """Adds cells, or seeds of cells, to a study that is running.

        Trials that this run has `begun` keep their state.

        Args:
            searched: the space, if a search adds the cells.
        """
        with write_transaction(self._engine) as connection:
            exclude_drivers(connection)
            compared = None
            if searched is not None:
                compared = added(connection, searched, study, new)
            put_cells(
                connection,
                study,
                new,
                cost_revision,
                again,
                "keep",
                begun,
                fresh=searched.confirmation_seeds if searched is not None else (),
                compared=compared,
            )

    def merge(self, theirs: Connection, names: Sequence[str]) -> Merged:
        """Imports studies from another store; see `ablate.store.merge`.

        Args:
            theirs: the other store, which `ablate.store.other_store` has checked.

        Raises:
            StoreError: both have a study of one name with different declarations.
        """
        with write_transaction(self._engine) as connection:
            exclude_drivers(connection)
            merged = merge(theirs, connection, names)
        fold_log(self._engine)
        return merged

    def abandon(self, study: str, row: int | None, *, undo: bool = False) -> int:
        """Says of a study's failed trials that no run is to try them again.

        Args:
            row: only those of this row.
            undo: take it back: the next run tries them again.

        Returns:
            how many trials there are.
        """
        before, after = Status.FAILED, Status.ABANDONED
        if undo:
            before, after = after, before
        hashes = (
            select(all_cell_trials.c.trial_hash)
            .join(cells, cells.c.id == all_cell_trials.c.cell_id)
            .join(studies, studies.c.id == cells.c.study_id)
            .where(studies.c.name == study)
        )
        if row is not None:
            hashes = hashes.where(cells.c.number == row)
        with write_transaction(self._engine) as connection:
            changed = connection.execute(
                update(trials)
                .where(trials.c.hash.in_(hashes), trials.c.status == before)
                .values(status=after)
            )
            number = changed.rowcount
            if number and undo:
                connection.execute(
                    update(studies)
                    .where(studies.c.name == study)
                    .values(finished_at=None)
                )
        fold_log(self._engine)
        return number

    def rename(self, old: str, new: str) -> dict[str, str]:
        """Gives a study and its generations another name; see `store.study_changes`."""
        with write_transaction(self._engine) as connection:
            exclude_drivers(connection)
            renamed = study_changes.rename(connection, old, new)
        fold_log(self._engine)
        return renamed

    def remove(self, study: str) -> int:
        """Removes a study without results; see `store.study_changes`."""
        with write_transaction(self._engine) as connection:
            exclude_drivers(connection)
            number = study_changes.remove(connection, study)
        fold_log(self._engine)
        return number

    @patient
    def trim(self, study: int, count: int) -> None:
        """Removes the cells of an earlier search beyond the first `count`."""
        with write_transaction(self._engine) as connection:
            connection.execute(
                delete(cells).where(cells.c.study_id == study, cells.c.number >= count)
            )

    def _refuse_another_declaration(self, connection: Connection, space: Space) -> None:
        others = (
            select(func.count())
            .select_from(drivers)
            .join(studies, studies.c.id == drivers.c.study_id)
            .where(
                studies.c.name == space.name,
                drivers.c.id != self._owner,
                drivers.c.digest != _digest(space),
            )
            .where(drivers.c.leased_until > clock(connection))
        )
        if connection.execute(others).scalar_one():
            raise StoreError(
                f"another driver is training study '{space.name}' with another"
                " declaration; wait until it ends, or write another `name:` in your"
                " file"
            )

    def _sign_in(self, connection: Connection, study: int, space: Space) -> None:
        """Records that this driver is working on the study."""
        until = clock(connection) + LEASE_SECONDS
        connection.execute(
            delete(drivers).where(
                (drivers.c.id == self._owner)
                | (drivers.c.leased_until < clock(connection))
            )
        )
        stored_ids = {
            "id": self._owner,
            "study_id": study,
            "digest": _digest(space),
            "leased_until": until,
        }
        connection.execute(insert(drivers).values(**stored_ids))

    @patient
    def begin(self, study: int, document: str, source: Provenance) -> None:
        """Stores the provenance of this run, and cleans up after killed drivers.

        Their open attempts become lost.
        """
        with write_transaction(self._engine) as connection:
            left = trials.c.status.in_(
                (Status.RUNNING, Status.PLANNED)
            ) & ~self._elsewhere(connection)
            free = select(trials.c.hash).where(left)
            dead = attempts.c.ended_at.is_(None) & attempts.c.trial_hash.in_(free)
            connection.execute(
                update(attempts).where(dead).values(status="lost", ended_at=now())
            )
            connection.execute(
                update(trials).where(left).values(status=Status.PLANNED, owner=None)
            )
            made = connection.execute(
                insert(provenance).values(
                    study_id=study,
                    document=document,
                    started_at=now(),
                    **asdict(source),
                )
            )
            self._events.provenance = key_of(made)

    @patient
    def describe(self, study: int, space: Space) -> None:
        """Stores a space again, of which only what describes it has changed."""
        with write_transaction(self._engine) as connection:
            connection.execute(
                update(studies)
                .where(studies.c.id == study)
                .values(space=to_data(space))
            )

    def finish(self, study: int) -> None:
        """Records that nothing of a study is left to do."""
        with write_transaction(self._engine) as connection:
            connection.execute(
                update(studies).where(studies.c.id == study).values(finished_at=now())
            )

    def _elsewhere(self, connection: Connection) -> ColumnElement[bool]:
        """Whether a trial is leased to another driver that may be alive.

        On SQLite none is: this driver holds the lock of the store.
        """
        if not self.shared:
            return false()
        return (
            trials.c.owner.is_not(None)
            & (trials.c.owner != self._owner)
            & (trials.c.leased_until > clock(connection))
        )

    def claim(self, trial: str, results: Sequence[Status]) -> Claim:
        """Leases a trial to this driver.

        Returns "known" if the trial has a result already, and "taken" if another driver
        holds it.

        Args:
            results: states that count as a result.
        """
        if not self.shared:
            # The file lock excludes other writers, so no result can have arrived since
            # the trial was looked up.
            return "granted"
        return self._lease(trial, results)

    @patient
    def _lease(self, trial: str, results: Sequence[Status]) -> Claim:
        with write_transaction(self._engine) as connection:
            query = select(
                trials.c.status, trials.c.fence, self._elsewhere(connection)
            ).where(trials.c.hash == trial)
            status, fence, elsewhere = connection.execute(
                # The row stays locked until the end of the transaction: two drivers
                # that claim at once must not both see the same fence.
                query.with_for_update()
            ).one()
            if status in results:
                return "known"
            if elsewhere:
                return "taken"
            until = clock(connection) + LEASE_SECONDS
            leased = {"owner": self._owner, "fence": fence + 1, "leased_until": until}
            connection.execute(
                update(trials).where(trials.c.hash == trial).values(**leased)
            )
            self._fences[trial] = fence + 1
        return "granted"

    def _beat(self) -> None:
        """Extends all leases of this driver."""
        # By the clock of the database: those of the drivers' machines may differ.
        with write_transaction(self._engine) as connection:
            until = clock(connection) + LEASE_SECONDS
            connection.execute(
                update(trials)
                .where(trials.c.owner == self._owner)
                .values(leased_until=until)
            )
            connection.execute(
                update(drivers)
                .where(drivers.c.id == self._owner)
                .values(leased_until=until)
            )

    def write(self, happened: Event) -> bool:
        """Stores one event of an executor.

        Returns:
            Whether it was stored. It is not if another driver has taken the trial over,
                because this one did not extend its lease in time.

        Raises:
            StoreError: the store has gone, or cannot be written to.
        """

        self._lock.check_place()

        @patient
        def put() -> bool:
            with (
                self._events.undone_if_it_fails(happened.trial),
                write_transaction(self._engine) as connection,
            ):
                if not self._may_write(connection, happened.trial):
                    return False
                self._events.put(connection, happened)
            return True

        is_stored = put()
        if isinstance(happened, Ended):
            fold_log(self._engine)
        return is_stored

    def _may_write(self, connection: Connection, trial: str) -> bool:
        if not self.shared:
            return True
        row = (
            select(trials.c.owner, trials.c.fence)
            .where(trials.c.hash == trial)
            .with_for_update()
        )
        owner, fence = connection.execute(row).one()
        # A trial without a fence here was never leased by this driver (a trial that is
        # only diagnosed): it may be written if no driver owns it.
        return bool(
            fence == self._fences[trial] if trial in self._fences else owner is None
        )


def _put_plan(
    connection: Connection,
    plan: Plan,
    full: Plan,
    file: str,
    cost_revision: int,
    again: Sequence[Status],
    rest: Rest,
) -> int:
    """Stores a study that is declared, with its cells. Returns its number.

    Args:
        full: the plan with all seeds that its cells may get.
    """
    declaration = declare(connection, full)
    study = put_study(connection, plan.space, file, declaration)
    put_cells(
        connection,
        study,
        plan.cells,
        cost_revision,
        again,
        rest,
        fresh=full.space.confirmation_seeds,
        compared=declaration.before.rows,
    )
    if not declaration.is_same:
        put_comparisons(connection, study, declaration.before.rows)
    put_declared(connection, study, plan.space)
    return study


def _digest(space: Space) -> str:
    """A hash of what is declared. The number of looks may come from an option."""
    return text_hash(f"{space.document}\n{space.seeds.looks}")
