"""The files of a SQLite store, and a server that restarts."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from ablate import space
from ablate.errors import StoreError
from ablate.execution.simulated import SimulatedExecutor, made_up
from ablate.machine.provenance import collect
from ablate.pipeline import Options, preview, run
from ablate.records import Epoch, Trial
from ablate.store.database import LostConnection, exists, kind_of
from ablate.store.reader import Reader
from ablate.store.writer import Writer
from tests.store.postgres import postgres, restart

RUN = """
import os, signal, sys
from pathlib import Path
from ablate.records import Ended
from ablate.store.writer import Writer

put = Writer.write
ended = []


def write(self, event):
    stored = put(self, event)
    if isinstance(event, Ended):
        ended.append(event)
        if len(ended) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    return stored


Writer.write = write
from ablate.cli import main

sys.argv = ["ablate", "run", "tiny.yaml", "--executor", "inline"]
main()
"""


@pytest.mark.proof
def test_the_file_alone_has_the_results_of_a_killed_run(
    tmp_path: Path, tiny: str
) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny)
    subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, check=False, capture_output=True
    )
    store = tmp_path / "runs" / "ablate.db"
    copy = tmp_path / "copy" / "ablate.db"
    copy.parent.mkdir()
    shutil.copy(store, copy)
    with Reader(str(copy)) as reader:
        states = reader.studies.get("tiny").by_status
    assert states["completed"] == 3


def test_a_new_store_is_in_its_file(tmp_path: Path) -> None:
    store = tmp_path / "ablate.db"
    with Writer(str(store)):
        shutil.copy(store, tmp_path / "copy.db")
    assert exists(str(tmp_path / "copy.db"))


@pytest.mark.parametrize("open_", [exists, Reader, Writer])
def test_a_missing_log_is_named(tmp_path: Path, open_: type) -> None:
    store = tmp_path / "ablate.db"
    # As an older version left it: all tables are in the log.
    writing = sqlite3.connect(store)
    writing.execute("PRAGMA journal_mode = WAL")
    writing.execute("CREATE TABLE studies (id)")
    shutil.copy(store, tmp_path / "copy.db")
    writing.close()
    with pytest.raises(StoreError, match=r"copy\.db-wal, and this file is missing"):
        open_(str(tmp_path / "copy.db"))


FIRST = """
import sys
from ablate.store.database import exists

exists(sys.argv[1])
"""


def slowly(trial: Trial, number: int) -> Epoch:
    time.sleep(0.03)
    return made_up(trial, number)


@pytest.mark.proof
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_server_is_waited_for(
    tmp_path: Path, tiny: str, mode: str
) -> None:
    with postgres() as url:
        restarts = [0.0]

        def now_and_then() -> None:
            for _ in range(3):
                time.sleep(0.7)
                began = time.monotonic()
                restart(url, mode, pause=0.5)
                restarts.append(time.monotonic() - began)

        (tmp_path / "tiny.yaml").write_text(tiny.replace("epochs: 3", "epochs: 20"))
        thread = threading.Thread(target=now_and_then)
        thread.start()
        outcome = run(
            space.read(tmp_path / "tiny.yaml"),
            "tiny.yaml",
            Options(tmp_path / "runs", url),
            executor=SimulatedExecutor(slowly),
        )
        thread.join()
        assert len(restarts) == 4
        assert (outcome.trained, outcome.failed, outcome.unfinished) == (8, 0, 0)
        engine = create_engine(url)
        with engine.connect() as connection:
            rows = connection.execute(
                text(
                    "SELECT trial_hash, COUNT(*), COUNT(DISTINCT number) FROM epochs"
                    " GROUP BY trial_hash"
                )
            ).all()
        engine.dispose()
        assert len(rows) == 8
        assert {(count, numbers) for _, count, numbers in rows} == {(20, 20)}


@pytest.mark.proof
def test_an_address_where_no_server_listens_is_refused_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(StoreError, match="cannot be opened"):
        exists("postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert time.monotonic() - began < 5


@pytest.mark.proof
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_every_step_of_a_run_waits_for_a_restart(
    tmp_path: Path, tiny: str, mode: str
) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny)
    plan = preview(space.read(tmp_path / "tiny.yaml"), str(tmp_path / "no.db")).plan
    with postgres() as url, Writer(url) as writer:
        thread = threading.Thread(target=restart, args=(url, mode, 0.5))
        thread.start()
        rounds = 0
        while thread.is_alive():
            assert writer.store_id
            study = writer.register(plan, "tiny.yaml", 1)
            writer.begin(study, "", collect())
            writer.extend(study, [], 1)
            writer.trim(study, 1_000)
            writer.finish(study)
            rounds += 1
        assert rounds


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.AdminShutdown(),
        psycopg.errors.CrashShutdown(),
        psycopg.errors.CannotConnectNow(),
        psycopg.errors.ConnectionFailure(),
        OperationalError("SELECT 1", {}, psycopg.errors.AdminShutdown()),
    ],
)
def test_an_end_of_the_server_is_known_by_its_code(error: Exception) -> None:
    assert kind_of(error) is LostConnection


def test_another_error_of_the_server_is_no_lost_connection() -> None:
    assert kind_of(psycopg.errors.DiskFull()) is StoreError
    assert kind_of(psycopg.errors.QueryCanceled()) is StoreError


@pytest.mark.proof
def test_a_first_connection_waits_for_a_restart_too() -> None:
    with postgres() as url:
        thread = threading.Thread(target=restart, args=(url, "fast", 0.5))
        thread.start()
        time.sleep(0.3)
        seen = subprocess.run(
            [sys.executable, "-c", FIRST, url],
            capture_output=True,
            text=True,
            check=False,
        )
        thread.join()
    assert seen.returncode == 0, seen.stderr


@pytest.mark.proof
def test_a_store_that_was_reached_before_is_waited_for_when_it_is_opened() -> None:
    with postgres() as url:
        Writer(url).close()
        thread = threading.Thread(target=restart, args=(url, "fast", 0.5))
        thread.start()
        while thread.is_alive():
            with Reader(url) as reader:
                assert reader.studies.all() == []
        thread.join()
