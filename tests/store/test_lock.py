"""One store has one writer, whatever name it is opened by; what is no store is left as
it was.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.errors import AblateError, StoreError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.store import database
from ablate.store.reader import Reader
from ablate.store.writer import Writer


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize("kind", ["symbolic link", "link to the folder", "hard link"])
def test_another_name_of_the_same_file_has_the_same_lock(
    kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "first" / "ablate.db"
    Writer(str(file)).close()
    other = tmp_path / "other.db"
    if kind == "symbolic link":
        other.symlink_to(file)
    elif kind == "hard link":
        os.link(file, other)
    else:
        (tmp_path / "second").symlink_to(file.parent)
        other = tmp_path / "second" / "ablate.db"
    with (
        Writer(str(file)),
        pytest.raises(
            StoreError, match=rf"process {os.getpid()} is writing to {other}"
        ),
    ):
        Writer(str(other))
    with (
        Writer(str(other)),
        pytest.raises(StoreError, match=rf"process {os.getpid()} is writing to {file}"),
    ):
        Writer(str(file))
    Writer(str(file)).close()


def test_a_dangling_link_makes_the_store_that_it_names(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "target.db")
    with Writer(str(link)), pytest.raises(StoreError, match="is writing to"):
        Writer(str(tmp_path / "target.db"))


def test_a_file_name_may_hold_what_a_url_may_not(tmp_path: Path) -> None:
    file = tmp_path / "what?mode=ro&x=%41#y.db"
    Writer(str(file)).close()
    assert database.exists(str(file))
    assert "what?mode=ro&x=%41#y.db" in names_in(tmp_path)


def test_the_folder_of_a_new_store_is_private(tmp_path: Path) -> None:
    Writer(str(tmp_path / "runs" / "ablate.db")).close()
    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o700


def foreign(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    connection.close()


def foreign_with_migrations(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('0001')")
    connection.close()


def text_file(file: Path) -> None:
    file.write_text("question: is this a store?\n" * 100)


def fifo(file: Path) -> None:
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            foreign,
            (
                "is a database of another program (it has customers); name another file for"
                " the store with store"
            ),
        ),
        (
            foreign_with_migrations,
            "is a database of another program (it has customers)",
        ),
        (text_file, "is not a SQLite database; name a store such as runs/ablate.db"),
        (fifo, "is not a regular file; name a store such as runs/ablate.db"),
        (folder, "is not a regular file; name a store such as runs/ablate.db"),
    ],
)
def test_what_is_no_store_is_refused_and_left_alone(
    make: object, words: str, tmp_path: Path, tiny: str
) -> None:
    file = tmp_path / "other.db"
    assert callable(make)
    make(file)
    before = (names_in(tmp_path), file.read_bytes() if file.is_file() else b"")
    declared = space.load(tiny, "tiny.yaml")
    options = Options(runs=tmp_path / "runs", store=str(file))
    with pytest.raises(StoreError) as refused:
        pipeline.run(declared, "tiny.yaml", options, executor=SimulatedExecutor())
    assert words in str(refused.value)
    assert (names_in(tmp_path), file.read_bytes() if file.is_file() else b"") == before


def test_a_device_is_no_store_and_gets_no_lock_beside_it() -> None:
    with pytest.raises(StoreError, match="/dev/null is not a regular file"):
        Writer("/dev/null")
    assert not Path("/dev/null.lock").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("digits", "FILE.npz"),
        lambda text: text.replace("heads: 2", "heads: 3"),
        lambda text: text + "limits: ['params <= 1']\n",
    ],
)
def test_what_is_refused_leaves_no_store_behind(
    change: object, tmp_path: Path, tiny: str
) -> None:
    assert callable(change)
    options = Options(runs=tmp_path / "runs", executor="inline")
    with pytest.raises(AblateError):
        declared = space.load(change(tiny), "tiny.yaml")
        pipeline.run(declared, "tiny.yaml", options, executor=SimulatedExecutor())
    assert names_in(tmp_path) == []


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    file = tmp_path / "ablate.db"
    file.touch()
    assert not database.exists(str(file))
    Writer(str(file)).close()
    assert database.exists(str(file))


OUTSIDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT COUNT(*) FROM studies").fetchone()
connection.close()
"""


def test_another_program_that_closes_the_store_takes_nothing_from_its_writer(
    tmp_path: Path, tiny: str
) -> None:
    """The last one to close a database in WAL mode removes its log.

    The writer's lock on the file says that it is not the last; the kernel drops that
    lock when any descriptor of the file is closed in the writer's process.
    """
    file = tmp_path / "ablate.db"
    with Writer(str(file)) as writer:
        assert writer.store_id
        database.exists(str(file))
        with Reader(str(file)) as reader:
            assert reader.studies.all() == []
        with pytest.raises(StoreError):
            Writer(str(file))
        subprocess.run([sys.executable, "-c", OUTSIDER, str(file)], check=True)
        assert Path(f"{file}-wal").exists()
        assert Path(f"{file}-shm").exists()
