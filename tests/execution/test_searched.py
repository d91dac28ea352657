"""Searches through the whole flow on the simulated executor: kills, and spaces that
change under way.
"""

from __future__ import annotations

import pytest

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor, made_up
from ablate.pipeline import Hooks, Options
from ablate.records import Ended, Epoch, Event, Status, Trial
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import Killed, RunText, killing

SEARCH = """
question: Where is the optimum?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors:
  recipe.lr: [1e-3, 2e-4, 4e-4, 8e-4]
  recipe.weight_decay: [0.0, 0.01, 0.05]
strategy: {name: tpe, cells: 8, parallel: 3}
seeds: 2
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 3, batch_size: 50, warmup_epochs: 0}
"""


def after(count: int) -> Hooks:
    """Hooks that ask to stop after so many results."""
    ended: list[Event] = []

    def event(happened: Event) -> None:
        if isinstance(happened, Ended) and happened.status != Status.RUNNING:
            ended.append(happened)

    return Hooks(event=event, stop=lambda: len(ended) >= count)


def levels(options: Options) -> list[tuple[object, ...]]:
    return [
        tuple(cell.levels.values())
        for cell in Study("tiny", options.url).results().cells
        if cell.same_as is None
    ]


def test_killed_at_any_event_the_table_is_the_undisturbed_one(
    run_text: RunText, options: Options, tmp_path_factory: pytest.TempPathFactory
) -> None:
    undisturbed = Options(runs=tmp_path_factory.mktemp("undisturbed"), cpus=2)
    declared = space.load(SEARCH, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", undisturbed, executor=SimulatedExecutor())
    for at in range(5, 60, 11):
        try:
            run_text(SEARCH, SimulatedExecutor(), killing(at))
        except Killed:
            continue
    assert not run_text(SEARCH).interrupted
    for form in ("md", "json"):
        assert Study("tiny", options.url).table(form) == Study(
            "tiny", undisturbed.url
        ).table(form)
    assert run_text(SEARCH).trained == 0


def test_resume_without_a_name_finds_a_search_that_has_more_to_propose(
    run_text: RunText, options: Options
) -> None:
    run_text(SEARCH, hooks=after(6))
    outcome = pipeline.resume(None, options, executor=SimulatedExecutor())
    assert not outcome.interrupted
    assert outcome.trials == 16


def test_fewer_cells_end_a_search(run_text: RunText, options: Options) -> None:
    run_text(SEARCH, hooks=after(6))
    outcome = run_text(SEARCH.replace("cells: 8", "cells: 2"))
    assert (outcome.unfinished, outcome.interrupted, outcome.trials) == (0, False, 4)
    assert len(levels(options)) == 2


def test_a_level_that_is_dropped_leaves_no_row(
    run_text: RunText, options: Options
) -> None:
    run_text(SEARCH)
    outcome = run_text(
        SEARCH.replace("[1e-3, 2e-4, 4e-4, 8e-4]", "[1e-3, 2e-4]").replace(
            "cells: 8", "cells: 6"
        )
    )
    assert not outcome.interrupted
    found = levels(options)
    assert len(found) == len(set(found)) == 6
    assert {lr for lr, _ in found} == {1e-3, 2e-4}


def test_another_baseline_keeps_what_was_proposed(
    run_text: RunText, options: Options
) -> None:
    run_text(SEARCH)
    before = levels(options)
    baseline = next(
        (lr, decay)
        for lr in (1e-3, 2e-4, 4e-4, 8e-4)
        for decay in (0.0, 0.01, 0.05)
        if (lr, decay) not in before
    )
    changed = (
        SEARCH.replace("cells: 8", "cells: 9")
        + f"baseline: {{recipe.lr: {baseline[0]}, recipe.weight_decay:"
        f" {baseline[1]}}}\n"
    )
    outcome = run_text(changed)
    assert (outcome.trained, outcome.known_before, outcome.interrupted) == (
        2,
        16,
        False,
    )
    assert levels(options) == [baseline, *before]


def test_a_design_becomes_a_search(run_text: RunText, options: Options) -> None:
    design = SEARCH.replace(
        "strategy: {name: tpe, cells: 8, parallel: 3}", "design: grid"
    )
    run_text(design, hooks=after(4))
    grid = levels(options)
    with Reader(options.url) as reader:
        known = [
            trial.row
            for trial in reader.trials.of("tiny")
            if trial.status == "completed"
        ]
    outcome = run_text(SEARCH)
    assert not outcome.interrupted
    assert outcome.trials == 16
    found = levels(options)
    assert len(found) == len(set(found)) == 8
    assert outcome.known_before == len(known) == 4
    first = len(set(known))
    assert found[:first] == [grid[row] for row in sorted(set(known))], (
        "what is known comes first"
    )
    assert found[first:] != grid[first:8], "and the rest is proposed"


def test_a_failed_trial_is_failed_for_this_run_and_tried_by_the_next(
    run_text: RunText, options: Options
) -> None:
    def curve(trial: Trial, number: int) -> Epoch:
        if trial.recipe.weight_decay:
            raise RuntimeError("no room")
        return made_up(trial, number)

    first = run_text(SEARCH, SimulatedExecutor(curve))
    assert first.failed > 0
    assert not first.interrupted
    second = run_text(SEARCH)
    assert second.failed == 0
    assert second.trained >= first.failed
