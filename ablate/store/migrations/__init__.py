"""Alembic migrations of the store. `HEAD` is the newest revision.

A store of revision `OLDEST` is converted by `store.from_revision_14` to revision `FIRST`;
one of an earlier revision cannot be opened.
"""

HEAD = "r0004"
FIRST = "r0001"
OLDEST = "0014"
