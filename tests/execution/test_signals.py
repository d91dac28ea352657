"""Signals: who hears them, in forks, in Ray's processes, and in what a run leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.processes import wait_for_epochs

KEPT = """
import os, signal, threading, time
from ablate.execution import signals

for number in signals.STOPS:
    # nohup starts the tests with an ignored SIGHUP.
    signal.signal(number, signal.SIG_DFL)
    signals.keep(number, lambda *_: os.write(1, b"heard"))


def forks():
    for number in signals.ENDS * 100:
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        # Often before Python has run a line in the fork.
        os.kill(child, number)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == number, status


thread = threading.Thread(target=forks)
thread.start()
thread.join()
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.1)
"""

POOLED = """
import multiprocessing
import ablate


@ablate.trainer(
    factors={"kind": ["x", "y"]}, metrics=[ablate.Metric("acc", direction="max")]
)
def pooled(trial):
    for _ in trial.epochs():
        with multiprocessing.get_context("fork").Pool(2) as pool:
            total = sum(pool.map(abs, [1, 2]))
        trial.report(acc=total + trial.seed)
"""
SPACE = """
question: Q?
trainer: pooled
factors: {kind: [x, y]}
seeds: 2
recipe: {epochs: 3}
"""
LONG = """
question: Q?
backbone: {family: vit, patch_size: 2, width: 32, depth: 2, heads: 2}
factors: {drop.dropout: [0, 0.1]}
seeds: 1
data: digits
recipe: {epochs: 200, warmup_epochs: 0, batch_size: 64, lr: 1e-3}
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files whose path is short enough for Ray's sockets."""
    with TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        yield Path(folder)


def environment(temporary: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(temporary)}


def left_in(temporary: Path) -> list[str]:
    """What a run has left; torch keeps one cache for all processes of a user."""
    names = os.listdir(temporary)
    return [name for name in names if not name.startswith("torchinductor_")]


@pytest.mark.proof
def test_a_fork_has_the_handlers_of_a_new_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KEPT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "heard"), done.stderr


@pytest.mark.proof
def test_a_trainer_may_fork_a_pool(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(POOLED)
    (tmp_path / "s.yaml").write_text(SPACE)
    words = ["run", "s.yaml", "--with", "mine.py", "--executor", "inline"]
    subprocess.run(
        [sys.executable, "-m", "ablate", *words],
        cwd=tmp_path,
        check=True,
        timeout=60,
        capture_output=True,
    )


# As a library does that saves its state on SIGTERM.
HANDLING = """
    import signal
    signal.signal(signal.SIGTERM, lambda *_: None)
"""


@pytest.mark.ray
@pytest.mark.parametrize("more", ["", HANDLING])
def test_a_pool_works_in_a_worker_of_ray(
    tmp_path: Path, temporary: Path, more: str
) -> None:
    (tmp_path / "mine.py").write_text(
        POOLED.replace("def pooled(trial):\n", f"def pooled(trial):\n{more}")
    )
    (tmp_path / "s.yaml").write_text(SPACE)
    done = subprocess.run(
        [sys.executable, "-m", "ablate", "run", "s.yaml", "--with", "mine.py"],
        cwd=tmp_path,
        check=False,
        timeout=240,
        capture_output=True,
        text=True,
        env=environment(temporary),
    )
    assert done.returncode == 0, done.stderr
    assert "4 trials trained" in done.stderr + done.stdout
    assert left_in(temporary) == []


@pytest.mark.ray
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("every", [False, True])
def test_a_signal_to_all_processes_of_a_run_saves_the_trials(
    tmp_path: Path, temporary: Path, number: signal.Signals, every: bool
) -> None:
    """`timeout` signals the group of a run, SLURM each of its processes."""
    (tmp_path / "s.yaml").write_text(LONG)
    run = subprocess.Popen(
        [sys.executable, "-m", "ablate", "run", "s.yaml", "--cpus", "2"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(temporary) | {"ABLATE_CHECKPOINT_SECONDS": "3600"},
    )
    wait_for_epochs(run, tmp_path / "runs" / "ablate.db", 6)
    if every:
        for process in processes_of(temporary):
            os.kill(process, number)
    else:
        os.killpg(run.pid, number)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors
    assert " died: " not in errors
    saved = list((tmp_path / "runs").rglob("last.pt"))
    assert len(saved) == 2, "both trials have saved, although no checkpoint was due"
    assert not processes_of(temporary)
    assert left_in(temporary) == []


def processes_of(temporary: Path) -> list[int]:
    """The processes of a run, by the variable that names its temporary folder."""
    mark = f"TMPDIR={temporary}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in words:
            found.append(int(entry.name))
    return found


@pytest.mark.ray
def test_the_next_run_removes_what_a_killed_one_has_left(
    tmp_path: Path, temporary: Path
) -> None:
    (tmp_path / "s.yaml").write_text(LONG)
    run = subprocess.Popen(
        [sys.executable, "-m", "ablate", "run", "s.yaml"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment(temporary),
    )
    wait_for_epochs(run, tmp_path / "runs" / "ablate.db", 2)
    # The warden first, so that nothing cleans up.
    for word in (b"warden.py", b"ablate"):
        for process in processes_of(temporary):
            command = Path(f"/proc/{process}/cmdline")
            if command.exists() and word in command.read_bytes():
                os.kill(process, signal.SIGKILL)
    run.wait()
    assert any(name.startswith("ablate-run-") for name in left_in(temporary))
    (tmp_path / "s.yaml").write_text(LONG.replace("epochs: 200", "epochs: 1"))
    subprocess.run(
        [sys.executable, "-m", "ablate", "run", "s.yaml"],
        cwd=tmp_path,
        check=True,
        timeout=240,
        capture_output=True,
        env=environment(temporary),
    )
    assert left_in(temporary) == []
    deadline = time.monotonic() + 20
    while processes_of(temporary) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not processes_of(temporary)
