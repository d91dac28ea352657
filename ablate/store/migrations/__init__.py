"""Alembic migrations of the store. `HEAD` is the newest revision."""

HEAD = "0014"
