"""The warden, as a program of its own beside a driver that a test plays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from ablate.execution import warden as module
from ablate.execution.warden import CLOSED, MARK, SAID, belonging
from tests.processes import ended

MESSAGE = "the run was killed; go on with: ablate resume"
SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """The folder of a driver's Ray, with a file in it."""
    folder = tmp_path / "ablate-run-1"
    (folder / "r").mkdir(parents=True)
    (folder / "r" / "session").write_text("something")
    return folder


def watching(private: Path) -> subprocess.Popen[bytes]:
    """A warden whose driver lives as long as its stdin is open."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", module.__file__, str(private), MESSAGE],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def says_after(warden: subprocess.Popen[bytes], words: bytes) -> str:
    """What it says when the driver ends after it wrote these words."""
    _, said = warden.communicate(words, timeout=30)
    assert warden.returncode == 0
    return said.decode()


@contextmanager
def left_behind(**environment: str) -> Iterator[psutil.Process]:
    """A process that a driver has started."""
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", SLEEP], env={**os.environ, **environment}
    )
    with ended(child):
        yield psutil.Process(child.pid)


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_killed_driver_leaves_a_message_and_nothing_else(private: Path) -> None:
    with left_behind(**{MARK: str(private)}) as mine, left_behind() as other:
        warden = watching(private)
        assert says_after(warden, b"") == f"{MESSAGE}\n"
        assert is_gone(mine)
        assert not is_gone(other)
    assert not private.exists()


def test_a_driver_that_ends_cleanly_leaves_no_message(private: Path) -> None:
    with left_behind(**{MARK: str(private)}) as mine:
        assert says_after(watching(private), CLOSED) == ""
        assert is_gone(mine), "a program that a trial has started"
    assert not private.exists()


def test_a_message_is_said_once(private: Path) -> None:
    assert says_after(watching(private), SAID) == ""
    assert not private.exists()


def test_a_driver_that_lives_is_spared(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This process is the driver, the parent of the warden, and carries the mark.
    monkeypatch.setenv(MARK, str(private))
    with (private / "log").open("w"):
        assert says_after(watching(private), CLOSED) == ""


@pytest.mark.proof
def test_ctrl_c_is_for_the_driver(private: Path) -> None:
    warden = watching(private)
    with ended(warden):
        # It ignores the signal as soon as it runs.
        time.sleep(0.5)
        warden.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert warden.poll() is None
        assert says_after(warden, CLOSED) == ""


def test_processes_belong_by_their_mark_or_by_an_open_file(private: Path) -> None:
    file = private / "r" / "session"
    opens = f"file = open({str(file)!r}); {SLEEP}"
    holder = subprocess.Popen([sys.executable, "-S", "-c", opens])
    with (
        ended(holder),
        left_behind(**{MARK: str(private)}) as marked,
        left_behind(**{MARK: f"{private}0"}) as of_another,
    ):
        deadline = time.monotonic() + 30
        while holder.pid not in belonging(str(private)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        found = belonging(str(private))
        assert set(found) == {holder.pid, marked.pid}
        assert of_another.pid not in found


@pytest.mark.parametrize(("length", "short"), [(4, False), (60, True)])
def test_the_folder_is_short_enough_for_a_socket(
    monkeypatch: pytest.MonkeyPatch, length: int, short: bool
) -> None:
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: "/" + "x" * length)
    assert module._short_folder() == ("/tmp" if short else None)
