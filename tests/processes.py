"""Processes of a test: found by their command line, and never left behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import psutil

from ablate.errors import AblateError
from ablate.store.reader import Reader


@contextlib.contextmanager
def ended(process: Popen[Any]) -> Iterator[None]:
    """Kills and reaps the process when the block ends, also if a test fails in it.

    A process that is not reaped fails the test that runs when Python collects it.
    """
    try:
        yield
    finally:
        process.kill()
        process.wait()


def command_line(process: psutil.Process) -> list[str]:
    """Its words; none if it has ended meanwhile, or waits for its parent to reap it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def descendant(parent: Popen[Any], word: str, seconds: float = 120) -> psutil.Process:
    """Waits for a process below `parent` that has `word` in its command line.

    Raises AssertionError if there is none within `seconds`, or if the parent ends.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert parent.poll() is None, "the parent ended"
        for process in psutil.Process(parent.pid).children(recursive=True):
            if word in command_line(process):
                return process
        time.sleep(0.1)
    raise AssertionError(f"no process with {word!r} within {seconds} s")


def epochs_stored(store: Path) -> int:
    """How many epochs it holds; 0 while there is no store that can be read."""
    if not store.exists():
        return 0
    try:
        with Reader(str(store)) as reader:
            return int(reader.query("SELECT COUNT(*) FROM epochs")[1][0][0])
    except AblateError:
        return 0


def wait_for_epochs(
    driver: Popen[Any], store: Path, least: int, seconds: float = 240
) -> None:
    """Waits until the store of a run holds `least` epochs.

    Raises AssertionError if it does not within `seconds`, or if the driver ends.
    """
    deadline = time.monotonic() + seconds
    while epochs_stored(store) < least:
        assert driver.poll() is None, "the driver ended"
        assert time.monotonic() < deadline, f"fewer than {least} epochs"
        time.sleep(0.05)


def kill_with_children(driver: Popen[Any], seconds: float = 30) -> None:
    """Kills the driver and waits until the processes below it have ended too."""
    children = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    psutil.wait_procs(children, seconds)
