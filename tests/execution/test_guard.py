"""The guard ends the driver with one message when a part of Ray dies."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ablate.execution.ray_tune import guard as module
from ablate.execution.ray_tune.guard import EXIT_CODE, Guard, end_autoscaler, ray_parts

SLEEP = "import time; time.sleep(600)"


class Exits:
    """Notes that the process would have ended.

    Attributes:
        code: the exit code.
        order: what happened before.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        self.order: list[str] = []
        self.happened = threading.Event()

    def __call__(self, code: int) -> None:
        self.code = code
        self.order.append("exit")
        self.happened.set()


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> Exits:
    made = Exits()
    monkeypatch.setattr(module.os, "_exit", made)
    monkeypatch.setattr(module, "FIND_SECONDS", 0.02)
    return made


class Parts:
    """Processes that stand for the parts of a Ray."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        self._running[name] = subprocess.Popen([sys.executable, "-S", "-c", SLEEP])

    def kill(self, name: str) -> None:
        self._running[name].kill()

    def by_pid(self) -> dict[int, str]:
        return {part.pid: name for name, part in self._running.items()}

    def end(self) -> None:
        for part in self._running.values():
            part.kill()
            part.wait()


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts]:
    made = Parts()
    monkeypatch.setattr(module, "ray_parts", made.by_pid)
    yield made
    made.end()


def guard_of(exits: Exits) -> Guard:
    return Guard(
        message=lambda names: (
            f"the part {' and '.join(names)} died; go on with: ablate resume"
        ),
        before_end=lambda: exits.order.append("said"),
    )


@pytest.mark.parametrize("name", ["gcs_server", "DashboardAgent", "RuntimeEnvAgent"])
def test_a_part_that_dies_ends_the_driver_with_its_message(
    exits: Exits, parts: Parts, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    parts.start("raylet")
    parts.start(name)
    guard = guard_of(exits)
    guard.started()
    time.sleep(0.1)
    parts.kill(name)
    assert exits.happened.wait(10)
    assert exits.code == EXIT_CODE
    # The warden must not say the same again.
    assert exits.order == ["said", "exit"]
    assert capfd.readouterr().err == (
        f"\nerror: the part {name} died; go on with: ablate resume\n"
    )
    guard.close()


def test_parts_that_die_together_are_all_named(
    exits: Exits,
    parts: Parts,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A raylet ends both agents if one of them dies, and both may be seen at once."""
    for name in ("RuntimeEnvAgent", "DashboardAgent"):
        parts.start(name)
        parts.kill(name)
    started = threading.Event()
    by_pid = parts.by_pid()
    for pid in by_pid:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def find() -> dict[int, str]:
        started.wait()
        return by_pid

    monkeypatch.setattr(module, "ray_parts", find)
    guard = guard_of(exits)
    guard.started()
    started.set()
    assert exits.happened.wait(10)
    assert "DashboardAgent and RuntimeEnvAgent died" in capfd.readouterr().err
    guard.close()


def test_a_part_that_starts_late_is_watched_too(exits: Exits, parts: Parts) -> None:
    guard = guard_of(exits)
    parts.start("gcs_server")
    guard.started()
    time.sleep(0.2)
    parts.kill("gcs_server")
    assert exits.happened.wait(10)
    guard.close()


def test_a_guard_that_is_closed_says_nothing(
    exits: Exits, parts: Parts, capfd: pytest.CaptureFixture[str]
) -> None:
    parts.start("raylet")
    guard = guard_of(exits)
    guard.started()
    guard.close()
    parts.kill("raylet")
    assert not exits.happened.wait(0.2)
    assert exits.order == []
    assert capfd.readouterr().err == ""


def test_a_driver_may_end_cleanly_after_its_raylet_died(
    exits: Exits, parts: Parts, capfd: pytest.CaptureFixture[str]
) -> None:
    parts.start("raylet")
    guard = guard_of(exits)
    guard.started()
    time.sleep(0.1)
    parts.kill("raylet")
    time.sleep(0.1)
    guard.close()
    assert exits.code is None
    assert capfd.readouterr().err == ""


def test_a_driver_that_does_not_end_after_its_raylet_died_is_ended(
    exits: Exits, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.1)
    parts.start("raylet")
    guard = guard_of(exits)
    guard.started()
    time.sleep(0.1)
    parts.kill("raylet")
    assert exits.happened.wait(10)
    assert exits.code == EXIT_CODE
    guard.close()


def test_a_ray_that_has_not_started_raises_its_own_error(
    exits: Exits, parts: Parts
) -> None:
    parts.start("gcs_server")
    guard = guard_of(exits)
    time.sleep(0.1)
    parts.kill("gcs_server")
    time.sleep(0.1)
    guard.close()
    assert exits.code is None


def named(name: str) -> subprocess.Popen[bytes]:
    """A child whose command line begins with a name."""
    return subprocess.Popen([name, "600"], executable="/bin/sleep")


def until_it_runs(child: subprocess.Popen[bytes], word: str) -> None:
    while word not in " ".join(psutil.Process(child.pid).cmdline()):
        time.sleep(0.01)


def test_the_parts_are_known_by_their_programs() -> None:
    children = {
        "/somewhere/raylet": "raylet",
        "ray::DashboardAgent": "DashboardAgent",
        "ray::IDLE": "",
        "raylet-of-mine": "",
    }
    running = {name: named(name) for name in children}
    try:
        for name, child in running.items():
            until_it_runs(child, name)
        found = ray_parts()
        for name, part in children.items():
            assert found.get(running[name].pid, "") == part
    finally:
        for child in running.values():
            child.kill()
            child.wait()


def test_only_the_autoscaler_is_ended(tmp_path: Path) -> None:
    folder = tmp_path / "ray" / "autoscaler" / "v2"
    folder.mkdir(parents=True)
    (folder / "monitor.py").write_text(SLEEP)
    (folder / "other.py").write_text(SLEEP)
    scripts = ("monitor.py", "other.py")
    running = [
        subprocess.Popen([sys.executable, "-S", str(folder / script)])
        for script in scripts
    ]
    try:
        for script, child in zip(scripts, running, strict=True):
            until_it_runs(child, script)
        end_autoscaler()
        assert not psutil.pid_exists(running[0].pid), "and it is reaped"
        assert running[1].poll() is None
    finally:
        for child in running:
            child.kill()
            child.wait()
