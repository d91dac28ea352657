"""`metric: {top1: {over: 4}}`: the mean of a metric over the last epochs is compared."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.errors import AblateError, SpaceError
from ablate.execution.simulated import SimulatedExecutor
from ablate.own import registry
from ablate.pipeline import Options
from ablate.records import Epoch, Known, Metric, Status, Trial
from ablate.records.changes import changes
from ablate.records.plain import to_data
from ablate.report.charts import Chart
from ablate.report.verdicts import Verdict
from ablate.results import study_charts
from ablate.results.study import Study
from ablate.scheduling.outcomes import outcome_of
from ablate.store.reader import Reader
from ablate.trained.reproduce import reproduce
from tests.conftest import Say

TEXT = """
name: over
question: Does a shortcut help?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors: {shortcuts.count: [0, 1]}
seeds: 3
data: {name: digits, train_images: 100, test_images: 50}
recipe: {epochs: 6, batch_size: 50, warmup_epochs: 0}
metric: {top1: {over: 4}}
"""
LAST = TEXT.replace("metric: {top1: {over: 4}}\n", "")


def curve(trial: Trial, number: int) -> Epoch:
    """An epoch whose accuracy is its number, and 100 after the last one."""
    top1 = 100.0 if number == 6 else float(number) + trial.seed
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": 90.0},
        lr=1e-3,
        seconds=0.1,
    )


def trained(text: str, options: Options) -> Study:
    executor = SimulatedExecutor(curve)
    pipeline.run(space.load(text, "over.yaml"), "over.yaml", options, executor=executor)
    return Study("over", options.url)


MEANS = {seed: (3 + 4 + 5 + 3 * seed + 100) / 4 for seed in range(3)}


def test_everything_shows_the_mean_over_the_last_epochs(
    options: Options, say: Say
) -> None:
    study = trained(TEXT, options)
    assert [dict(cell.values) for cell in study.read()[0].cells] == [MEANS, MEANS]
    assert "top-1, mean of last 4 (%)" in study.table()
    assert "last 4 epochs, test set" in study.table()
    assert study.frame()["top1_last4"].tolist() == [*MEANS.values()] * 2
    with Reader(options.url) as reader:
        rows = reader.trials.of("over")
        known = reader.trials.known([rows[0].trial])[rows[0].trial]
    assert [row.metrics["top1_last4"] for row in rows] == [*MEANS.values()] * 2
    assert {row.metrics["top1"] for row in rows} == {100.0}
    declared = study.declared()
    assert known.value(declared.criterion.compared) == MEANS[0]
    assert outcome_of([known], declared.criterion, None).values == (MEANS[0],)
    # A curve shows what is measured after each epoch.
    curves = study_charts.chart(study, "curves")
    assert isinstance(curves, Chart)
    assert curves.y == "top-1 (%)"
    statement = "SELECT AVG(top1_last4) FROM results_over"
    _, printed, _ = say("query", statement, "--store", options.url)
    assert f"{sum(MEANS.values()) / 3:g}" in printed


def test_known_trials_are_compared_anew_and_none_is_trained_again(
    options: Options,
) -> None:
    last = trained(LAST, options)
    assert dict(last.read()[0].cells[0].values) == dict.fromkeys(range(3), 100.0)
    declared = space.load(TEXT, "over.yaml")
    outcome = pipeline.run(
        declared, "over.yaml", options, executor=SimulatedExecutor(curve)
    )
    assert outcome.trained == 0
    assert dict(last.read()[0].cells[0].values) == MEANS
    before = to_data(space.load(LAST, "over.yaml"))
    named = [change.partition(":")[0] for change in changes(before, to_data(declared))]
    assert named == ["metric"]


def test_a_training_that_ends_earlier_counts_as_a_whole() -> None:
    metric = Metric("top1", direction="max").over_last(5)
    epochs = tuple(
        Epoch(number=n, metrics={"top1": 10.0 * n}, lr=0.0, seconds=0.0)
        for n in (1, 2, 3)
    )
    assert Known(Status.COMPLETED, epochs).value(metric) == 20.0
    assert Known(Status.PRUNED, epochs).value(metric) is None
    assert Known(Status.COMPLETED, ()).value(metric) is None
    assert math.isclose(metric.mean([1e300, 0.1, 0.2, 0.3, -0.1, -0.5]), 0.0, abs_tol=1)


def test_a_trial_is_reproduced(options: Options) -> None:
    text = TEXT.replace("seeds: 3", "seeds: 1")
    pipeline.run(space.load(text, "over.yaml"), "over.yaml", options)
    with Reader(options.url) as reader:
        row = reader.trials.of("over")[0]
    again = reproduce(row.trial, options)
    assert again.same
    assert again.metric == "top1_last4"
    assert again.stored == again.found == row.metrics["top1_last4"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("over: 4", "over: 7", "as many, and a trial has 6"),
        ("over: 4", "over: 1", "metric.top1.over: must be greater than or equal to 2"),
        ("over: 4", "over: 4.5", "metric.top1.over"),
        ("over: 4", "last: 4", "unknown key 'last'"),
        ("over: 4", "over: 4, direction: min", "the wrong way round"),
        ("over: 4", "over: 4, direction: up", "'up' is not allowed"),
        ("{top1: {over: 4}}", "{top1: {over: 4}, flops: min}", "several belong to a"),
        ("{top1: {over: 4}}", "{flops: {over: 4}}", "the first metric must be one of"),
        ("{top1: {over: 4}}", "{top1: [4]}", "metric.top1"),
        ("{top1: {over: 4}}", "{top1: 4}", "4 is not allowed"),
        ("test_images: 50}", "test_images: 50, validation: 0.2}", "data.validation"),
        ("count: [0, 1]}", "count: [0, 1], recipe.epochs: [6, 3]}", "a trial has 3"),
    ],
)
def test_a_mean_that_no_trial_has_is_refused(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(SpaceError) as refused:
        space.load(TEXT.replace(old, new), "over.yaml")
    assert message in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_a_cost_has_no_mean_over_epochs() -> None:
    text = TEXT.replace("{top1: {over: 4}}", "{top1: max, flops: {over: 4}}")
    text += "strategy: {name: nsga2, cells: 4}\n"
    with pytest.raises(SpaceError, match="flops is a cost, which no epoch changes"):
        space.load(text, "over.yaml")


def test_the_full_form_without_a_mean_is_the_short_one() -> None:
    full = TEXT.replace("{over: 4}", "{direction: max}")
    short = TEXT.replace("{over: 4}", "max")
    declared = space.load(full, "over.yaml")
    assert replace(declared, document="") == replace(
        space.load(short, "over.yaml"), document=""
    )


TRAINER = """
import ablate

@ablate.trainer(
    factors={"depth": [1, 2]},
    metrics=[METRICS],
)
def deep(trial):
    for epoch in trial.epochs():
        trial.report(acc=1.0)
"""
OWN = """
question: Does depth help?
trainer: deep
factors: {depth: [1, 2]}
recipe: {epochs: 12}
metric: {NAME: {over: 10}}
"""


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (
            'ablate.Metric("acc_of_twenty_letters"[:20], direction="max")',
            "shorter name",
        ),
        (
            'ablate.Metric("acc", direction="max"), '
            'ablate.Metric("acc_last10", direction="max")',
            "there is a metric of this name",
        ),
    ],
)
def test_the_mean_has_a_name_of_its_own(
    tmp_path: Path, metrics: str, message: str
) -> None:
    file = tmp_path / f"deep_{message.replace(' ', '_')}.py"
    file.write_text(TRAINER.replace("METRICS", metrics))
    registry.load_file(file)
    name = "acc" if "acc_last10" in metrics else "acc_of_twenty_letters"[:20]
    with pytest.raises(SpaceError, match=message):
        space.load(OWN.replace("NAME", name), "own.yaml")


def test_a_trainer_does_not_declare_a_mean(tmp_path: Path) -> None:
    metric = 'ablate.Metric("mean", direction="max", of="acc", over=3)'
    file = tmp_path / "deep_mean.py"
    file.write_text(TRAINER.replace("METRICS", metric))
    with pytest.raises(AblateError, match=r"metric: \{acc: \{over: 3\}\}"):
        registry.load_file(file)


def test_a_curve_of_the_mean_is_that_of_its_metric(options: Options) -> None:
    study = trained(TEXT, options)
    of_mean = study_charts.chart(study, "curves", metric="top1_last4")
    of_last = study_charts.chart(study, "curves", metric="top1")
    assert of_mean == of_last
    assert isinstance(of_mean, Chart)
    assert len(of_mean.series[0].x) == 6


def noisy(trial: Trial, number: int) -> Epoch:
    """An epoch in which a shortcut helps by 5 points, with a little noise."""
    helps = 5.0 * int(trial.architecture.settings.get("shortcuts.count", 0))
    noise = int(trial.hash[:4], 16) / 2**16
    epoch = curve(trial, number)
    return replace(epoch, metrics={**epoch.metrics, "top1": 50 + helps + noise})


@pytest.mark.parametrize("metric", ["metric: {top1: {over: 4}}", "metric: {top1: max}"])
def test_seeds_are_added_until_the_mean_is_decided(
    options: Options, metric: str
) -> None:
    text = TEXT.replace("seeds: 3", "seeds: {until_decided: 12, start: 4, step: 4}")
    text = text.replace("metric: {top1: {over: 4}}", metric)
    declared = space.load(text, "over.yaml")
    outcome = pipeline.run(
        declared, "over.yaml", options, executor=SimulatedExecutor(noisy)
    )
    # A clear effect needs no seed beyond the first look.
    assert outcome.trained == 8
    (effect,) = Study("over", options.url).effects()
    assert effect.verdict is Verdict.HELPS


@pytest.mark.parametrize("length", ["steps: 6", "images: 300"])
def test_a_length_in_steps_is_counted_in_epochs(options: Options, length: str) -> None:
    """100 images make two steps of 50, so that both are three epochs."""
    text = TEXT.replace("epochs: 6", length)
    with pytest.raises(AblateError, match="a trial has 3; write over: 3 at most"):
        pipeline.preview(space.load(text, "over.yaml"), options.url)
    longer = text.replace("steps: 6", "steps: 50").replace(
        "images: 300", "images: 2500"
    )
    longer = longer.replace("over: 4", "over: 22")
    planned = pipeline.preview(space.load(longer, "over.yaml"), options.url).plan.cells
    assert [cell.feasible for cell in planned] == [True, True]
