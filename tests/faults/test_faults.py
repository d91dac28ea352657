"""What the harness draws, counts and says, and the short version of `make faults`."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from sqlalchemy import create_engine

from ablate.store.writer import Writer
from tests.faults import harness, kinds_files
from tests.faults.fault import FAULTS
from tests.faults.harness import coming, command, count, draw, forgotten_epochs, main
from tests.faults.kinds_kills import DRIVER, GROUP, NURSERY, WORKER
from tests.faults.phases import Place
from tests.faults.report import write_report
from tests.faults.scene import Scene
from tests.faults.stores import (
    KINDS,
    Kind,
    PostgresStore,
    SqliteStore,
    kind_of,
    postgres_database,
)
from tests.faults.tally import FULL, LEAST, Tally, shortfalls
from tests.store.postgres import postgres

NO_ENGINE = create_engine("sqlite://")


def test_three_hundred_faults_are_of_every_kind_and_aim_at_each_place_often_enough() -> (
    None
):
    deck = draw(FULL, random.Random(0))
    assert len(deck) == FULL
    assert {kind.name for kind in deck} == set(FAULTS)
    aims = Counter(kind.aim for kind in deck)
    assert min(aims[place] for place in Place) >= LEAST + LEAST // 4
    victims = {kind.row for kind in deck if kind.aim is not None}
    assert victims == {WORKER.row, DRIVER.row, GROUP.row, NURSERY.row}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A study that does not run, stored in SQLite."""
    made = Scene.make(tmp_path, random.Random(0), SqliteStore())
    yield made
    made.disk.close()


def test_an_aimed_kill_that_lands_elsewhere_comes_again(scene: Scene) -> None:
    aimed = FAULTS[f"{WORKER.row}, {Place.EPOCH}"]
    deck, tally = [FAULTS["SIGTERM"]], Tally()
    scene.landed = Place.CHECKPOINT
    count(scene, aimed, tally, deck)
    assert deck == [aimed, FAULTS["SIGTERM"]]
    assert tally.landed == {(Place.CHECKPOINT, WORKER.row): 1}
    scene.landed = Place.EPOCH
    count(scene, aimed, tally, deck)
    assert deck == [aimed, FAULTS["SIGTERM"]]
    assert tally.landed_in(Place.EPOCH) == 1
    assert tally.aimed[Place.EPOCH] == 2


def test_a_fault_that_is_not_possible_in_a_run_waits_for_the_next_one(
    scene: Scene,
) -> None:
    deck = [FAULTS["SIGTERM"], FAULTS["database locked for long"]]
    assert coming(scene, deck) is deck[1]
    scene.store = PostgresStore("", NO_ENGINE)
    assert coming(scene, deck) is deck[0]


def test_a_data_set_is_spoilt_once_at_a_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second fault would put back what the first one spoilt."""

    def end_at_once(made: Scene, end: Callable[[psutil.Process, str], None]) -> bool:
        end(worker, "trial")
        return True

    monkeypatch.setattr(kinds_files, "end_worker", end_at_once)
    file = scene.folder / "digits.npz"
    whole = file.read_bytes()
    spoil = FAULTS["data set unreadable for a worker"]
    worker = Mock(spec=psutil.Process)
    assert spoil.inject(scene)
    assert file.read_bytes() != whole
    assert not spoil.inject(scene)
    scene.tick(ended=True)
    assert file.read_bytes() == whole
    worker.kill.assert_called_once_with()


def test_an_interrupt_answers_for_the_trials_of_its_own_run(scene: Scene) -> None:
    """A trial that waits may have lost its checkpoint in a run before."""
    scene.runs.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(scene.runs / "ablate.db")) as store, store:
        store.execute("CREATE TABLE trials (hash, status, epochs_done)")
        store.execute("CREATE TABLE attempts (trial_hash, provenance_id)")
        store.execute("INSERT INTO trials VALUES ('a', 'planned', 2)")
        store.execute("INSERT INTO attempts VALUES ('a', 3)")
    assert forgotten_epochs(scene, 3) == []
    assert forgotten_epochs(scene, 2) == ["a had told 2 epochs, and kept 0"]


def test_every_third_study_is_on_postgresql() -> None:
    kinds = [kind_of(study, KINDS["both"]) for study in range(6)]
    assert kinds == [Kind.SQLITE, Kind.POSTGRESQL, Kind.SQLITE] * 2
    assert kind_of(1, KINDS["sqlite"]) == Kind.SQLITE
    assert kind_of(0, KINDS["postgresql"]) == Kind.POSTGRESQL


def full_tally(least: int) -> Tally:
    """A run in which each place was hit `least` times, and nothing was wrong."""
    tally = Tally(tried=Counter({WORKER.row: 4 * least}))
    tally.landed.update({(place, WORKER.row): least for place in Place})
    return tally


def test_a_full_run_must_hit_each_place_often_enough() -> None:
    assert shortfalls(full_tally(LEAST), FULL) == []
    rare = shortfalls(full_tally(LEAST - 1), FULL)
    assert len(rare) == len(Place)
    assert rare[0] == "19 SIGKILLs landed before the first epoch; 20 must"
    assert shortfalls(full_tally(0), FULL - 1) == []


@pytest.mark.parametrize(
    ("tally", "code"),
    [
        (full_tally(LEAST), 0),
        (full_tally(LEAST - 1), 1),
        (replace(full_tally(LEAST), problems=["the table differs"]), 1),
    ],
)
def test_the_exit_code_says_what_was_found(
    tally: Tally, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(harness, "main", lambda *_: tally)
    report = tmp_path / "report.md"
    assert command(["--count", str(FULL), "--report", str(report)]) == code
    text = report.read_text()
    assert ("No result was lost, duplicated or changed." in text) == (code == 0)
    least = tally.landed_in(Place.EPOCH)
    assert f"| {Place.EPOCH} | 0 | {least} | 0 | 0 | 0 | 0 | 0 | {least} |" in text


def test_the_report_says_what_was_found_on_each_store(tmp_path: Path) -> None:
    tally = full_tally(LEAST)
    tally.stores[Kind.SQLITE, "studies"] = 4
    tally.stores[Kind.POSTGRESQL, "studies"] = 2
    tally.stores[Kind.POSTGRESQL, "doubled"] = 1
    report = tmp_path / "report.md"
    write_report(report, tally, 0, FULL, [])
    text = report.read_text()
    assert "| SQLite | 4 | 0 | 0 | 0 | 0 | 0 | 0 |" in text
    assert "| PostgreSQL | 2 | 0 | 0 | 0 | 1 | 0 | 0 |" in text


@pytest.mark.proof
def test_a_store_on_postgresql_answers_like_one_on_sqlite(tmp_path: Path) -> None:
    with postgres() as server, postgres_database(server, "answers") as store:
        for kind, url in (
            (SqliteStore(), str(tmp_path / "ablate.db")),
            (store, store.url(tmp_path)),
        ):
            statement = "SELECT name FROM drivers_of_nothing WHERE id > ?"
            assert kind.rows(tmp_path, statement, (0,)) == []
            Writer(url).close()
            statement = "SELECT COUNT(*) FROM trials WHERE epochs_done >= ?"
            assert kind.rows(tmp_path, statement, (0,)) == [(0,)]


@pytest.mark.ray
@pytest.mark.proof
def test_faults_change_nothing() -> None:
    kinds = [
        "SIGKILL of the driver",
        f"{WORKER.row}, {Place.RESULT}",
        "checkpoint with a flipped bit",
    ]
    found = main(seed=3, count=3, names=kinds)
    assert found.problems == []
    assert found.tried.total() >= 3
    assert found.landed[Place.RESULT, WORKER.row] >= 1
