"""Takes a store back to the tables of older versions."""

from __future__ import annotations

import sqlite3

COLUMNS = ("train_loss", "loss", "top1", "top5")


def drop_views(connection: sqlite3.Connection) -> None:
    views = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'view'"
    ).fetchall()
    for (view,) in views:
        connection.execute(f'DROP VIEW "{view}"')


def to_revision_8(connection: sqlite3.Connection) -> None:
    """Metrics are columns again, with the values that are stored."""
    drop_views(connection)
    connection.execute("DROP TABLE correct_images")
    connection.execute("DROP TABLE known_trials")
    connection.execute("DROP TABLE declarations")
    for name in COLUMNS:
        connection.execute(f"ALTER TABLE trials ADD COLUMN {name} FLOAT")
        connection.execute(f"ALTER TABLE epochs ADD COLUMN {name} FLOAT")
        connection.execute(
            f"UPDATE trials SET {name} = (SELECT value FROM trial_metrics m WHERE"
            f" m.trial_hash = hash AND m.name = '{name}')"
        )
        connection.execute(
            f"UPDATE epochs SET {name} = (SELECT value FROM epoch_metrics m WHERE"
            " m.trial_hash = epochs.trial_hash AND m.epoch = epochs.number AND"
            f" m.name = '{name}')"
        )
    for name in ("code", "vary"):
        connection.execute(f"ALTER TABLE trials DROP COLUMN {name}")
    for name in ("code", "head", "image_width"):
        connection.execute(f"ALTER TABLE architectures DROP COLUMN {name}")
    connection.execute("DROP TABLE epoch_metrics")
    connection.execute("DROP TABLE trial_metrics")
    connection.execute("UPDATE alembic_version SET version_num = '0008'")
