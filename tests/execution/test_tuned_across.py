"""Rows that choose their settings at the smallest size, for all sizes."""

from __future__ import annotations

import sqlite3

import pytest

from ablate import space
from ablate.errors import SpaceError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options, previews, run
from ablate.records import COST_REVISION, Epoch, Trial
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.execution.test_across import AXIS, TUNED, constant, curves

SMALLEST = TUNED.replace("1e-2]}", "1e-2], at: smallest}")


def best_at(lr: dict[str, float]) -> SimulatedExecutor:
    """Trials that are better by 10 points at the best rate of their row."""
    plain = curves(constant)

    def curve(trial: Trial, number: int) -> Epoch:
        row = "kernel" if "ffn.kernel" in trial.architecture.settings else "other"
        epoch = plain(trial, number)
        if trial.recipe.lr == lr[row]:
            epoch.metrics["top1"] += 10
        return epoch

    return SimulatedExecutor(curve)


def test_all_sizes_have_the_setting_that_the_smallest_has_chosen(
    options: Options,
) -> None:
    declared = space.load(SMALLEST, "tiny.yaml")
    executor = best_at({"kernel": 1e-4, "other": 1e-2})
    outcome = run(declared, "tiny.yaml", options, None, executor)
    # Three rows try three settings at width 8. Each of the 45 trials of the table is at
    # its row's setting; the kernel is also trained at the setting of row 0.
    assert (outcome.trials, outcome.trained) == (9 + 45 + 15, 9 + 45 + 15)
    assert outcome.known_before == 0
    for size in Study("tiny", options.url).sizes():
        settings = [set(cell.settings.values()) for cell in size.results.cells]
        assert settings == [{2}, {0}, {2}]
    with sqlite3.connect(options.runs / "ablate.db") as store:
        widths = store.execute(
            "SELECT DISTINCT json_extract(a.settings, '$.\"size.width\"'), a.params"
            " FROM tuning_trials AS t JOIN trials ON trials.hash = t.trial_hash"
            " JOIN architectures AS a ON a.hash = trials.architecture_hash"
            " WHERE t.stage = 'tuning'"
        ).fetchall()
    assert {width for width, _ in widths} == {8}
    again = run(declared, "tiny.yaml", options, None, executor)
    assert (again.trained, again.known_before) == (0, outcome.trials)


def test_the_cost_of_a_trial_that_chooses_is_that_of_the_smallest_size(
    options: Options,
) -> None:
    text = SMALLEST.replace("[8, 16, 32]", "[32, 16, 8]")
    declared = space.load(text, "tiny.yaml")
    run(declared, "tiny.yaml", options, None, SimulatedExecutor(curves(constant)))
    with Reader(options.url) as reader:
        costs = reader.costs.counted(COST_REVISION)
    plans = previews(space.load_sizes(text, "tiny.yaml"), options.url, options)
    for shown in plans:
        for cell in shown.plan.cells:
            assert cell.architecture is not None
            assert costs[cell.architecture.hash] == cell.cost


def test_each_size_has_the_same_choice_and_pays_for_it_once(
    options: Options,
) -> None:
    sizes = space.load_sizes(SMALLEST, "tiny.yaml")
    shown = previews(sizes, options.url, options, probe=False)
    choosing = [{trial.hash for trial in each.plan.trials} for each in shown]
    assert choosing[0] == choosing[1] == choosing[2]
    assert [len(each.to_train) for each in shown] == [9, 0, 0]
    assert [len(each.shared) for each in shown] == [0, 9, 9]
    assert all(each.has_work for each in shown)


@pytest.mark.parametrize(
    "axis",
    [
        "size.depth: [1, 2]",
        "recipe.epochs: [2, 3]",
        "data.image_size: [8, 16], per: number",
        "size.mlp_ratio: [1, 2]",
        "shortcuts.count: [1, 2], per: number",
    ],
)
def test_the_trials_that_choose_are_those_of_the_smallest_size(
    axis: str, options: Options
) -> None:
    name = axis.partition(":")[0]
    text = SMALLEST.replace(AXIS, axis).replace(
        "patch_size: 4,", "patch_size: 4, width: 8,"
    )
    for key in ("depth: 1, ", ", mlp_ratio: 2", "epochs: 2, "):
        if key.strip(", ").partition(":")[0] == name.rpartition(".")[2]:
            text = text.replace(key, "")
    sizes = space.load_sizes(text, "tiny.yaml")
    first, second = previews(sizes, options.url, options, probe=False)
    assert {t.hash for t in first.plan.trials} == {t.hash for t in second.plan.trials}
    own = [trial for cell in first.full_plan.cells for trial in cell.by_setting]
    other = [trial for cell in second.full_plan.cells for trial in cell.by_setting]
    assert not {t.hash for t in own} & {t.hash for t in other}
    chosen = {
        at.trial.at_seed(0).hash for c in first.plan.cells for at in c.at_settings
    }
    assert chosen == {trial.hash for trial in own}


def test_of_sizes_without_numbers_the_first_is_the_smallest(options: Options) -> None:
    text = """
question: q
factors: {shortcuts.count: [0, 1]}
across: {backbone: [deit_tiny_patch16_224, deit_small_patch16_224]}
tune: {recipe.lr: [1e-3, 1e-2], at: smallest}
data: {name: digits, image_size: 224, validation: 0.2}
"""
    sizes = space.load_sizes(text, "tiny.yaml")
    for shown in previews(sizes, options.url, options, probe=False):
        tried = {trial.architecture.backbone for trial in shown.plan.trials}
        assert tried == {"deit_tiny_patch16_224"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f"across: {{{AXIS}}}\n", "", "this space has one size; leave it out"),
        (AXIS, "data.train_images: [100, 200]", "write at: each"),
        ("seeds: 5", "seeds: 5\ncontrol: iso-flops", "write at: each"),
        ("at: smallest", "at: 8", "allowed: each, smallest"),
    ],
)
def test_a_mistake_gets_one_message(old: str, new: str, message: str) -> None:
    text = SMALLEST.replace(old, new)
    if "train_images" in new:
        text = text.replace("train_images: 200, ", "")
    if not text.count("across") or "train_images" in new:
        text = text.replace("patch_size: 4,", "patch_size: 4, width: 8,")
    with pytest.raises(SpaceError) as raised:
        space.load(text, "tiny.yaml")
    (problem,) = raised.value.problems
    assert message in str(problem)
    assert problem.line in (9, 10, 11)


@pytest.mark.proof
@pytest.mark.parametrize("at", ["smallest", "each"])
def test_the_predicted_size_is_predicted_before_its_trials(
    at: str, options: Options
) -> None:
    text = SMALLEST.replace("at: smallest", f"at: {at}")
    text = text.replace("[8, 16, 32]", "[8, 16], predict: 32")
    declared = space.load(text, "tiny.yaml")
    executor = best_at({"kernel": 1e-4, "other": 1e-2})
    run(declared, "tiny.yaml", options, None, executor)
    ladder = Study("tiny", options.url)
    assert ladder.sizes()[0].across.predicted_at
    outcome = run(declared, "tiny.yaml", options, None, executor, predicted=True)
    assert outcome.trained == 15 + 5 + (0 if at == "smallest" else 9)
    assert len(ladder.measured_ahead(ladder.sizes())) == 2


def test_a_setting_of_the_predicted_size_that_was_seen_is_not_predicted(
    options: Options,
) -> None:
    text = SMALLEST.replace("[8, 16, 32]", "[8, 16], predict: 32")
    executor = best_at({"kernel": 1e-4, "other": 1e-2})
    # Row 0 at the largest size, at a setting that it might choose.
    seen = text.replace(
        "across: {size.width: [8, 16], predict: 32}", "fixed: {size.width: 32}"
    )
    seen = seen.split("tune:")[0].replace("epochs: 2,", "epochs: 2, lr: 1e-3,")
    run(space.load(seen, "seen.yaml"), "seen.yaml", options, None, executor)
    run(space.load(text, "tiny.yaml"), "tiny.yaml", options, None, executor)
    assert not Study("tiny", options.url).sizes()[0].across.predicted_at
