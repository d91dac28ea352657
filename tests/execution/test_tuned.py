"""Rows that choose their settings: each at its own best one, trained on fresh seeds."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ablate import space
from ablate.errors import AblateError, SpaceError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options, Outcome, preview
from ablate.records import (
    FIRST_TUNING_SEED,
    Epoch,
    Standing,
    Status,
    StudyResults,
    Trial,
)
from ablate.report.charts import Chart
from ablate.report.verdicts import Withheld
from ablate.results.review import review
from ablate.results.study import Study
from ablate.store.reader import Reader
from ablate.store.writer import Writer
from tests.conftest import Killed, RunText, Say, killing, made_once

STUDY = """
question: Does a depthwise kernel help once every row has its own learning rate?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors: {ffn.kernel: [none, 3], value: [none, silu]}
design: one-at-a-time
tune:
  recipe.lr: {low: 1e-4, high: 1e-2, scale: log}
  settings: 6
seeds: 3
data: {name: digits, train_images: 200, test_images: 50, validation: 0.2}
recipe: {epochs: 2, batch_size: 50, warmup_epochs: 0}
"""
LISTED = STUDY.replace(
    "{low: 1e-4, high: 1e-2, scale: log}\n  settings: 6", "[1e-4, 1e-3, 1e-2]"
)
REPEATED = STUDY.replace("settings: 6", "settings: 6\n  repeat: true")
SEEDS = (0, 1, 2)
ROWS, SETTINGS = 3, 6


def best_lr(trial: Trial) -> float:
    """The learning rate at which a row is best: another one for each row."""
    if trial.architecture.settings.get("ffn.kernel"):
        return 1e-2
    if trial.architecture.settings.get("value"):
        return 1e-4
    return 1e-3


def curve(trial: Trial, number: int) -> Epoch:
    """A result that falls with the distance from the best learning rate of the row."""
    distance = abs(math.log10(trial.recipe.lr / best_lr(trial)))
    noise = random.Random(trial.hash).gauss(0, 0.2)
    top1 = 80 - 10 * distance + noise
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": 99.0},
        lr=trial.recipe.lr,
        seconds=1.0,
    )


def lrs(results: StudyResults) -> list[set[float]]:
    """The learning rates that the seeds of each row have chosen."""
    assert results.tune is not None
    points = results.tune.points
    return [
        {float(points[setting]["recipe.lr"]) for setting in cell.settings.values()}
        for cell in results.cells
    ]


def results(options: Options, name: str = "tiny") -> StudyResults:
    return Study(name, options.url).results()


Listed = Callable[[], Outcome]


@pytest.fixture
def listed(
    run_text: RunText, options: Options, tmp_path_factory: pytest.TempPathFactory
) -> Listed:
    """Runs LISTED with the results of `curve`; goes on with what is stored."""

    def run() -> Outcome:
        return run_text(LISTED, SimulatedExecutor(curve))

    return lambda: made_once("listed", options.runs, tmp_path_factory, run)


def test_each_row_has_its_own_best_setting_on_fresh_seeds(
    listed: Listed, options: Options
) -> None:
    outcome = listed()
    stored = results(options)
    assert lrs(stored) == [{1e-3}, {1e-2}, {1e-4}]
    for cell in stored.cells:
        assert tuple(cell.values) == SEEDS
    # 3 settings of 3 rows, 3 seeds of each, and 2 rows at the setting of row 0.
    assert outcome.trials == outcome.trained == 9 + 9 + 6
    assert not outcome.interrupted
    assert listed().trained == 0


def test_all_rows_try_the_same_settings_on_seeds_of_no_table(
    run_text: RunText, options: Options
) -> None:
    run_text(STUDY, SimulatedExecutor(curve))
    stored = results(options)
    with Reader(options.url) as reader:
        tried = reader.studies.tried(stored)
        known = {trial.trial for trial in reader.trials.of("tiny", beside=True)}
    tuning = [trial for trial in tried if trial.stage == "tuning"]
    counts = Counter((trial.row, trial.setting) for trial in tuning)
    assert counts == {(row, s): 1 for row in range(ROWS) for s in range(SETTINGS)}
    assert {trial.seed for trial in tuning} == {FIRST_TUNING_SEED}
    for trial in tuning:
        assert trial.score is not None
    assert len(known) == ROWS * SETTINGS + ROWS * 3 + 2 * 3


@pytest.mark.proof
def test_a_score_is_that_of_the_held_out_images(
    run_text: RunText, options: Options
) -> None:
    # Really trained: the metric of an epoch is that of the held-out images, and the
    # final one that of the test images.
    from ablate.execution import make

    text = LISTED.replace(", validation: 0.2", ", validation: 0.4")
    run_text(text, make("inline", ""))
    stored = results(options)
    assert stored.tune is not None
    with Reader(options.url) as reader:
        tried = reader.studies.tried(stored)
        trials = {
            (trial.row, trial.setting): trial.trial
            for trial in reader.trials.of("tiny", beside=True)
            if trial.stage == "tuning"
        }
        known = reader.trials.known(trials.values())
    tuning = [trial for trial in tried if trial.stage == "tuning"]
    assert tuning
    for trial in tuning:
        epochs = known[trials[trial.row, trial.setting]].epochs
        assert trial.score == epochs[-1].metrics["top1"]
    # 80 images are held out, and 50 are tested.
    assert any(trial.score != trial.value for trial in tuning)
    for row, cell in enumerate(stored.cells):
        scores = [trial.score or 0 for trial in tuning if trial.row == row]
        assert set(cell.settings.values()) == {scores.index(max(scores))}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(STUDY, id="once"),
        pytest.param(REPEATED, id="repeat", marks=pytest.mark.proof),
    ],
)
def test_a_kill_anywhere_changes_nothing(
    text: str,
    run_text: RunText,
    options: Options,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from ablate import pipeline

    undisturbed = Options(
        runs=tmp_path_factory.mktemp("runs"), executor="inline", cpus=2
    )
    declared = space.load(text, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", undisturbed, None, SimulatedExecutor(curve))
    kills = 0
    for at in (1, 3, 9, 10, 11, 1, 2, 15, 12, 13, 14, 16, 3):
        try:
            run_text(text, SimulatedExecutor(curve), killing(at))
        except Killed:
            kills += 1
    assert kills >= 10
    assert not run_text(text, SimulatedExecutor(curve)).interrupted
    mine, other = Study("tiny", options.url), Study("tiny", undisturbed.url)
    for form in ("md", "json", "latex"):
        assert mine.table(form) == other.table(form)
    of_tuning = mine.effects_table("tuning")
    assert of_tuning == other.effects_table("tuning")


def test_each_seed_may_have_a_setting_of_its_own(
    run_text: RunText, options: Options
) -> None:
    outcome = run_text(REPEATED, SimulatedExecutor(curve))
    stored = results(options)
    with Reader(options.url) as reader:
        tried = reader.studies.tried(stored)
    seeds = {trial.seed for trial in tried if trial.stage == "tuning"}
    assert seeds == {FIRST_TUNING_SEED + seed for seed in SEEDS}
    assert outcome.trained == 3 * ROWS * SETTINGS + ROWS * 3 + 2 * 3
    assert all(set(cell.settings) == set(SEEDS) for cell in stored.cells)
    notes = " ".join(Study("tiny", options.url).effects_table().notes)
    assert "about the whole procedure, the choice included" in notes


def test_a_row_waits_for_its_failed_trials(
    run_text: RunText, listed: Listed, options: Options
) -> None:
    def failing(trial: Trial, number: int) -> Epoch:
        if trial.architecture.settings.get("value") and trial.recipe.lr > 5e-3:
            raise RuntimeError("out of memory")
        return curve(trial, number)

    first = run_text(LISTED, SimulatedExecutor(failing))
    assert first.failed == 1
    assert lrs(results(options)) == [{1e-3}, {1e-2}, set()]
    again = listed()
    assert (again.trained, again.failed) == (1 + 3 + 3, 0)
    assert lrs(results(options)) == [{1e-3}, {1e-2}, {1e-4}]


def test_a_setting_that_diverges_is_not_chosen(
    run_text: RunText, options: Options
) -> None:
    def diverging(trial: Trial, number: int) -> Epoch:
        epoch = curve(trial, number)
        if trial.recipe.lr > 5e-3:
            return replace(epoch, metrics={**epoch.metrics, "top1": math.nan})
        return epoch

    run_text(LISTED, SimulatedExecutor(diverging))
    assert lrs(results(options)) == [{1e-3}, {1e-3}, {1e-4}]


def test_more_settings_keep_the_earlier_ones(
    run_text: RunText, options: Options
) -> None:
    run_text(STUDY, SimulatedExecutor(curve))
    more = STUDY.replace("settings: 6", "settings: 9")
    few, many = space.load(STUDY, "tiny.yaml"), space.load(more, "tiny.yaml")
    assert few.tune and many.tune
    assert many.tune.points[:6] == few.tune.points
    shown = preview(many, options.url, options)
    tuning = {at.trial.hash for cell in shown.plan.cells for at in cell.at_settings}
    assert len(tuning & {trial.hash for trial in shown.to_train}) == ROWS * 3
    # The next generation compares the same rows.
    assert shown.is_next
    assert shown.before.generation == 2


def test_more_seeds_keep_the_choice(run_text: RunText, options: Options) -> None:
    run_text(STUDY, SimulatedExecutor(curve))
    more = run_text(STUDY.replace("seeds: 3", "seeds: 5"), SimulatedExecutor(curve))
    assert more.trained == 2 * ROWS + 2 * 2


def test_the_same_study_without_tune_is_of_the_same_group(
    run_text: RunText, options: Options
) -> None:
    start = STUDY.index("tune:")
    run_text(STUDY[:start] + STUDY[STUDY.index("seeds: 3") :])
    shown = preview(space.load(STUDY, "tuned.yaml"), options.url, options)
    assert [study.name for study in shown.before.studies] == ["tiny"]
    assert {shown.before.rows[row].standing for row in (1, 2)} == {Standing.TESTED}


def test_so_is_one_whose_rows_choose_a_part_of_their_network(
    run_text: RunText, options: Options
) -> None:
    start = STUDY.index("tune:")
    run_text(STUDY[:start] + STUDY[STUDY.index("seeds: 3") :])
    text = LISTED.replace("recipe.lr: [1e-4, 1e-3, 1e-2]", "drop.dropout: [0.1, 0.2]")
    shown = preview(space.load(text, "tuned.yaml"), options.url, options)
    assert len(shown.before.studies) == 1


def test_results_that_were_known_at_a_setting_give_no_verdict(
    run_text: RunText, options: Options
) -> None:
    # All rows were trained at a learning rate that the study then lets them choose.
    start = LISTED.index("tune:")
    known = LISTED[:start] + LISTED[LISTED.index("seeds: 3") :]
    known = known.replace("recipe: {", "recipe: {lr: 0.01, ")
    run_text(known)
    shown = preview(space.load(LISTED, "tuned.yaml"), options.url, options)
    assert {shown.before.rows[row].standing for row in (1, 2)} == {Standing.KNOWN}


@pytest.mark.proof
def test_the_trials_that_choose_leave_no_seed_out(
    listed: Listed, options: Options
) -> None:
    listed()
    other = LISTED.replace("[1e-4, 1e-3, 1e-2]", "[1e-3, 1e-2]").replace(
        "seeds: 3", "seeds: [7, 8, 9]"
    )
    shown = preview(space.load(other, "other.yaml"), options.url, options)
    standings = {shown.before.rows[row].standing for row in (1, 2)}
    assert standings == {Standing.TESTED}


def test_the_table_shows_what_each_row_has_chosen(
    listed: Listed, options: Options
) -> None:
    listed()
    study = Study("tiny", options.url)
    table = study.results_table()
    assert [row["recipe.lr"] for row in table.data] == [1e-3, 1e-2, 1e-4]
    assert "recipe.lr" in table.columns
    assert any("at its own best of 3 settings" in note for note in table.notes)
    assert r"recipe lr" in study.table("latex")


def test_the_effect_at_row_0s_setting_and_what_tuning_changed(
    listed: Listed, options: Options
) -> None:
    listed()
    table = Study("tiny", options.url).effects_table("tuning")
    row_0, kernel, value = table.data
    assert row_0["own"] is None
    for row in (kernel, value):
        # A learning rate ten times too large or too small costs ten points.
        assert row["at_row_0"] == pytest.approx(-10, abs=0.5)
        assert row["own"] == pytest.approx(0, abs=0.5)
        assert row["gain"] == pytest.approx(row["own"] - row["at_row_0"])
        assert row["gain_low"] < row["gain"] < row["gain_high"]
        assert row["close"] == 0
    assert row_0["score"] == pytest.approx(80, abs=1)
    assert row_0["sensitivity"] == pytest.approx(20 / 3, abs=0.5)


def test_a_review_objects_to_few_good_settings(
    listed: Listed, options: Options
) -> None:
    """A learning rate ten times too large or too small costs ten points."""
    listed()
    (finding,) = [
        finding
        for finding in review("tiny", options.url)
        if finding.name == "few settings"
    ]
    assert "1, 1, 1 of 3 settings are near the best one" in finding.text
    assert "1 hyperparameter need 2" in finding.text
    assert "list more levels between" in finding.text


def test_a_review_says_which_range_to_type(listed: Listed, options: Options) -> None:
    listed()
    findings = [
        finding
        for finding in review("tiny", options.url)
        if finding.name == "best setting at an edge"
    ]
    assert len(findings) == 2
    low, high = sorted(findings, key=lambda finding: "smallest" not in finding.text)
    assert "row 2" in low.text
    assert low.text.endswith("recipe.lr: [1e-05, 0.0001, 0.001, 0.01]")
    assert high.text.endswith("recipe.lr: [0.0001, 0.001, 0.01, 0.1]")
    for finding in findings:
        levels = finding.text.rpartition("recipe.lr: ")[2]
        space.load(LISTED.replace("[1e-4, 1e-3, 1e-2]", levels), "wider.yaml")


def test_a_range_that_is_too_narrow_is_widened_on_its_scale(
    run_text: RunText, options: Options
) -> None:
    narrow = STUDY.replace("low: 1e-4, high: 1e-2", "low: 2e-3, high: 8e-3")
    run_text(narrow, SimulatedExecutor(curve))
    texts = [
        finding.text
        for finding in review("tiny", options.url)
        if finding.name == "best setting at an edge"
    ]
    assert any(
        text.endswith("recipe.lr: {low: 0.001, high: 0.008, scale: log}")
        for text in texts
    )
    assert any(
        text.endswith("recipe.lr: {low: 0.002, high: 0.016, scale: log}")
        for text in texts
    )


@pytest.mark.proof
def test_equal_settings_are_a_coin_toss_and_no_edge(
    run_text: RunText, options: Options
) -> None:
    def flat(trial: Trial, number: int) -> Epoch:
        epoch = curve(trial, number)
        noise = random.Random(trial.hash).gauss(0, 1)
        return replace(epoch, metrics={**epoch.metrics, "top1": 80 + noise})

    run_text(STUDY.replace("seeds: 3", "seeds: 8"), SimulatedExecutor(flat))
    table = Study("tiny", options.url).effects_table("tuning")
    assert sum(row["close"] > 0 for row in table.data) >= 2
    assert any("coin toss" in note for note in table.notes)
    names = {finding.name for finding in review("tiny", options.url)}
    assert "best setting at an edge" not in names


def test_charts_of_tuning(run_text: RunText, options: Options) -> None:
    run_text(STUDY, SimulatedExecutor(curve))
    from ablate.results.study_charts import chart, drawable

    study = Study("tiny", options.url)
    drawn = drawable(study)
    assert {"tuning", "sensitivity"} <= drawn.keys()
    expected = chart(study, "tuning")
    assert isinstance(expected, Chart)
    for series in expected.series:
        assert list(series.x) == list(range(1, SETTINGS + 1))
        assert list(series.y) == sorted(series.y)
    sensitivity = chart(study, "sensitivity", by="recipe.lr")
    assert isinstance(sensitivity, Chart)
    assert sensitivity.log_x
    with pytest.raises(AblateError, match="recipe.wd is not tuned"):
        chart(study, "sensitivity", by="recipe.wd")


def test_listed_levels_have_no_expected_best_curve(
    listed: Listed, options: Options
) -> None:
    from ablate.results.study_charts import chart

    listed()
    with pytest.raises(AblateError, match="all combinations"):
        chart(Study("tiny", options.url), "tuning")


def test_a_study_without_tune_says_how_to_add_it(
    run_text: RunText, options: Options
) -> None:
    start = STUDY.index("tune:")
    run_text(STUDY[:start] + STUDY[STUDY.index("seeds: 3") :])
    with pytest.raises(AblateError, match="tunes nothing; .* tune: {recipe.lr:"):
        Study("tiny", options.url).effects_table("tuning")


def test_row_0_may_have_more_seeds(run_text: RunText, options: Options) -> None:
    text = LISTED.replace("seeds: 3", "seeds: {count: 3, baseline: 5}")
    run_text(text, SimulatedExecutor(curve))
    row_0, *others = results(options).cells
    assert len(row_0.values) == 5
    assert {len(cell.values) for cell in others} == {3}


def test_seeds_may_decide_the_split(run_text: RunText, options: Options) -> None:
    text = LISTED.replace("seeds: 3", "seeds: {count: 3, vary: [init, order, split]}")
    run_text(text, SimulatedExecutor(curve))
    with Reader(options.url) as reader:
        trials = reader.trials.of("tiny", beside=True)
        splits = {
            reader.trials.get(trial.trial).data["split"] - trial.seed
            for trial in trials
        }
    assert splits == {1}


def test_a_run_says_what_each_row_has_chosen(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ablate import execution

    monkeypatch.setattr(execution, "make", lambda *_: SimulatedExecutor(curve))
    Path("study.yaml").write_text(LISTED)
    _, _, err = say("run", "study.yaml")
    for row, level in enumerate(("0.001", "0.01", "0.0001")):
        assert err.count(f"row {row} has chosen recipe.lr = {level}") == 1


@pytest.mark.parametrize(
    "design",
    [
        "grid",
        "leave-one-out",
        "add-one-in",
        "plackett-burman",
        "{name: fractional, resolution: 3}",
        "{name: random, cells: 3}",
        "one-at-a-time\ncontrol: iso-params",
        "grid\nexclude: [{ffn.kernel: 3, value: silu}]",
        "rows\nrows: [{}, {ffn.kernel: 3}, {value: silu}]",
    ],
)
def test_it_works_with_every_design(
    design: str, run_text: RunText, options: Options
) -> None:
    text = LISTED.replace("design: one-at-a-time", f"design: {design}")
    if "fractional" in design:
        text = text.replace(
            "[none, silu]}", "[none, silu], layout: [serial, parallel]}"
        )
    assert not run_text(text, SimulatedExecutor(curve)).interrupted
    for cell in results(options).cells:
        if cell.note:
            continue
        assert tuple(cell.values) == SEEDS
        assert set(cell.settings) == set(SEEDS)


def test_the_view_of_a_study_has_the_chosen_levels(
    listed: Listed, options: Options
) -> None:
    listed()
    with Reader(options.url) as reader:
        _, rows = reader.query(
            'SELECT DISTINCT cell, "recipe.lr" FROM results_tiny ORDER BY cell'
        )
    assert [tuple(row) for row in rows] == [(0, 1e-3), (1, 1e-2), (2, 1e-4)]
    frame = Study("tiny", options.url).frame()
    assert sorted(set(frame["recipe.lr"])) == [1e-4, 1e-3, 1e-2]


def test_words_may_be_chosen(run_text: RunText, options: Options) -> None:
    text = LISTED.replace(
        "recipe.lr: [1e-4, 1e-3, 1e-2]", "recipe.schedule: [cosine, constant]"
    )
    run_text(text)
    with Reader(options.url) as reader:
        _, rows = reader.query('SELECT DISTINCT "recipe.schedule" FROM results_tiny')
    levels = {row[0] for row in rows}
    assert levels
    assert levels <= {"cosine", "constant"}


def test_a_plan_says_what_both_stages_train(say: Say) -> None:
    Path("study.yaml").write_text(STUDY)
    code, out, _ = say("plan", "study.yaml")
    assert code == 0
    assert re.search("18 trials: 0 known, 18 to train, about .*\n", out)
    assert (
        "Each row tries 6 settings. Then it is trained at the best one, and at" in out
    )
    assert re.search("that of row 0: at most 15 trials more, about .*\n", out)
    assert "lr is chosen by each row" in out


def test_status_lists_the_trials_beside_the_table(
    say: Say, listed: Listed, options: Options
) -> None:
    listed()
    code, out, _ = say("status", "tiny", "--store", options.url, "--format", "csv")
    assert code == 0
    header, *lines = out.splitlines()
    assert header.startswith("row,stage,setting,seed")
    assert len(lines) == 9 + 9 + 6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("low: 1e-4, high: 1e-2", "low: 1e-2, high: 1e-4", "low is 0.01 and high"),
        ("low: 1e-4", "low: 0", "a logarithmic range is above 0"),
        ("scale: log", "scale: log, count: 5", "leave count out"),
        ("  settings: 6\n", "", "such as settings: 8"),
        (", validation: 0.2", "", r"data: \{name: digits, validation: 0.15\}"),
        ("recipe.lr:", "ffn.kernel:", "under tune and under factors"),
        ("recipe.lr:", "recipe.epochs:", "the length of the training"),
        ("recipe.lr:", "data.image_size:", "no hyperparameter of the training"),
        ("recipe.lr:", "recipe.learning_rate:", "unknown factor"),
        ("settings: 6", "setings: 6", "did you mean 'settings'"),
        ("recipe: {", "recipe: {lr: 1e-3, ", "under tune and under recipe"),
        ("seeds: 3", "seeds: {until_decided: 9}", "exclude each other"),
        ("seeds: 3", "seeds: [1000000, 1000001]", "seeds are below 1,000,000"),
        ("design: one-at-a-time", "strategy: {name: tpe, cells: 4}", "for designs"),
        ("settings: 6", "settings: 6\n  metric: accuracy", "unknown metric"),
        ("  recipe.lr: {low: 1e-4, high: 1e-2, scale: log}\n", "", "no hyperparam"),
    ],
)
def test_a_mistake_has_one_message_with_its_remedy(
    old: str, new: str, message: str
) -> None:
    assert old in STUDY
    with pytest.raises(SpaceError, match=message) as error:
        space.load(STUDY.replace(old, new), "tiny.yaml")
    assert len(error.value.problems) == 1


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("recipe.lr: [1e-3]", "needs two levels or more, or a range, has 1"),
        ("recipe.lr: [1e-3, 1e-3]", "is a duplicate"),
        ("recipe.lr: [1e-3, -1]", "greater than"),
        ("recipe.lr: [1e-3, 1e-2]\n  settings: 3", "have 2 combinations; write 2"),
        ("recipe.lr: [1e-3, 1e-2]\n  draw: sobol", "leave draw out"),
        ("recipe.repeats: {low: 1, high: 3}\n  settings: 8", "3 different"),
    ],
)
def test_a_mistake_in_levels_has_one_message(declared: str, message: str) -> None:
    text = LISTED.replace("recipe.lr: [1e-4, 1e-3, 1e-2]", declared)
    assert text != LISTED
    with pytest.raises(SpaceError, match=message) as error:
        space.load(text, "tiny.yaml")
    assert len(error.value.problems) == 1


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("size.width: [16, 32]", "is another network, which costs"),
        ("recipe.momentum: [0.8, 0.9]", "no row reads recipe.momentum under tune"),
        ("recipe.accumulate: [1, 64]", "row 0 at recipe.accumulate = 64 cannot be"),
    ],
)
def test_the_plan_refuses_settings_that_cannot_be_compared(
    declared: str, message: str, options: Options
) -> None:
    text = LISTED.replace("recipe.lr: [1e-4, 1e-3, 1e-2]", declared)
    with pytest.raises(AblateError, match=message):
        preview(space.load(text, "tiny.yaml"), options.url, options)


def test_drop_rates_may_be_chosen(run_text: RunText, options: Options) -> None:
    text = LISTED.replace("recipe.lr: [1e-4, 1e-3, 1e-2]", "drop.dropout: [0.0, 0.1]")
    outcome = run_text(text)
    assert not outcome.interrupted
    assert all(cell.settings for cell in results(options).cells)


def test_a_sobol_sequence_covers_the_range() -> None:
    text = STUDY.replace("settings: 6", "settings: 8\n  draw: sobol")
    declared = space.load(text, "tiny.yaml")
    assert declared.tune is not None
    places = sorted(
        math.log10(float(point["recipe.lr"])) for point in declared.tune.points
    )
    # One point in each eighth of the range from -4 to -2.
    assert [int((place + 4) / 2 * 8) for place in places] == list(range(8))
    longer = space.load(text.replace("settings: 8", "settings: 11"), "tiny.yaml")
    assert longer.tune is not None
    assert longer.tune.points[:8] == declared.tune.points


def test_a_scheduler_compares_the_settings_of_one_row(
    run_text: RunText, options: Options
) -> None:
    def unequal(trial: Trial, number: int) -> Epoch:
        # All settings of one row are worse than all those of the others.
        epoch = curve(trial, number)
        lost = 60 if trial.architecture.settings.get("value") else 0
        top1 = epoch.metrics["top1"] - lost
        return replace(epoch, metrics={**epoch.metrics, "top1": top1})

    text = STUDY.replace("epochs: 2", "epochs: 8").replace(
        "settings: 6", "settings: 12"
    )
    text += "scheduler: {name: asha, grace_epochs: 1, reduction: 2}\n"
    run_text(text, SimulatedExecutor(unequal))
    stored = results(options)
    with Reader(options.url) as reader:
        tried = reader.studies.tried(stored)
    pruned = Counter(trial.row for trial in tried if trial.status == Status.PRUNED)
    completed = Counter(
        trial.row
        for trial in tried
        if trial.stage == "tuning" and trial.status == Status.COMPLETED
    )
    assert set(pruned) == set(completed) == {0, 1, 2}
    # No trial of the table, or at the setting of row 0, is stopped.
    for trial in tried:
        assert trial.stage == "tuning" or trial.status == Status.COMPLETED
    for cell, best in zip(stored.cells, (1e-3, 1e-2, 1e-4), strict=True):
        (chosen,) = lrs(stored)[cell.index]
        assert abs(math.log10(chosen / best)) < 0.6


def test_the_effect_at_row_0s_setting_is_not_that_of_an_earlier_study(
    run_text: RunText, listed: Listed, options: Options
) -> None:
    listed()
    first = Study("tiny", options.url).effects_table("tuning")
    # A row less: the next generation shows the verdicts of the first one.
    run_text(LISTED.replace(", value: [none, silu]", ""), SimulatedExecutor(curve))
    second = Study("tiny", options.url).effects_table("tuning")
    assert "tiny@1" in second.rows[1][-1]
    assert second.data[1]["at_row_0"] == first.data[1]["at_row_0"]
    assert second.data[1]["own"] == first.data[1]["own"]
    assert second.data[1]["at_row_0"] != second.data[1]["own"]


def failing_at(level: float) -> Callable[[Trial, int], Epoch]:
    """Results, and a failure of one row at a learning rate."""

    def failing(trial: Trial, number: int) -> Epoch:
        if trial.architecture.settings.get("value") and trial.recipe.lr == level:
            raise RuntimeError("out of memory")
        return curve(trial, number)

    return failing


def test_no_row_has_a_verdict_before_all_have_chosen(
    run_text: RunText, options: Options
) -> None:
    # Rows 0 and 1 are complete; row 2 waits for a trial that failed.
    run_text(LISTED, SimulatedExecutor(failing_at(1e-3)))
    effects = Study("tiny", options.url).effects()
    assert next(effect.row for effect in effects) == 1
    assert len(effects[0].seeds) == 3
    assert effects[0].withheld is Withheld.UNFINISHED


def test_a_row_with_an_abandoned_choice_has_no_verdict(
    run_text: RunText, options: Options
) -> None:
    run_text(LISTED, SimulatedExecutor(failing_at(1e-4)))
    with Writer(options.url) as writer:
        assert writer.abandon("tiny", None) == 1
    run_text(LISTED, SimulatedExecutor(failing_at(1e-4)))
    study = Study("tiny", options.url)
    by_row = {effect.row: effect for effect in study.effects()}
    assert by_row[2].withheld is Withheld.ABANDONED
    assert by_row[1].withheld is None
    notes = study.effects_table("tuning").notes
    assert any("1 of 3 settings have no score" in note for note in notes)


def test_rows_are_folded_by_what_they_train_at_their_settings(
    options: Options,
) -> None:
    factors = "factors: {ffn.kernel: [none, 3], value: [none, silu]}"
    unread = "factors: {recipe.mixup_prob: [1.0, 0.5], value: [none, silu]}"
    # At the recipe of the space, mixup is off, and its probability is not read.
    text = LISTED.replace(factors, unread).replace(
        "recipe.lr: [1e-4, 1e-3, 1e-2]", "recipe.mixup: [0.2, 0.8]"
    )
    plan = preview(space.load(text, "tiny.yaml"), options.url, options).plan
    assert all(cell.same_as is None for cell in plan.cells)
    assert all(not cell.unread for cell in plan.cells)
    # SGD and Lion read other fields than the one that varies.
    text = LISTED.replace(
        factors, "factors: {recipe.momentum: [0.9, 0.5], value: [none, silu]}"
    ).replace("recipe.lr: [1e-4, 1e-3, 1e-2]", "recipe.optimizer: [adamw, lion]")
    with pytest.raises(AblateError, match=r"no cell reads recipe\.momentum"):
        preview(space.load(text, "tiny.yaml"), options.url, options)


def test_a_row_may_need_what_only_its_settings_have(options: Options) -> None:
    text = LISTED.replace("value: [none, silu]", "patch.mixing: [0.0, 0.5]").replace(
        "recipe.lr: [1e-4, 1e-3, 1e-2]", "recipe.cutmix: [0.5, 1.0]"
    )
    plan = preview(space.load(text, "tiny.yaml"), options.url, options).plan
    assert all(cell.feasible for cell in plan.cells)


def test_a_lost_setting_counts_as_the_worst_of_its_row(
    run_text: RunText, options: Options
) -> None:
    def diverging(trial: Trial, number: int) -> Epoch:
        epoch = curve(trial, number)
        if trial.architecture.settings.get("value") and trial.recipe.lr > 5e-4:
            return replace(epoch, metrics={**epoch.metrics, "top1": math.nan})
        return epoch

    run_text(STUDY, SimulatedExecutor(diverging))
    from ablate.results.study_charts import chart

    study = Study("tiny", options.url)
    expected = chart(study, "tuning")
    assert isinstance(expected, Chart)
    for series in expected.series:
        assert len(series.x) == SETTINGS
    notes = study.effects_table("tuning").notes
    assert any(re.search(r"Row 2: \d of 6 settings have no score", n) for n in notes)


def test_equal_differences_are_shown_without_an_interval(
    run_text: RunText, options: Options
) -> None:
    def exact(trial: Trial, number: int) -> Epoch:
        epoch = curve(trial, number)
        distance = abs(math.log10(trial.recipe.lr / best_lr(trial)))
        return replace(epoch, metrics={**epoch.metrics, "top1": 80 - 10 * distance})

    run_text(LISTED, SimulatedExecutor(exact))
    table = Study("tiny", options.url).effects_table("tuning")
    assert table.data[1]["gain"] == pytest.approx(10)
    assert table.data[1]["gain_low"] is None
    assert table.rows[1][-2] == "+10.00"


def test_an_import_leaves_the_choice_to_the_results_of_both_stores(
    run_text: RunText, listed: Listed, options: Options, tmp_path: Path
) -> None:
    from ablate import pipeline
    from ablate.store.other_store import import_studies

    def other_machine(trial: Trial, number: int) -> Epoch:
        # Another setting of row 2 is best there.
        epoch = curve(trial, number)
        if trial.architecture.settings.get("value") and trial.recipe.lr == 1e-2:
            return replace(epoch, metrics={**epoch.metrics, "top1": 99.0})
        return epoch

    run_text(LISTED, SimulatedExecutor(failing_at(1e-3)))
    other = Options(runs=tmp_path / "other", executor="inline", cpus=2)
    declared = space.load(LISTED, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", other, None, SimulatedExecutor(other_machine))
    import_studies(other.url, options.url)
    listed()
    stored = results(options)
    with Reader(options.url) as reader:
        tried = reader.studies.tried(stored)
    for cell in stored.cells:
        scores = {
            trial.setting: trial.score or 0
            for trial in tried
            if trial.row == cell.index and trial.stage == "tuning"
        }
        assert set(cell.settings.values()) == {max(scores, key=lambda s: scores[s])}


@pytest.mark.parametrize(
    ("declared", "best", "proposed"),
    [
        ("recipe.label_smoothing: [0.2, 0.5, 0.9]", 0.9, "0.9, 1.0]|0.9, 0.9[0-9]]"),
        ("drop.dropout: [0.0, 0.4, 0.8]", 0.8, "0.8, 0.88]"),
        ("recipe.mixup_prob: [0.5, 1.0]", 1.0, ""),
        ("recipe.repeats: [1, 2, 4]", 1, ""),
        ("recipe.repeats: [1, 2, 4]", 4, "1, 2, 4, 8]"),
        ("recipe.beta1: [0.8, 0.9, 0.95]", 0.95, "0.95, 0.9[0-9]*]"),
        ("recipe.lr: [0.00123456789, 0.0123456789]", 0.00123456789, "0.0123456789]"),
    ],
)
def test_a_proposed_level_is_allowed(
    declared: str, best: float, proposed: str, options: Options
) -> None:
    from ablate.report.tuning import Edge
    from ablate.results.review.tuning import _wider

    text = LISTED.replace("recipe.lr: [1e-4, 1e-3, 1e-2]", declared)
    loaded = space.load(text, "tiny.yaml")
    assert loaded.tune is not None
    (name,) = loaded.tune.names
    numbers = [float(point[name]) for point in loaded.tune.points]
    wider = _wider(loaded, loaded.tune, Edge(name, best, is_low=best == min(numbers)))
    assert bool(wider) == bool(proposed)
    if not wider:
        return
    assert re.search(f"({proposed})$", wider)
    again = space.load(text.replace(declared, f"{name}: {wider}"), "tiny.yaml")
    assert again.tune is not None
    assert {point[name] for point in loaded.tune.points} < {
        point[name] for point in again.tune.points
    }


def test_a_review_does_not_propose_what_tune_refuses(
    run_text: RunText, options: Options
) -> None:
    def noisy(trial: Trial, number: int) -> Epoch:
        epoch = curve(trial, number)
        noise = random.Random(trial.hash).gauss(0, 5)
        return replace(epoch, metrics={**epoch.metrics, "top1": 60 + noise})

    run_text(LISTED, SimulatedExecutor(noisy))
    for finding in review("tiny", options.url):
        assert "until_decided" not in finding.text
        assert "--until-decided" not in finding.command


def test_until_decided_and_tune_exclude_each_other_as_an_option() -> None:
    with pytest.raises(AblateError, match="and tune exclude each other"):
        space.until_decided(space.load(STUDY, "tiny.yaml"), 9)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            "recipe.lr: {low: 1e-4, high: 1e-2, step: 2}",
            "known: low, high, scale, count",
        ),
        ("recipe.lr: 0.1", r"other keys of tune: .*metric$"),
        ("recipe.lr: {low: 1.0001e-3, high: 1.0009e-3}\n  settings: 3", "of 3 digits"),
    ],
)
def test_what_else_a_message_says(declared: str, message: str) -> None:
    text = LISTED.replace("recipe.lr: [1e-4, 1e-3, 1e-2]", declared)
    with pytest.raises(SpaceError, match=message):
        space.load(text, "tiny.yaml")


def test_tune_must_be_a_mapping() -> None:
    start = LISTED.index("tune:")
    text = LISTED[:start] + "tune: 5\n" + LISTED[LISTED.index("seeds: 3") :]
    with pytest.raises(SpaceError, match=r"tune: must be a valid dictionary, found 5"):
        space.load(text, "tiny.yaml")


def test_a_range_over_all_numbers_has_settings_everywhere() -> None:
    wide = STUDY.replace("low: 1e-4, high: 1e-2", "low: 1e-300, high: 1e300")
    declared = space.load(wide, "tiny.yaml")
    assert declared.tune is not None
    assert len({point["recipe.lr"] for point in declared.tune.points}) == SETTINGS


def test_a_row_that_does_not_read_a_hyperparameter_is_named(
    run_text: RunText, options: Options
) -> None:
    text = LISTED.replace(
        "factors: {ffn.kernel: [none, 3], value: [none, silu]}",
        "factors: {recipe.optimizer: [adamw, sgd]}",
    ).replace("recipe.lr: [1e-4, 1e-3, 1e-2]", "recipe.momentum: [0.8, 0.9, 0.95]")
    run_text(text)
    notes = Study("tiny", options.url).effects_table("tuning").notes
    (note,) = [note for note in notes if "does not read all" in note]
    assert note.startswith("Row 0: its 3 settings are one and the same training")


def test_statuses_count_the_trials_beside_the_table(
    listed: Listed, options: Options
) -> None:
    listed()
    with Reader(options.url) as reader:
        status = reader.studies.get("tiny")
        (spent,) = reader.costs.by_device("tiny")
    assert status.by_status == {Status.COMPLETED: 24}
    assert spent.trials == 24
