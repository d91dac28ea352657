"""Stores for cases that read one: made once, as bytes."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from tests.conftest import TINY


@cache
def _whole() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        options = Options(runs=Path(folder), executor="inline", cpus=1)
        pipeline.run(
            space.load(TINY, "tiny.yaml"),
            "tiny.yaml",
            options,
            None,
            SimulatedExecutor(),
        )
        # Readers of a database in WAL mode leave its two files beside it.
        connection = sqlite3.connect(Path(folder, "ablate.db"))
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        return Path(folder, "ablate.db").read_bytes()


def store(path: Path) -> None:
    """A store with the study `tiny`, all trials of which are completed."""
    path.write_bytes(_whole())


def without(*statements: str) -> Callable[[Path], None]:
    """Makes the same store after some statements."""

    def make(path: Path) -> None:
        store(path)
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return make
