"""Users' trainings on Ray: the same numbers as inline, and workers that are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ablate.store.reader import Reader
from tests.own.test_command import PARTS as COMMAND
from tests.own.test_command import SCRIPT
from tests.own.test_trainer import PARTS as TRAINER
from tests.processes import ended, wait_for_epochs

pytestmark = pytest.mark.ray

SPACES = {
    "fit": "question: a?\ntrainer: fit\nfactors: {act: [relu, tanh]}\nfixed: {width: 8}\n"
    "seeds: 2\nrecipe: {epochs: 15, lr: 1e-2}\n",
    "add": "question: b?\ntrainer: add\nfactors: {scale: [1, 2]}\nseeds: 2\n"
    "recipe: {epochs: 15, lr: 0.5}\n",
}
# Long enough to be killed within.
SLOW = TRAINER.replace(
    "        drawn = ", "        __import__('time').sleep(0.4)\n        drawn = "
)


def ablate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ablate", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ABLATE_CHECKPOINT_SECONDS": "0.01"},
    )


def a_worker(store: Path) -> psutil.Process | None:
    """A process that trains a trial with a stored epoch: it holds the trial's lock.

    A trial without an epoch may not have an attempt that could be lost.
    """
    with Reader(str(store)) as reader:
        _, trials = reader.query(
            "SELECT DISTINCT trial_hash FROM epochs JOIN trials ON trials.hash = trial_hash"
            " WHERE status = 'running'"
        )
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            for entry in Path(f"/proc/{process.pid}/fd").iterdir():
                file = Path(os.readlink(entry))
                if file.name == "lock" and (file.parent.name,) in trials:
                    return process
    return None


@pytest.mark.parametrize("name", SPACES)
def test_a_killed_worker_changes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.py").write_text(f"{SLOW}\n{COMMAND}")
    (tmp_path / "add.py").write_text(SCRIPT.replace("BODY", "time.sleep(0.4)"))
    (tmp_path / "own.yaml").write_text(SPACES[name])
    own = ("own.yaml", "--with", "mine.py")
    plain = ablate(tmp_path, "run", *own, "--executor", "inline", "--runs", "whole")
    assert plain.returncode == 0, plain.stderr
    driver = subprocess.Popen(
        [sys.executable, "-m", "ablate", "run", *own],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ABLATE_CHECKPOINT_SECONDS": "0.01"},
    )
    store = tmp_path / "runs" / "ablate.db"
    with ended(driver):
        wait_for_epochs(driver, store, 2)
        worker = None
        while worker is None:
            assert driver.poll() is None, "the driver ended"
            worker = a_worker(store)
        children = worker.children(recursive=True)
        worker.send_signal(signal.SIGKILL)
        out, err = driver.communicate(timeout=240)
    assert driver.returncode == 0, err
    assert out == plain.stdout
    _, alive = psutil.wait_procs(children, 10)
    assert not alive, "a script ends with its worker"
    with Reader(str(store)) as reader:
        _, lost = reader.query("SELECT COUNT(*) FROM attempts WHERE status = 'lost'")
        _, doubled = reader.query(
            "SELECT COUNT(*) FROM (SELECT 1 FROM epoch_metrics GROUP BY trial_hash,"
            " epoch, name HAVING COUNT(*) > 1)"
        )
    assert lost == [(1,)]
    assert doubled == [(0,)]
