"""A store that somebody else has made: whatever stands in it, a command ends in time,
with its answer or with one short message.

Each case is a good store with one change. A store that is refused on import leaves
nothing behind.
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import Table, create_engine, text

from ablate.errors import DamagedStore
from ablate.store.checked import JSON
from ablate.store.reader import Reader
from ablate.store.sql_tables import metadata
from ablate.store.writer import Writer
from tests.attack.case import MOST_BYTES, MOST_SECONDS, Case, Outcome
from tests.attack.runner import Runner
from tests.attack.stores import store
from tests.conftest import Say
from tests.store.postgres import postgres

THERE = "there.db"
VERBS = {
    "import": ("import", THERE, "--store", "here.db"),
    "table": ("table", "tiny", "--store", THERE),
    "review": ("review", "tiny", "--store", THERE),
}
MORE_VERBS = {
    "status": ("status", "--store", THERE),
    "trials": ("status", "tiny", "--store", THERE),
    "effects": ("effects", "tiny", "--store", THERE),
    "factors": ("effects", "tiny", "--of", "factors", "--store", THERE),
    "pareto": ("pareto", "tiny", "--store", THERE),
    "export": ("export", "tiny", "--to", "x.csv", "--store", THERE),
    "query": ("query", "SELECT 1 AS x", "--store", THERE),
}
ENDLESS = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT * FROM c"
)
# A long message cannot be read.
MOST_MESSAGE = 2_000
DEEP = "[" * 100_000 + "]" * 100_000
WRONG: tuple[object, ...] = (
    None,
    "nope",
    b"\xff\xfe",
    -1,
    10**18,
    float("inf"),
    "9999-12-31 23:59:59.999999",
    DEEP,
    "x" * 5_000_000,
    "\x1b[31m\n\u202e",
)
WRONG_JSON: tuple[object, ...] = (
    "{",
    "3",
    "null",
    "[]",
    "{}",
    "[[1]]",
    '[{"a": null}]',
    '{"a": 1}',
    '{"metrics": 3}',
    '{"a": NaN}',
    '{"epochs": "x"}',
    "1e999",
)


# Rows of tables that the small study leaves empty.
MORE_ROWS = (
    "INSERT INTO correct_images SELECT hash, 8, x'ff' FROM trials",
    (
        "INSERT INTO diagnostics SELECT hash, 3, 'rank', 0, NULL, '[1.0, 2.0]' FROM"
        " trials"
    ),
    "INSERT INTO drivers VALUES ('d', 1, 'x', 1.0)",
    "INSERT INTO stores SELECT 'abcdef', created_at FROM studies WHERE NOT EXISTS"
    " (SELECT 1 FROM stores)",
)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        yield connection
        connection.commit()


def changed(*statements: str) -> Callable[[Path], None]:
    """Makes a good store after some statements."""

    def make(path: Path) -> None:
        store(path)
        with opened(path) as connection:
            for statement in (*MORE_ROWS, *statements):
                connection.execute(statement)

    return make


def with_value(
    table: str, column: str, wrong: object, rows: str = "last"
) -> Callable[[Path], None]:
    """Makes a store with a value in one row or all, whatever the schema allows."""
    one = f'WHERE rowid = (SELECT MAX(rowid) FROM "{table}")'

    def make(path: Path) -> None:
        changed()(path)
        with opened(path) as connection:
            (usual,) = connection.execute(
                "SELECT sql FROM sqlite_master WHERE name = ?", (table,)
            ).fetchone()
        for sql in (usual.replace("NOT NULL", ""), usual):
            with opened(path) as connection:
                connection.execute(
                    "UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, table)
                )
            if sql == usual:
                return
            # SQLite refuses what is no whole number as a key of a row.
            with opened(path) as connection, suppress(sqlite3.IntegrityError):
                connection.execute(
                    f'UPDATE OR REPLACE "{table}" SET "{column}" = ?'
                    f" {one if rows == 'last' else ''}",
                    (wrong,),
                )

    return make


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("hostile"))
    yield made
    made.close()


def faults(outcome: Outcome, *, leaves: bool = True) -> list[str]:
    """What a command does that no store may make it do."""
    message = outcome.stderr
    broken = {
        outcome.killed: bool(outcome.killed),
        "a traceback": "Traceback" in message,
        f"exit code {outcome.code}": outcome.code not in (0, 1, 2),
        f"{len(message)} characters": len(message) > MOST_MESSAGE,
        "a control sequence": "\x1b[31m" in message + outcome.stdout,
        "a statement of SQL": "[SQL" in message or "sqlalche.me" in message,
        f"{outcome.seconds:.1f} s": outcome.seconds > MOST_SECONDS,
        f"{outcome.peak / 1e6:.0f} MB": outcome.peak > MOST_BYTES,
        f"left behind: {outcome.left}": not leaves
        and outcome.code == 2
        and any("here.db" in file for file in outcome.left),
    }
    return [fault for fault, is_there in broken.items() if is_there]


def failures(
    runner: Runner,
    name: str,
    make: Callable[[Path], None],
    verbs: dict[str, tuple[str, ...]],
) -> list[str]:
    """What commands do wrong with a store."""
    said = []
    for verb, argv in verbs.items():
        outcome = runner(Case(name=name, says="", argv=argv, files={THERE: make}))
        said += [
            f"{verb}: {name}: {fault}: {outcome.stderr[-300:]}"
            for fault in faults(outcome, leaves=verb != "import")
        ]
    return said


EVERY_COMMAND = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"


@pytest.mark.proof
@pytest.mark.parametrize("table", metadata.tables.values(), ids=str)
def test_wrong_values(table: Table, runner: Runner) -> None:
    """One command for each value, in turn; all of them with HYPOTHESIS_PROFILE=fuzz."""
    said = []
    turns = itertools.cycle(VERBS.items())
    for column in table.columns:
        is_json = isinstance(column.type, JSON)
        for wrong in (*WRONG, *(WRONG_JSON if is_json else ())):
            name = f"{column} = {str(wrong)[:30]!r}"
            make = with_value(table.name, column.name, wrong)
            verbs = VERBS if EVERY_COMMAND else dict([next(turns)])
            said += failures(runner, name, make, verbs)
    assert said == [], "\n".join([f"{len(said)} faults", *said[:100]])


# What stands in the place of a table.
PLACES = {
    "an endless view": f'CREATE VIEW "{{0}}" AS {ENDLESS}',
    "a view of the table": 'CREATE VIEW "{0}" AS SELECT * FROM "old"',
    "a virtual table": 'CREATE VIRTUAL TABLE "{0}" USING fts5(x)',
    "a table of another kind": 'CREATE TABLE "{0}" (x)',
    "nothing": "SELECT 1",
}


@pytest.mark.proof
@pytest.mark.parametrize("place", PLACES)
def test_no_table(place: str, runner: Runner) -> None:
    said = []
    for table in [*metadata.tables, "alembic_version"]:
        make = changed(
            "PRAGMA foreign_keys = OFF",
            "PRAGMA legacy_alter_table = ON",
            f'ALTER TABLE "{table}" RENAME TO old',
            PLACES[place].format(table),
        )
        verbs = {"import": VERBS["import"], "table": VERBS["table"]}
        said += failures(runner, f"{table} is {place}", make, verbs)
    assert said == [], "\n".join([f"{len(said)} faults", *said[:100]])


OTHERS = {
    "version of millions of digits": (
        f"UPDATE alembic_version SET version_num = '{'9' * 3_000_000}'",
    ),
    "no version": ("DELETE FROM alembic_version",),
    "a version that is a blob": ("UPDATE alembic_version SET version_num = x'ff'",),
    "a trigger": (
        ("CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM studies; END"),
    ),
    "a computed column": (
        "ALTER TABLE studies RENAME COLUMN question TO q",
        "ALTER TABLE studies ADD COLUMN question TEXT AS (upper(q))",
    ),
    "no column": ("ALTER TABLE trials DROP COLUMN seconds",),
    "no row 0": ("DELETE FROM cells WHERE number = 0",),
    "no cells": ("DELETE FROM cells",),
    "no trials": ("DELETE FROM trials",),
    "no architectures": ("DELETE FROM architectures",),
    "no provenance": ("DELETE FROM provenance",),
    "no levels": ("DELETE FROM levels",),
    "no seeds": ("DELETE FROM cell_trials",),
    "no metrics": ("DELETE FROM trial_metrics",),
    "a row that repeats none": ("UPDATE cells SET same_as = 99",),
    "a row that repeats itself": ("UPDATE cells SET same_as = number",),
    "rows that repeat one another": ("UPDATE cells SET same_as = 3 - number",),
    "a control of none": ("UPDATE cells SET control_of = 99, role = 'control'",),
    "rows with one number": (
        "DROP TABLE cells",
        (
            "CREATE TABLE cells (id INTEGER PRIMARY KEY, study_id INT NOT NULL, number"
            " INT NOT NULL, role TEXT NOT NULL, architecture_hash TEXT, same_as INT,"
            " note TEXT NOT NULL, control_of INT, digest TEXT NOT NULL)"
        ),
    ),
    "an endless view of the study": (
        "DROP VIEW results_tiny",
        f"CREATE VIEW results_tiny AS {ENDLESS}",
    ),
    "no view of the study": ("DROP VIEW results_tiny",),
    "a view of another name": ("UPDATE studies SET results_view = 'x\"; --'",),
    "another metric": ("UPDATE studies SET metric = 'loss2'",),
    "another direction": ("UPDATE studies SET direction = 'up'",),
    "trials of infinite time": ("UPDATE trials SET seconds = 9e999",),
    "metrics of infinite size": ("UPDATE trial_metrics SET value = -9e999",),
    "epochs of infinite size": ("UPDATE epoch_metrics SET value = 9e999",),
    "times of the past": (
        "UPDATE trials SET ended_at = '0001-01-01 00:00:00.000000'",
        "UPDATE studies SET created_at = '0001-01-01 00:00:00.000000'",
    ),
    "a row without a key": ("UPDATE cells SET key = '', repeats = -3",),
    "rows of one key": ("UPDATE cells SET key = 'a'",),
    "a group of no study": ("UPDATE studies SET group_id = 99, generation = -3",),
    "a text that is not UTF-8": (
        "UPDATE studies SET question = CAST(x'ff41' AS TEXT)",
    ),
    "half of a character": ("UPDATE studies SET question = CAST(x'eda080' AS TEXT)",),
    "an error of 11 MB": ("UPDATE attempts SET error = hex(zeroblob(5500000))",),
    "dangling trials": ("UPDATE cell_trials SET trial_hash = 'none'",),
    "dangling architectures": ("UPDATE trials SET architecture_hash = 'none'",),
    "dangling studies": ("UPDATE provenance SET study_id = 99",),
    "seeds of 63 bits": (
        "UPDATE trials SET seed = 9223372036854775807 - seed",
        "UPDATE cell_trials SET seed = 9223372036854775807 - seed",
    ),
}
# Changes of the space of the study, and wrong values at their end.
SPACES = {
    "seeds": ([], "x", [None], [10**30], ["a"], {}),
    "factors": ([], {}, {"a": None}, {"a": []}, {"layout": [[1]]}, None),
    "metrics": (
        [1],
        [{}],
        [{"name": "top1"}],
        "x",
        [{"name": "top1", "digits": 10**9}],
    ),
    "looks": (1, {}, {"first": 0, "most": 10**12, "step": 1}, {"first": 2}),
    "strategy": ({}, {"confirm": 10**12}, {"name": "nope"}, [], "x"),
    "limits": ([1], [{}], {}, [{"text": "x", "left": [], "relation": "<", "right": 1}]),
    "baseline": ({}, None, [], {"nope": 1}),
    "labels": ([], {"a": 1}, "x"),
    "primary": ([{}], "x", [[]], [None], {}),
    "margin": (-1, "x", None, 1e308),
    "recipe": ({}, None, {"epochs": 10**12}, []),
    "data": ({}, None, []),
    "rows": ([1], {}, None),
    "control": ("nope", None, 3),
    "vary": (["nope"], 3, [[]]),
    "design": ({}, None, {"name": "rows"}),
    "question": (1, None),
    "task": (1, None, "nope"),
    "objectives": ([], {"nope": "max"}, {"top1": "up"}),
    "diagnostics": ({"names": 1}, [], {"names": ["x"], "every": 0}),
}


# Texts that name files, which would lead elsewhere.
PATHS = {
    "ID of a store": "UPDATE stores SET id = '{0}'",
    "name of a study": "UPDATE studies SET name = '{0}'",
    "name in a space": "UPDATE studies SET space = json_set(space, '$.name', '{0}')",
    "hash of a trial": (
        "UPDATE trials SET hash = '{0}' WHERE rowid = (SELECT min(rowid) FROM trials)"
    ),
    "trial of a cell": "UPDATE cell_trials SET trial_hash = '{0}'",
}


@pytest.mark.parametrize("path", ["../../x", "/tmp/x", "a/../x", "..", "", "a\nb"])
@pytest.mark.parametrize("what", PATHS)
def test_no_text_of_a_store_leads_out_of_its_folder(
    what: str, path: str, tmp_path: Path, say: Say
) -> None:
    make = changed("PRAGMA foreign_keys = OFF", PATHS[what].format(path))
    make(tmp_path / THERE)
    here = tmp_path / "here.db"
    code, _, said = say("import", str(tmp_path / THERE), "--store", str(here))
    assert code == 2, said
    assert "cannot be imported" in said
    assert not here.exists()


@pytest.mark.parametrize("name", OTHERS)
def test_other_damage(name: str, runner: Runner) -> None:
    make = changed("PRAGMA foreign_keys = OFF", *OTHERS[name])
    said = failures(runner, name, make, {**VERBS, **MORE_VERBS})
    assert said == [], "\n".join([f"{len(said)} faults", *said[:100]])


@pytest.mark.parametrize("key", SPACES)
def test_wrong_spaces(key: str, runner: Runner) -> None:
    said = []
    for wrong in SPACES[key]:
        path = f"'$.{key}', json('{json.dumps(wrong)}')"
        make = changed(
            f"UPDATE studies SET space = json_set(space, {path})",
        )
        said += failures(runner, f"{key} = {wrong}", make, VERBS)
    assert said == [], "\n".join([f"{len(said)} faults", *said[:100]])


def test_a_good_store_is_imported(runner: Runner) -> None:
    """Without a change, the same stores are accepted."""
    for verb, argv in {**VERBS, **MORE_VERBS}.items():
        outcome = runner(Case(name=verb, says="", argv=argv, files={THERE: changed()}))
        assert outcome.code in (0, 1), outcome.stderr
        assert faults(outcome) == []


@pytest.mark.proof
def test_views_in_the_place_of_tables_in_postgresql(
    tmp_path: Path, runner: Runner
) -> None:
    with postgres() as url:
        Writer(url).close()
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE trials RENAME TO old"))
            endless = (
                "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT"
                " old.* FROM c, old"
            )
            connection.execute(text(f"CREATE VIEW trials AS {endless}"))
        engine.dispose()
        for words in (("import", url), ("table", "tiny", "--store", url)):
            outcome = runner(Case(name=words[0], says="", argv=words))
            assert faults(outcome, leaves=False) == []
            assert "the store is damaged: 'trials' is not a table" in outcome.stderr


def test_a_bug_of_ours_in_a_good_store_stays_an_error(tmp_path: Path) -> None:
    """Only damage that is there explains an error; it keeps its cause."""
    store(tmp_path / "good.db")
    with (
        pytest.raises(KeyError, match="a bug"),
        Reader(str(tmp_path / "good.db")) as reader,
    ):
        raise KeyError("a bug", reader.studies.all()[0].name)
    changed("UPDATE attempts SET pid = 'x'")(tmp_path / "bad.db")
    with (
        pytest.raises(DamagedStore, match="attempts.pid has the value 'x'") as damage,
        Reader(str(tmp_path / "bad.db")),
    ):
        raise KeyError("its cause")
    assert isinstance(damage.value.__cause__, KeyError)
