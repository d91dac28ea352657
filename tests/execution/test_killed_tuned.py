"""Rows that choose their settings, on a real Ray: ten kills change no byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablate.results.study import Study
from tests.execution.test_killed_until_decided import completed

ROOT = Path(__file__).parents[2]
SPACE = (ROOT / "search_spaces" / "tuned.yaml").read_text()
# The study of the documentation with few epochs, so that ten starts of Ray fit into a
# test.
QUICK = SPACE.replace("epochs: 20", "epochs: 2").replace("settings: 8", "settings: 4")
KILLS = 10
# A run is killed when so many more trials have ended: 12 trials choose, 25 follow.
TRIALS = 3


@pytest.mark.ray
@pytest.mark.proof
def test_a_study_that_is_killed_ten_times_ends_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    assert QUICK != SPACE
    (tmp_path / "tuned.yaml").write_text(QUICK)
    command = [sys.executable, "-m", "ablate", "run", "tuned.yaml", "--store"]
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
    killed, undisturbed = (
        Study("tuned", f"sqlite:///{tmp_path}/{store}")
        for store in ("killed.db", "undisturbed.db")
    )
    for form in ("md", "csv", "json", "latex"):
        assert killed.table(form) == undisturbed.table(form)
    assert killed.effects_table("tuning") == undisturbed.effects_table("tuning")
