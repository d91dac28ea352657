"""Export to an Optuna storage, opened with Optuna itself and with the real
optuna-dashboard.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import optuna
import pytest

from ablate.errors import AblateError
from ablate.execution.simulated import SimulatedExecutor, made_up
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.results.study import Study
from tests.conftest import RunText, Say
from tests.ports import free_port

SEARCH = """
question: Where is the optimum?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors:
  shortcuts.count: [0, 1, 2]
  shortcuts.b: [1, 4]
  recipe.lr: [1e-4, 1e-3, 1e-2]
strategy: {name: random, cells: 8}
limits: ["params <= 1.03 * baseline.params"]
metric: {top1: max, flops: min}
seeds: 2
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 3, batch_size: 50, warmup_epochs: 0}
"""


@pytest.mark.proof
def test_a_search_is_an_optuna_study(
    run_text: RunText, options: Options, tmp_path: Path
) -> None:
    run_text(SEARCH)
    to = f"sqlite:///{tmp_path}/optuna.db"
    written = Study("tiny", options.url).export_optuna(to)
    study = optuna.load_study(study_name="tiny", storage=to)
    assert len(study.trials) == written
    assert [direction.name for direction in study.directions] == [
        "MAXIMIZE",
        "MINIMIZE",
    ]
    done = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    assert len(done) == 8
    by_row = {cell.index: cell for cell in Study("tiny", options.url).results().cells}
    for trial in done:
        cell = by_row[trial.user_attrs["row"]]
        assert trial.values == [
            pytest.approx(sum(cell.values.values()) / 2),
            cell.cost and cell.cost.flops,
        ]
        assert trial.params == {
            name: level
            for name, level in cell.levels.items()
            if name not in cell.unread
        }
    refused = [trial for trial in study.trials if trial.state.name == "FAIL"]
    assert refused
    assert all(trial.user_attrs["note"] for trial in refused)
    with pytest.raises(AblateError, match="has a study 'tiny' already"):
        Study("tiny", options.url).export_optuna(to)
    with pytest.raises(AblateError, match="write a URL such as"):
        Study("tiny", options.url).export_optuna("nowhere")


@pytest.mark.proof
def test_the_dashboard_opens_it(
    run_text: RunText, tiny: str, options: Options, tmp_path: Path
) -> None:
    def curve(trial: Trial, number: int) -> Epoch:
        if trial.seed == 1 and "layout" in trial.architecture.settings:
            raise RuntimeError("no")
        return made_up(trial, number)

    run_text(tiny, SimulatedExecutor(curve))
    to = f"sqlite:///{tmp_path}/optuna.db"
    assert Study("tiny", options.url).export_optuna(to) == 4
    port = free_port()
    program = str(Path(sys.executable).with_name("optuna-dashboard"))
    server = subprocess.Popen(
        [program, to, "--host", "127.0.0.1", "--port", str(port)],
        stderr=subprocess.DEVNULL,
    )
    try:
        studies = _asked(f"http://127.0.0.1:{port}/api/studies", server)
        assert [study["study_name"] for study in studies["study_summaries"]] == ["tiny"]
        detail = _asked(
            f"http://127.0.0.1:{port}/api/studies/{studies['study_summaries'][0]['study_id']}",
            server,
        )
        states = sorted(trial["state"] for trial in detail["trials"])
        assert states == ["Complete", "Complete", "Fail", "Fail"]
    finally:
        server.terminate()
        server.wait()


def _asked(url: str, server: subprocess.Popen[bytes]) -> Any:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)
        except OSError:
            assert server.poll() is None, "the dashboard ended"
            assert time.monotonic() < deadline, "the dashboard does not answer"
            time.sleep(0.2)


OTHER = """
question: Does the layout help?
name: other
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors: {shortcuts.count: [0, 1], layout: [serial, parallel]}
seeds: 2
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 3, batch_size: 50, warmup_epochs: 0}
"""


def test_all_studies_in_one_file(run_text: RunText, options: Options, say: Say) -> None:
    import pandas as pd

    run_text(SEARCH.replace("cells: 8", "cells: 3"))
    run_text(OTHER)
    where = ("--store", options.url)
    for ending in ("parquet", "csv", "json"):
        code, _, error = say("export", "--all", "--to", f"all.{ending}", *where)
        assert code == 0, error
    frame = pd.read_parquet("all.parquet")
    assert frame.columns[0] == "study"
    counts = frame["study"].value_counts().to_dict()
    assert set(counts) == {"tiny", "other"}
    for name, number in counts.items():
        assert len(Study(name, options.url).frame()) == number
    layouts = frame[frame["study"] == "other"]["layout"]
    assert set(layouts) == {"serial", "parallel"}
    assert frame[frame["study"] == "tiny"]["layout"].isna().all()
    assert len(pd.read_csv("all.csv")) == len(frame)
    assert len(json.loads(Path("all.json").read_text())) == len(frame)
    for words in (("export",), ("export", "tiny", "--all"), ("export", "--all")):
        code, _, error = say(*words, *where)
        assert code == 2
        assert "--all" in error
