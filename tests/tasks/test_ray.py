"""A study of detection on Ray: killed, resumed, tabulated, with diagnostics."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.records import Status
from ablate.store.reader import Reader
from tests.processes import ended, kill_with_children, wait_for_epochs

SPACE = """
question: Does IFFN keep the box AP?
task: detection
head: mask-rcnn-small
backbone: {family: vit, width: 48, depth: 2, heads: 2, patch_size: 8}
factors:
  ffn.agelu: [0, 2]
fixed: {ffn.kernel: 3}
data: {name: digit-scenes, train_images: 24, test_images: 6}
recipe: {epochs: 5, batch_size: 8, flip: 0.5, lr: 1e-3}
diagnostics: [high_frequency]
seeds: 1
"""


@pytest.mark.ray
def test_a_killed_study_of_detection_resumes_to_the_same_table(tmp_path: Path) -> None:
    (tmp_path / "scenes.yaml").write_text(SPACE)
    environment = {**os.environ, "ABLATE_CHECKPOINT_SECONDS": "0.1"}

    def ablate(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ablate", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    plain = ablate("run", "scenes.yaml", "--runs", "whole", "--executor", "inline")
    assert plain.returncode == 0, plain.stderr
    driver = subprocess.Popen(
        [sys.executable, "-m", "ablate", "run", "scenes.yaml"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    store = tmp_path / "runs" / "ablate.db"
    with ended(driver):
        wait_for_epochs(driver, store, 1)
        kill_with_children(driver)
    with Reader(str(store)) as reader:
        assert reader.studies.get("scenes").by_status != {Status.COMPLETED: 2}
    resumed = ablate("resume")
    assert resumed.returncode == 0, resumed.stderr
    tables = [ablate("table", "scenes", "--runs", runs) for runs in ("whole", "runs")]
    assert "box AP" in tables[0].stdout
    assert tables[0].stdout == tables[1].stdout
    with Reader(str(store)) as reader:
        assert reader.studies.get("scenes").by_status == {Status.COMPLETED: 2}
        assert reader.diagnostics.names("scenes") == ["high_frequency"]
        query = (
            "SELECT trial_hash, epoch, name, value FROM epoch_metrics"
            " ORDER BY trial_hash, epoch, name"
        )
        found = reader.query(query)[1]
    with Reader(str(tmp_path / "whole" / "ablate.db")) as reader:
        assert found == reader.query(query)[1]
    # Two trials, five epochs; all objects of these scenes are small.
    assert len(found) == 2 * 5 * 9
