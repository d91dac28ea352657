"""Kills a run of a study on a real Ray again and again."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from ablate.results.study import Study

KILLS = 3


def completed(store: Path) -> int:
    """Returns how many trials of a store have ended."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{store}?mode=ro", uri=True)
        ) as db:
            query = "SELECT count(*) FROM trials WHERE status = 'completed'"
            return int(db.execute(query).fetchone()[0])
    except sqlite3.OperationalError:
        # The store is being made.
        return 0


def killed_and_undisturbed(
    folder: Path, name: str, text: str, trials: int
) -> tuple[Study, Study]:
    """Returns a study that was killed three times and went on, and one that was not.

    Args:
        name: the name of the study.
        text: its YAML text.
        trials: a run is killed when so many more trials have ended.
    """
    file = f"{name}.yaml"
    (folder / file).write_text(text)
    command = [sys.executable, "-m", "ablate", "run", file, "--store"]
    for number in range(1, KILLS + 1):
        with subprocess.Popen(
            [*command, "killed.db"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as run:
            while completed(folder / "killed.db") < trials * number:
                assert run.poll() is None, "the study ended before the last kill"
                time.sleep(0.05)
            os.killpg(run.pid, signal.SIGKILL)
        # Whatever Ray leaves ends itself.
        time.sleep(1)
    for store, executor in (("killed.db", "ray"), ("undisturbed.db", "local")):
        subprocess.run(
            [*command, store, "--executor", executor],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return (
        Study(name, f"sqlite:///{folder / 'killed.db'}"),
        Study(name, f"sqlite:///{folder / 'undisturbed.db'}"),
    )
