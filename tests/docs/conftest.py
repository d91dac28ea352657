"""A folder as a reader of the pages has it, with made-up trials instead of Ray."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import ablate
from ablate import execution, pipeline, space
from ablate.execution import Executor
from ablate.execution.simulated import SimulatedExecutor, made_up
from ablate.own import registry
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from tests.conftest import TINY
from tests.docs.commands import ROOT

# The studies that are finished, by their files.
STUDIES = (
    "mine.yaml",
    "space.yaml",
    "search_spaces/quickstart.yaml",
    "search_spaces/augvit/table3-small.yaml",
    "search_spaces/augvit/figure3-small.yaml",
    "search_spaces/patchdiv/figure2-small.yaml",
    "search_spaces/antioversmoothing/figure1-small.yaml",
    "search_spaces/mabvit/s16-18-small.yaml",
)
ELSEWHERE = ROOT / "tests" / "elsewhere" / "files"
LADDERS = tuple(
    f"search_spaces/{name}.yaml"
    for name in (
        "sizes",
        "fashion-sizes",
        "fashion-sizes-tuned",
        "character-sizes",
        "character-sizes-tuned",
    )
)
SMALL = TINY.replace("layout: [serial, parallel]", "ffn.kernel: [none, 3]").replace(
    "test_images: 50", "test_images: 300"
)
TUNED = SMALL + "tune: {recipe.lr: {low: 1e-4, high: 1e-2, scale: log}, settings: 3}\n"
SIZES = SMALL.replace("width: 16, ", "") + "across: {size.width: [8, 16]}\n"
MORE = """
control: iso-flops
diagnostics:
  names: [diversity, token_cosine, feature_map, high_frequency, smoothing]
  every: 3
published: augvit/table3
"""


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and the finished studies that the pages name."""
    folder = tmp_path_factory.mktemp("reader")
    options = Options(runs=folder / "runs", executor="inline", cpus=1)
    for name in STUDIES:
        pipeline.run(space.load(SMALL + MORE, name), name, options)
    tuned = TUNED.replace("digits,", "digits, validation: 0.2,").replace(
        "lr: 2e-3, ", ""
    )
    pipeline.run(space.load(tuned, "search_spaces/tuned.yaml"), "tuned.yaml", options)
    for name in LADDERS:
        pipeline.run(space.load(SIZES, name), name, options)
    (folder / "mine.yaml").write_text(SMALL + MORE)
    # What `ablate init` writes.
    shutil.copy(ROOT / "ablate" / "cli" / "space.yaml", folder)
    # What other tools have written.
    shutil.copy(ELSEWHERE / "pandas.csv", folder / "results.csv")
    shutil.copytree(ELSEWHERE / "tensorboard", folder / "tensorboard")
    frame = pd.read_csv(ELSEWHERE / "pandas.csv")
    judged = ablate.judge(frame, baseline={"norm": "layer"})
    judged.keep("results", runs=folder / "runs")
    ablate.open_chain("parts", runs=folder / "runs").begin_space(folder / "mine.yaml")
    shutil.copytree(folder / "runs", folder / "other")
    shutil.copytree(ROOT / "search_spaces", folder / "search_spaces")
    return folder


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials that would run on Ray are made up."""
    real = execution.make

    def make(name: str, *rest: object) -> Executor:
        return SimulatedExecutor(curve) if name == "ray" else real(name)

    monkeypatch.setattr(execution, "make", make)


def curve(trial: Trial, number: int) -> Epoch:
    """A made-up epoch, also with the metrics of the reader's trainers."""
    epoch = made_up(trial, number)
    own = [
        metric.name
        for trainer in registry.of_kind("trainer").values()
        for metric in trainer.metrics
    ]
    values = dict.fromkeys(own, max(epoch.metrics.values()))
    return replace(epoch, metrics={**epoch.metrics, **values})
