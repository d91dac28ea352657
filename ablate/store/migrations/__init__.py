"""Alembic migrations of the store. `HEAD` is the newest revision, `FIRST` the oldest one
that can be upgraded.
"""

HEAD = "s0003"
FIRST = "s0003"
