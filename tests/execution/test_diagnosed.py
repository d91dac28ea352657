"""Diagnostics through the whole flow: while training, after a kill, from checkpoints,
in tables and figures.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image

from ablate import pipeline, space
from ablate.errors import AblateError, UnknownName
from ablate.execution.inline import InlineExecutor
from ablate.execution.trial_run import TrialRun
from ablate.pipeline import Options, Outcome
from ablate.records import (
    Diagnostics,
    Ended,
    Job,
    Measured,
    Progressed,
    Resources,
    Status,
)
from ablate.report.charts import Chart
from ablate.results.study import Study
from ablate.results.study_charts import chart
from ablate.store.reader import Reader
from ablate.trained import diagnosis
from tests.training.test_training import trial

RunText = Callable[..., Outcome]


@pytest.fixture
def looked(run_text: RunText, tiny: str) -> None:
    run_text(
        tiny.replace("seeds: 2", "seeds: 1")
        + "diagnostics: {names: [token_cosine, token_similarity], every: 2, images:"
        " 20}\n",
        InlineExecutor(),
    )


@pytest.mark.usefixtures("looked")
def test_what_a_space_asks_for_is_stored_by_layer(options: Options) -> None:
    with Reader(options.url) as reader:
        columns, rows = reader.query(
            "SELECT DISTINCT study, epoch, diagnostic, layer FROM layer_results WHERE"
            " cell = 0 ORDER BY epoch, diagnostic"
        )
    assert columns == ["study", "epoch", "diagnostic", "layer"]
    assert rows == [
        ("tiny", epoch, name, 0)
        for epoch in (2, 3)
        for name in ("token_cosine", "token_similarity")
    ]
    lines = Study("tiny", options.url).layers("token_cosine")
    assert [line.label for line in lines][:2] == [
        "count 0, layout serial",
        "count 0, layout parallel",
    ]
    matrix = Study("tiny", options.url).layers("token_similarity")[0].layers[0]
    assert [len(row) for row in matrix] == [4, 4, 4, 4]


@pytest.mark.usefixtures("looked")
def test_diagnosing_a_checkpoint_gives_what_training_gave(options: Options) -> None:
    study = Study("tiny", options.url)
    before = study.layers("token_cosine")
    looked = diagnosis.diagnose(
        ("tiny",), Diagnostics(("token_cosine", "high_frequency"), 20), options
    )
    assert (looked.trials, looked.without) == (4, 0)
    assert study.layers("token_cosine") == before
    assert study.diagnostics() == ["high_frequency", "token_cosine", "token_similarity"]


@pytest.mark.usefixtures("looked")
def test_one_trial_by_the_beginning_of_its_hash(options: Options) -> None:
    with Reader(options.url) as reader:
        key = str(reader.trials.of("tiny")[0].trial)
    assert (
        diagnosis.diagnose((key[:8],), Diagnostics(("diversity",), 5), options).trials
        == 1
    )
    with pytest.raises(
        UnknownName, match="unknown study or trial 'tini'; did you mean 'tiny'"
    ):
        diagnosis.diagnose(("tini",), Diagnostics(("diversity",)), options)


def test_trials_without_a_checkpoint_are_counted(
    run_text: RunText, tiny: str, options: Options
) -> None:
    run_text(tiny)
    looked = diagnosis.diagnose(("tiny",), Diagnostics(("diversity",)), options)
    assert (looked.trials, looked.without) == (0, 8)
    with pytest.raises(UnknownName, match="take them with: ablate diagnose tiny"):
        Study("tiny", options.url).layers("diversity")


def test_diagnostics_change_no_number(
    run_text: RunText, tiny: str, options: Options, tmp_path: Path
) -> None:
    one = tiny.replace("seeds: 2", "seeds: 1")
    run_text(one + "diagnostics: {every: 1}\n", InlineExecutor())
    plain = Options(runs=tmp_path / "plain", executor="inline")
    pipeline.run(space.load(one, "tiny.yaml"), "tiny.yaml", plain)
    assert Study("tiny", options.url).table("json") == Study("tiny", plain.url).table(
        "json"
    )


def test_a_kill_between_the_last_epoch_and_its_diagnostics_loses_none(
    tmp_path: Path,
) -> None:
    wanted = Diagnostics(("token_cosine",), 10, every=1)
    plain = TrialRun(Job(trial(), str(tmp_path), Resources()), "inline")
    list(plain.start())
    while plain.status == Status.RUNNING:
        list(plain.step())
    plain.close()
    again = TrialRun(
        Job(trial(), str(tmp_path), Resources(), diagnostics=wanted), "inline"
    )
    told = [event for event in again.start() if isinstance(event, Measured)]
    again.close()
    assert [taken.epoch for taken in told[-1].measurements] == [4, 4]
    assert again.status == Status.COMPLETED


def test_an_interrupted_trial_tells_its_diagnostics_again(tmp_path: Path) -> None:
    job = Job(
        trial(),
        str(tmp_path),
        Resources(),
        diagnostics=Diagnostics(("token_cosine",), 10, every=1),
    )
    work = TrialRun(job, "inline")
    list(work.start())
    first = [event for event in work.step() if isinstance(event, Measured)]
    work.interrupt()
    work.close()
    again = TrialRun(job, "inline")
    told = [event for event in again.start() if isinstance(event, Measured)]
    again.close()
    assert told == first


@pytest.mark.proof
def test_trials_known_before_are_counted_until_someone_looks(
    run_text: RunText, tiny: str, options: Options
) -> None:
    assert run_text(tiny, InlineExecutor()).undiagnosed == 0
    assert (
        run_text(tiny + "diagnostics: [diversity]\n", InlineExecutor()).undiagnosed == 8
    )
    diagnosis.diagnose(("tiny",), Diagnostics(("diversity",), 5), options)
    assert (
        run_text(tiny + "diagnostics: [diversity]\n", InlineExecutor()).undiagnosed == 0
    )


def test_a_diagnostic_that_fails_costs_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no light")

    monkeypatch.setattr("ablate.training.loop.measure", fail)
    work = TrialRun(
        Job(
            trial(),
            str(tmp_path),
            Resources(),
            diagnostics=Diagnostics(("diversity",), every=1),
        ),
        "inline",
    )
    told = list(work.start())
    while work.status == Status.RUNNING:
        told += list(work.step())
    work.close()
    last = told[-1]
    assert isinstance(last, Ended)
    assert last.status == Status.COMPLETED
    assert "no light" in last.error
    assert (
        sum(len(event.epochs) for event in told if isinstance(event, Progressed)) == 4
    )


def test_a_diagnostic_asked_for_later_is_missed_until_someone_looks(
    run_text: RunText, tiny: str, options: Options
) -> None:
    one = tiny.replace("seeds: 2", "seeds: 1")
    run_text(one + "diagnostics: [diversity]\n", InlineExecutor())
    assert (
        run_text(
            one + "diagnostics: [diversity, token_cosine]\n", InlineExecutor()
        ).undiagnosed
        == 4
    )
    diagnosis.diagnose(("tiny",), Diagnostics(("token_cosine",), 5), options)
    assert (
        run_text(
            one + "diagnostics: [diversity, token_cosine]\n", InlineExecutor()
        ).undiagnosed
        == 0
    )


def test_published_top1_stands_in_a_column_of_its_own(
    run_text: RunText, tiny: str, options: Options
) -> None:
    document = tiny.replace("  layout: [serial, parallel]\n", "")
    run_text(document)
    with pytest.raises(AblateError, match="names no published table"):
        Study("tiny", options.url).published()
    run_text(document + "published: augvit/table3\n")
    study = Study("tiny", options.url)
    assert study.published() == {0: 79.8, 1: 80.6}
    drawn = chart(study, "pareto", published=True)
    assert isinstance(drawn, Chart)
    (printed,) = [series for series in drawn.series if series.name == "printed"]
    assert dict(zip(printed.keys, printed.y, strict=True)) == study.published()
    assert "printed" not in {series.name for series in chart(study, "pareto").series}
    rows = json.loads(Study("tiny", options.url).table("json"))
    assert "published_top1" not in rows[0]


IMAGES = """question: q
factors:
  attnscale: [false, true]
backbone: vit_tiny_patch16_224
pretrained: true
seeds: 1
data: {name: folder, path: images, image_size: 32, workers: 1}
recipe: {epochs: 1, batch_size: 4, warmup_epochs: 0}
"""


@pytest.mark.proof
def test_images_are_looked_at_as_they_were_trained_on(
    run_text: RunText, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published weights of this ViT want a mean of 0.5, other than ImageNet's; the
    space does not say it.
    """
    for split in ("train", "val"):
        for number in range(8):
            file = tmp_path / "images" / split / f"class{number % 2}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 32), (30 * number, 0, 200)).save(file)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    published = timm.create_model("vit_tiny_patch16_224").state_dict()
    monkeypatch.setattr(
        "ablate.models.initial_weights._published", lambda *_: published
    )
    text = IMAGES + "diagnostics: {names: [token_cosine], images: 4}\n"
    assert run_text(text, InlineExecutor()).trained == 2
    study = Study("tiny", options.url)
    before = study.layers("token_cosine")
    diagnosis.diagnose(("tiny",), Diagnostics(("token_cosine",), 4), options)
    assert study.layers("token_cosine") == before
