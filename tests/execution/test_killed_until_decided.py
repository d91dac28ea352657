"""Seeds until decided on a real Ray: a study that is killed ten times ends the same."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablate.results.study import Study

ROOT = Path(__file__).parents[2]
SPACE = (ROOT / "search_spaces" / "until-decided.yaml").read_text()
# The study of the gallery with few epochs, so that ten starts of Ray fit into a test.
QUICK = SPACE.replace("epochs: 25", "epochs: 4").replace(
    "warmup_epochs: 2", "warmup_epochs: 1"
)
KILLS = 10
# A run is killed when so many more trials have ended.
TRIALS = 2


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


@pytest.mark.ray
@pytest.mark.proof
def test_a_study_that_is_killed_ten_times_ends_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    (tmp_path / "until-decided.yaml").write_text(QUICK)
    command = [sys.executable, "-m", "ablate", "run", "until-decided.yaml", "--store"]
    for number in range(1, KILLS + 1):
        with subprocess.Popen(
            [*command, "killed.db"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as run:
            while completed(tmp_path / "killed.db") < TRIALS * number:
                assert run.poll() is None, "the study ended before the last kill"
                time.sleep(0.05)
            os.killpg(run.pid, signal.SIGKILL)
        # Whatever Ray leaves ends itself.
        time.sleep(1)
    for store, executor in (("killed.db", "ray"), ("undisturbed.db", "local")):
        subprocess.run(
            [*command, store, "--executor", executor],
            cwd=tmp_path,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    tables = [
        Study("until-decided", f"sqlite:///{tmp_path / store}").table("json")
        for store in ("killed.db", "undisturbed.db")
    ]
    assert tables[0] == tables[1]
    seeds = [
        len(cell.statuses)
        for cell in Study("until-decided", f"sqlite:///{tmp_path / 'killed.db'}")
        .results()
        .cells
    ]
    assert max(seeds[1:]) > 3, "some row got further seeds"
