"""A local Ray is private to its user, and nothing of it outlives its driver."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ablate.execution import make
from ablate.execution.warden import MARK, Warden, belonging
from ablate.records import Resources
from tests.processes import command_line, ended

pytestmark = pytest.mark.ray

DRIVER = """
import sys, time
from ablate.text import advice
from ablate.execution import make
advice.keep("--runs", "some where")
advice.keep("--store", "postgresql://me:secret@host/db")
executor = make("ray")
executor.prepare(1, 0)
executor.ready()
print("ready", flush=True)
time.sleep(120)
"""

# What goes on with the driver's run, with its options and without its password.
AGAIN = "ablate resume --runs 'some where' --store 'postgresql://me:***@host/db'"


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver whose Ray has started."""
    home = tmp_path / "home"
    home.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(home)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()


def folder_of(driver: subprocess.Popen[str]) -> Path:
    """The private folder of a driver's Ray, as its warden's command line names it."""
    for child in psutil.Process(driver.pid).children():
        words = command_line(child)
        if any(word.endswith("warden.py") for word in words):
            return Path(words[-2])
    raise AssertionError("no warden")


def until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_another_user_can_neither_read_the_session_nor_find_a_token(
    driver: subprocess.Popen[str], tmp_path: Path
) -> None:
    folder = folder_of(driver)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(folder.rglob("session_*"))
    assert not any((tmp_path / "home").rglob("auth_token"))
    for process in psutil.Process(driver.pid).children(recursive=True):
        with_session = [word for word in command_line(process) if "/session_" in word]
        assert all(str(folder) in word for word in with_session)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_nothing_outlives_a_driver(
    number: signal.Signals, driver: subprocess.Popen[str]
) -> None:
    folder = folder_of(driver)
    assert len(belonging(str(folder))) >= 4
    os.kill(driver.pid, number)
    driver.wait()
    assert until(lambda: not belonging(str(folder)) and not folder.exists(), 15)
    assert driver.stderr is not None
    assert f"Nothing stored is lost. Go on with: {AGAIN}\n" in driver.stderr.read()


@pytest.mark.parametrize(
    "part", ["gcs_server", "ray::DashboardAgent", "ray::RuntimeEnvAgent"]
)
def test_a_part_of_ray_that_dies_ends_the_driver_with_one_message(
    part: str, driver: subprocess.Popen[str]
) -> None:
    folder = folder_of(driver)
    children = psutil.Process(driver.pid).children(recursive=True)
    victim = next(
        child
        for child in children
        if Path("".join(command_line(child)[:1]).strip()).name == Path(part).name
    )
    victim.kill()
    assert driver.wait(20) == 2
    assert driver.stderr is not None
    lines = driver.stderr.read().splitlines()
    # A busy machine is said to be slow; nothing of Ray's own may stand there.
    said = "\n".join(
        line for line in lines if line and not line.startswith("waiting for Ray")
    )
    # Each of them ends the others, and on a busy machine another one is seen first.
    name = "(gcs_server|raylet|DashboardAgent|RuntimeEnvAgent)"
    assert re.fullmatch(
        rf"error: Ray's process(es)? ({name}, )*{name} died: killed, or out of"
        rf" memory\. No stored result is lost\. Go on with: {re.escape(AGAIN)}",
        said,
    )
    assert until(lambda: not folder.exists(), 15)


def test_a_warden_that_is_closed_leaves_nothing_and_says_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    warden = Warden("ablate resume")
    private = warden.folder.parent
    assert MARK not in os.environ, "the driver has programs of its own"
    warden.close()
    assert not private.exists()
    assert capfd.readouterr().err == ""


def test_a_start_that_is_given_up_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray is slow, and the command ends meanwhile: closing waits for the try at hand,
    and for no other.
    """
    tried, go_on = [], threading.Event()

    def slow(*_: object, **__: object) -> None:
        tried.append(1)
        go_on.wait(30)
        raise RuntimeError("timed out")

    monkeypatch.setattr("ray.init", slow)
    executor = make("ray")
    executor.prepare(1, 0)
    assert until(lambda: bool(tried), 60)
    threading.Timer(0.5, go_on.set).start()
    start = time.monotonic()
    executor.close()
    assert time.monotonic() - start < 10
    assert len(tried) == 1


def test_a_program_that_a_trial_has_started_ends_with_a_clean_run() -> None:
    warden = Warden("ablate resume")
    # As the driver itself does: it must not be taken for a program of a trial.
    with (warden.folder.parent / "log").open("w"):
        started = subprocess.Popen(
            ["sleep", "120"], start_new_session=True, env={**os.environ, **warden.mark}
        )
        of_the_user = subprocess.Popen(["sleep", "120"])
        with ended(started), ended(of_the_user):
            warden.close()
            assert started.wait(20) == -signal.SIGKILL
            assert of_the_user.poll() is None


def test_a_nursery_that_cannot_start_leaves_no_warden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError("too many processes")

    monkeypatch.setattr("ablate.execution.nursery.Nursery.hold", fail)
    before = set(psutil.Process().children())
    with pytest.raises(OSError, match="too many processes"):
        make("ray").prepare(1, 0, Resources())
    assert MARK not in os.environ
    assert set(psutil.Process().children()) == before


def test_a_local_ray_has_no_autoscaler(driver: subprocess.Popen[str]) -> None:
    """It would add no machine, and Ray waits a second for its end."""
    alive = [
        " ".join(command_line(process))
        for process in psutil.Process(driver.pid).children(recursive=True)
    ]
    assert any("raylet" in line for line in alive)
    assert not any("autoscaler" in line and "monitor.py" in line for line in alive)
