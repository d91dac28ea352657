"""Runs in surroundings that lack something: rights, room, memory, a home, or the files
that a run uses. Each ends with one message and loses no result.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pytest

from ablate import pipeline, space
from ablate.errors import StoreError
from ablate.execution.inline import InlineExecutor
from ablate.machine import cache
from ablate.pipeline import Hooks, Options
from ablate.records import Event
from ablate.results.study import Study
from ablate.store.database import fold_log, open_writer
from ablate.store.reader import Reader
from ablate.store.writer import Writer
from tests.conftest import RunText, Say
from tests.processes import ended

SECRET = "wJalrXUtnFEMI"
RUN = ("run", "tiny.yaml", "--executor", "inline")
RESUME = ("resume", "tiny", "--executor", "inline")


def ablate(*words: str) -> list[str]:
    return [sys.executable, "-m", "ablate", *words]


def without_rights(command: list[str]) -> list[str]:
    """Root may write to any file, unless it gives up its capabilities."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]


def ran(
    command: list[str],
    folder: Path,
    changes: Mapping[str, str] | None = None,
    without: tuple[str, ...] = (),
) -> tuple[int, str]:
    """Runs a command in a folder; gives its exit code and stderr."""
    environment = {
        name: value for name, value in os.environ.items() if name not in without
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env={**environment, **(changes or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def is_one_message(stderr: str) -> bool:
    return stderr.startswith("error: ") and "Traceback" not in stderr


def undisturbed(text: str, folder: Path) -> str:
    """The table of a run that nothing has disturbed."""
    options = Options(runs=folder / "undisturbed", executor="inline", cpus=2)
    declared = space.load(text, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", options)
    return Study("tiny", options.url).table()


def at_event(number: int, action: Callable[[], object]) -> Hooks:
    """Hooks that act once, at the event of that number."""
    count = 0

    def event(happened: Event) -> None:
        nonlocal count
        count += 1
        if count == number:
            action()

    return Hooks(event=event)


@pytest.mark.proof
def test_a_store_that_may_not_be_written_to(tmp_path: Path, tiny: str) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny)
    assert ran(ablate(*RUN, "--max-trials", "1"), tmp_path)[0] == 3
    store = tmp_path / "runs" / "ablate.db"
    before = store.read_bytes()
    store.chmod(0o444)
    code, err = ran(without_rights(ablate(*RESUME)), tmp_path)
    assert code == 2
    assert is_one_message(err)
    assert "ablate.db cannot be written to: Permission denied" in err
    assert store.read_bytes() == before
    store.chmod(0o644)
    assert ran(ablate(*RESUME), tmp_path)[0] == 0
    table = Study("tiny", str(store)).table()
    assert table == undisturbed(tiny, tmp_path)


def test_a_log_that_does_not_fit_into_the_store_stays_beside_it(tmp_path: Path) -> None:
    """A full disk after a result: the result is in the log, and the run goes on."""
    store = tmp_path / "ablate.db"
    engine = open_writer(str(store))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE filler (content)")
        connection.exec_driver_sql("INSERT INTO filler VALUES (zeroblob(200000))")
    size = store.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        fold_log(engine)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.stat().st_size == size
    fold_log(engine)
    assert store.stat().st_size > size
    engine.dispose()


@pytest.mark.proof
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_is_moved_during_a_run_ends_it(
    what: str, run_text: RunText, options: Options, tmp_path: Path, tiny: str
) -> None:
    """Otherwise the run would train for hours, and write its results to no file."""
    if what == "folder":
        here = options.runs
    else:
        here = options.runs / "ablate.db"
    aside = tmp_path / "aside"
    hooks = at_event(7, lambda: here.rename(aside))
    with pytest.raises(StoreError, match="was removed, moved or replaced"):
        run_text(tiny, InlineExecutor(), hooks)
    assert not here.exists()
    aside.rename(here)
    outcome = run_text(tiny, InlineExecutor())
    assert outcome.known_before == 1
    table = Study("tiny", options.url).table()
    assert table == undisturbed(tiny, tmp_path)


@pytest.mark.proof
def test_a_store_that_is_replaced_during_a_run_ends_it(
    run_text: RunText, options: Options, tmp_path: Path, tiny: str
) -> None:
    store = options.runs / "ablate.db"
    other = tmp_path / "other.db"
    with Writer(str(other)):
        pass
    other.chmod(0o600)
    before = other.read_bytes()
    with pytest.raises(StoreError, match="was removed, moved or replaced"):
        run_text(tiny, hooks=at_event(7, lambda: other.replace(store)))
    assert store.read_bytes() == before


@pytest.mark.proof
def test_checkpoints_that_are_removed_during_a_run(
    run_text: RunText, options: Options, tmp_path: Path, tiny: str
) -> None:
    """The trials after it fail with the cause, and the next run trains them."""
    gone = options.runs / "checkpoints"
    outcome = run_text(tiny, InlineExecutor(), at_event(7, lambda: shutil.rmtree(gone)))
    assert outcome.trained == 1
    assert outcome.failed == 7
    with Reader(options.url) as reader:
        _, rows = reader.query("SELECT error FROM attempts WHERE error <> ''")
    assert len(rows) == 7
    for (error,) in rows:
        assert "no checkpoint can be written to" in str(error)
        assert "previous checkpoint" not in str(error)
    outcome = run_text(tiny, InlineExecutor())
    assert (outcome.known_before, outcome.trained) == (1, 7)
    table = Study("tiny", options.url).table()
    assert table == undisturbed(tiny, tmp_path)


@pytest.mark.proof
def test_too_little_memory_is_named(tmp_path: Path, tiny: str) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny)
    limited = ["bash", "-c", 'ulimit -v 1500000 && exec "$@"', "-", *ablate(*RUN)]
    code, err = ran(limited, tmp_path)
    assert code == 2
    assert is_one_message(err)
    assert "too little memory" in err
    assert [file.name for file in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.proof
@pytest.mark.parametrize("home", ["none", "a file"])
@pytest.mark.parametrize("temporary", ["with blanks", "missing"])
def test_no_home_and_strange_folders_for_temporary_files(
    home: str, temporary: str, tmp_path: Path, tiny: str
) -> None:
    """The cache and temporary files only save time."""
    (tmp_path / "tiny.yaml").write_text(tiny.replace("seeds: 2", "seeds: 1"))
    changes = {"TMPDIR": str(tmp_path / temporary)}
    if home == "a file":
        (tmp_path / "file").touch()
        changes["HOME"] = str(tmp_path / "file")
    if temporary == "with blanks":
        (tmp_path / temporary).mkdir()
    left_out = (cache.VARIABLE, "HOME", "XDG_CACHE_HOME")
    code, err = ran(ablate(*RUN), tmp_path, changes, left_out)
    assert code == 0, err
    assert "4 trials trained" in err


@pytest.mark.parametrize("verb", ["run", "disk", "diagnose"])
def test_keys_in_the_url_of_a_bucket_are_refused_and_not_repeated(
    verb: str, say: Say
) -> None:
    """The package for S3 takes them as a part of the bucket's name, and repeats it."""
    url = f"s3://AKIAIOSFODNN:{SECRET}@bucket/path"
    if verb == "run":
        code, out, err = say(*RUN, "--checkpoints", url)
        assert not Path("runs").exists()
    else:
        assert say(*RUN, "--max-trials", "1")[0] == 3
        words = {"disk": ["disk"], "diagnose": ["diagnose", "tiny"]}[verb]
        code, out, err = say(*words, "--checkpoints", url)
    assert code == 2
    assert SECRET not in out + err
    assert "s3://AKIAIOSFODNN:***@bucket has keys in it" in err
    assert "AWS_SECRET_ACCESS_KEY" in err


def test_a_bucket_that_cannot_be_read_is_one_message(say: Say) -> None:
    """Not every error of a service is an OSError."""
    assert say(*RUN, "--max-trials", "1")[0] == 3
    url = "s3://no_bucket_has_this_name!/path"
    for words in (["disk"], ["diagnose", "tiny"]):
        code, _, err = say(*words, "--checkpoints", url)
        assert code == 2
        assert is_one_message(err)
        assert "cannot be read" in err


def test_the_store_does_not_hold_the_keys_of_a_run(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, SECRET)
    url = f"memory://me:{SECRET}@bucket/path"
    code, out, err = say(*RUN, "--checkpoints", url)
    assert code == 0
    assert SECRET not in out + err
    for file in Path("runs").rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes()


@pytest.mark.ray
@pytest.mark.proof
def test_ray_without_shared_memory_and_with_keys(tmp_path: Path, tiny: str) -> None:
    """Ray keeps its objects on the disk then. No command line has a key."""
    (tmp_path / "tiny.yaml").write_text(tiny.replace("seeds: 2", "seeds: 1"))
    full = (
        "mount -t tmpfs -o size=64k tmpfs /dev/shm && "
        '{ head -c 100000 /dev/zero > /dev/shm/filler || true; } && exec "$@"'
    )
    private = ["unshare", "--mount"]
    if os.geteuid() != 0:
        private.append("--map-root-user")
    command = [*private, "bash", "-c", full, "-", *ablate("run", "tiny.yaml")]
    lines = set[str]()
    with (
        (tmp_path / "err").open("w") as err,
        subprocess.Popen(
            [*command, "--cpus", "1"],
            cwd=tmp_path,
            env={**os.environ, "WANDB_API_KEY": SECRET, "ABLATE_STORE": "own.db"},
            stdout=subprocess.DEVNULL,
            stderr=err,
        ) as driver,
        ended(driver),
    ):
        while driver.poll() is None:
            for process in psutil.Process(driver.pid).children(recursive=True):
                try:
                    lines.add(" ".join(process.cmdline()))
                except psutil.Error:
                    # It has ended meanwhile.
                    continue
            time.sleep(0.2)
        assert driver.returncode == 0, (tmp_path / "err").read_text()
    assert "4 trials trained" in (tmp_path / "err").read_text()
    assert any("raylet" in line for line in lines)
    assert not any(SECRET in line for line in lines)
    assert SECRET.encode() not in (tmp_path / "own.db").read_bytes()
