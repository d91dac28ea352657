"""The time, as the columns store it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> datetime:
    """Returns the time in UTC without a time zone."""
    return datetime.fromtimestamp(time.time(), UTC).replace(tzinfo=None)
