"""The time, as the columns store it.

The verdicts of a study depend on the order of its declarations and results. A clock can
be set back, and drivers on several machines have clocks that differ. So a result is
never stored with a time before a declaration that is in the store, and a declaration
never with a time before a result that is in the store.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from sqlalchemy import Column, Connection, func, select

from ablate.store.sql_tables import studies, trials

TICK = timedelta(microseconds=1)


def now() -> datetime:
    """Returns the time in UTC without a time zone."""
    return datetime.fromtimestamp(time.time(), UTC).replace(tzinfo=None)


def after_declarations(connection: Connection) -> datetime:
    """Returns the time of a result: now, or that of the latest declaration."""
    latest = _latest(connection, studies.c.created_at)
    return max(now(), latest or datetime.min)


def after_results(connection: Connection) -> datetime:
    """Returns the time of a declaration: now, or just after all that is stored."""
    moments = [now()]
    for column in (studies.c.created_at, trials.c.ended_at):
        latest = _latest(connection, column)
        if latest is not None:
            moments.append(latest + TICK)
    return max(moments)


def _latest(connection: Connection, column: Column[datetime]) -> datetime | None:
    return connection.execute(select(func.max(column))).scalar()
