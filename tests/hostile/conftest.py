"""A store with hostile text in every place that holds text, made once."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.report.table import Table, plain
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import TINY
from tests.hostile.texts import evil
from tests.test_review import curve

# A store with a name of another form is refused: names are those of folders of logs.
NAME = "a-name_1.x/b"
LEVEL = evil("level")


def failing(trial: Trial, number: int) -> Epoch:
    """As `curve`, but one trial fails with a message that holds everything."""
    settings = trial.architecture.settings
    if (
        trial.seed == 2
        and settings.get("layout") == "parallel"
        and not settings.get("shortcuts.count")
    ):
        raise RuntimeError(evil("error"))
    return curve(trial, number)


@dataclass(frozen=True)
class Hostile:
    """The store, and the study in it."""

    options: Options
    study: Study

    def query(self, statement: str) -> Table:
        """An answer of the store, as `ablate query` shows it."""
        with Reader(self.options.url) as reader:
            columns, rows = reader.query(statement)
        return plain([dict(zip(columns, row, strict=True)) for row in rows])


def poison(file: str) -> None:
    """Puts hostile text into every place of a store that holds text."""
    changes = {
        "UPDATE studies SET name = ?": NAME,
        "UPDATE studies SET question = ?": evil("question"),
        "UPDATE studies SET expect = ?": evil("expect"),
        "UPDATE studies SET source = ?": evil("source"),
        "UPDATE studies SET file = ?": evil("file"),
        "UPDATE cells SET note = ? WHERE number = 3": evil("note"),
        "UPDATE levels SET text = ? WHERE text = 'parallel'": LEVEL,
        "UPDATE levels SET level = ? WHERE level = '\"parallel\"'": json.dumps(LEVEL),
        "UPDATE attempts SET weights = ?": evil("weights"),
        "UPDATE attempts SET host = ?": evil("host"),
        "UPDATE attempts SET device = ?": evil("device"),
    }
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "UPDATE studies SET document = '# <script>alert(3)</script> $x$ \\input{x}'"
            " || char(10) || document"
        )
        for statement, text in changes.items():
            assert connection.execute(statement, (text,)).rowcount, statement
        for column in (
            "command",
            "ablate",
            "commit",
            "python",
            "torch",
            "timm",
            "ray",
            "platform",
            "cpu",
            "gpus",
        ):
            connection.execute(f'UPDATE provenance SET "{column}" = ?', (evil(column),))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    """A study of six cells and three seeds, one trial failed, with hostile text
    everywhere.
    """
    options = Options(
        runs=tmp_path_factory.mktemp("hostile") / "runs", executor="inline", cpus=2
    )
    declared = space.load(
        TINY.replace("seeds: 2", "seeds: 3").replace("[0, 1]", "[0, 1, 2]"), "tiny.yaml"
    )
    pipeline.run(declared, "tiny.yaml", options, executor=SimulatedExecutor(failing))
    poison(str(Path(options.url)))
    return Hostile(options, Study(NAME, options.url))
