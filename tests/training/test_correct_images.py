"""Which test images a trial gets right: measured, kept over kills, stored, compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ablate import pipeline, space
from ablate.errors import AblateError
from ablate.execution.inline import InlineExecutor
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.plan import make_plan
from ablate.records import CorrectImages, Trial
from ablate.report.new_images import mean_squares
from ablate.results.study import Study
from ablate.scheduling.cost_cache import CostCache
from ablate.store.other_store import import_studies
from ablate.store.reader import Reader
from ablate.training import Training
from tests.conftest import TINY, RunText, Say

SHORT = TINY.replace("epochs: 3", "epochs: 2").replace(
    "design: grid", "design: add-one-in"
)


def trial_of(text: str) -> Trial:
    declared = space.load(text, "tiny.yaml")
    return make_plan(declared, CostCache({})).trials[0]


def finished(trial: Trial, folder: Path | None = None, **options: object) -> Training:
    training = Training(trial, folder, **options)
    while not training.finished:
        training.epoch()
    training.close()
    return training


@pytest.mark.parametrize("images", [1, 7, 8, 50, 1001])
def test_packing_loses_nothing(images: int) -> None:
    correct = np.random.default_rng(images).random(images) < 0.7
    packed = CorrectImages.of(correct)
    assert len(packed.bits) == -(-images // 8)
    assert (packed.array() == correct).all()


def test_the_share_of_right_images_is_the_accuracy(tmp_path: Path) -> None:
    training = finished(trial_of(SHORT))
    assert training.correct is not None
    correct = training.correct.array()
    assert len(correct) == 50
    assert 100 * correct.mean() == pytest.approx(training.epochs[-1].metrics["top1"])
    assert 0 < correct.sum() < 50


def test_with_a_validation_split_they_are_those_of_the_test_set(tmp_path: Path) -> None:
    text = SHORT.replace("test_images: 50", "test_images: 50, validation: 0.2")
    training = finished(trial_of(text))
    assert training.correct is not None
    assert training.tested is not None
    assert 100 * training.correct.array().mean() == pytest.approx(
        training.tested.metrics["top1"]
    )


def test_with_the_best_weights_they_are_those_of_these_weights() -> None:
    text = SHORT.replace("test_images: 50", "test_images: 50, validation: 0.2").replace(
        "epochs: 2", "epochs: 4, select: best"
    )
    training = finished(trial_of(text))
    assert training.correct is not None
    assert training.tested is not None
    assert 100 * training.correct.array().mean() == pytest.approx(
        training.tested.metrics["top1"]
    )


@pytest.mark.parametrize("weights_only", [False, True])
def test_a_kill_after_the_last_epoch_loses_none(
    tmp_path: Path, weights_only: bool
) -> None:
    trial = trial_of(SHORT)
    training = Training(trial, tmp_path / "trial")
    while not training.finished:
        training.epoch()
    training.save(weights_only=weights_only)
    training.close()
    again = Training(trial, tmp_path / "trial")
    again.close()
    assert again.finished
    assert again.correct == training.correct is not None


def test_a_longer_training_does_not_take_those_of_its_beginning(tmp_path: Path) -> None:
    text = SHORT.replace("warmup_epochs: 0", "warmup_epochs: 0, schedule: constant")
    short = trial_of(text)
    training = Training(short, tmp_path / "short")
    while not training.finished:
        training.epoch()
    training.save()
    training.close()
    longer = replace(short, recipe=replace(short.recipe, epochs=3))
    begun = Training(
        longer, tmp_path / "longer", beginnings={short.hash: f"{tmp_path}/short"}
    )
    begun.close()
    assert len(begun.epochs) == 2
    assert begun.correct is None


@pytest.mark.proof
def test_several_processes_report_none() -> None:
    training = finished(trial_of(SHORT), None, processes=2)
    assert training.correct is None


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Options:
    options = Options(
        runs=tmp_path_factory.mktemp("studied"), executor="inline", cpus=2
    )
    declared = space.load(SHORT, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", options, None, InlineExecutor())
    return options


def test_the_store_has_one_bit_per_image(studied: Options) -> None:
    with Reader(studied.url) as reader:
        images = reader.studies.correct_images("tiny")
        results = reader.studies.results("tiny")
    assert len(images) == sum(len(cell.values) for cell in results.cells)
    for cell in results.cells:
        for seed, value in cell.values.items():
            mean = 100 * images[cell.index, seed].array().mean()
            assert mean == pytest.approx(value)
            assert len(images[cell.index, seed].bits) == 7


def test_a_table_shows_both_intervals(studied: Options) -> None:
    study = Study("tiny", studied.url)
    table = study.effects_table("images")
    effects = {effect.row: effect for effect in study.effects()}
    assert table.data
    for row in table.data:
        assert row["difference"] == pytest.approx(effects[row["row"]].mean)
        assert row["won"] + row["lost"] <= 50
        if row["low"] is None:
            continue
        assert row["new_low"] <= row["low"]
        assert row["new_high"] >= row["high"]
        assert 0 < row["p_better"] < 1


def test_the_table_says_what_the_number_of_images_does(studied: Options) -> None:
    (line,) = (
        note
        for note in Study("tiny", studied.url).effects_table("images").notes
        if "standard deviation, pooled over rows" in note
    )
    assert "points are expected from the number of test images alone" in line


def test_images_as_a_frame(studied: Options) -> None:
    frame = Study("tiny", studied.url).images()
    results = Study("tiny", studied.url).results()
    assert frame.shape[0] == 50
    for cell in results.cells:
        if cell.values:
            mean = sum(cell.values.values()) / len(cell.values)
            assert 100 * frame[cell.index].mean() == pytest.approx(mean)


def test_an_import_brings_the_images(studied: Options, tmp_path: Path) -> None:
    other = Options(runs=tmp_path / "other")
    import_studies(studied.url, other.url)
    with Reader(studied.url) as reader:
        wanted = reader.studies.correct_images("tiny")
    with Reader(other.url) as reader:
        assert reader.studies.correct_images("tiny") == wanted


def test_a_study_without_images_says_where_they_come_from(
    run_text: RunText, options: Options
) -> None:
    run_text(TINY, SimulatedExecutor())
    with pytest.raises(AblateError, match="at the end of each trial"):
        Study("tiny", options.url).effects_table("images")


def test_the_verb_refuses_a_margin(say: Say) -> None:
    code, _, error = say("effects", "tiny", "--of", "images", "--margin", "1")
    assert code == 2
    assert "Traceback" not in error


def test_mean_squares_are_those_of_the_textbook() -> None:
    """A crossed analysis of variance by another way: sums of squares of statsmodels."""
    import pandas as pd
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    generator = np.random.default_rng(5)
    differences = generator.integers(-1, 2, (4, 12))
    frame = pd.DataFrame(
        [
            (seed, image, 100 * value)
            for (seed, image), value in np.ndenumerate(differences)
        ],
        columns=["seed", "image", "value"],
    )
    table = anova_lm(ols("value ~ C(seed) + C(image)", frame).fit())
    found = mean_squares(differences)
    assert found.of_seeds == pytest.approx(table["mean_sq"]["C(seed)"])
    assert found.of_images == pytest.approx(table["mean_sq"]["C(image)"])
    assert found.of_rest == pytest.approx(table["mean_sq"]["Residual"])


def test_the_interval_over_seeds_is_the_paired_t_test() -> None:
    generator = np.random.default_rng(6)
    differences = generator.integers(-1, 2, (5, 200))
    estimate = mean_squares(differences).over_seeds()
    assert estimate is not None
    by_seed = 100 * differences.mean(axis=1)
    wanted = stats.ttest_1samp(by_seed, 0).confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx(tuple(wanted))


def test_without_spread_there_is_no_interval() -> None:
    squares = mean_squares(np.zeros((3, 10)))
    assert squares.over_seeds() is None
    assert squares.over_both() is None
    assert squares.better() is None
