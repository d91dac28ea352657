"""Searches that train their best cells again, on fresh seeds."""

from __future__ import annotations

import random
import statistics

import pytest

from ablate import pipeline, space
from ablate.errors import AblateError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Status, StudyResults, Trial
from ablate.report.best_rows import best_rows
from ablate.report.effects import effects
from ablate.report.verdicts import Verdict, Withheld
from ablate.report.wording import sentence
from ablate.results.review import review
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import Killed, RunText, Say, killing

SEARCH = """
question: Where is the optimum?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors:
  recipe.lr: [1e-3, 2e-4, 4e-4, 8e-4]
  recipe.weight_decay: [0.0, 0.01, 0.05]
strategy: {name: tpe, cells: 8, parallel: 3, confirm: 4, confirm_cells: 2}
seeds: 2
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 3, batch_size: 50, warmup_epochs: 0}
"""
WITHOUT = SEARCH.replace(", confirm: 4, confirm_cells: 2", "")
FRESH = (2, 3, 4, 5)


def results(options: Options) -> StudyResults:
    return Study("tiny", options.url).results()


def findings(options: Options) -> set[str]:
    return {finding.name for finding in review("tiny", options.url)}


def pure_noise(trial: Trial, number: int) -> Epoch:
    """All cells are equal: what is best is luck."""
    noise = random.Random(trial.hash).gauss(0, 1)
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": 70 + noise, "top5": 99.0},
        lr=1e-3,
        seconds=1.0,
    )


@pytest.fixture
def searched(run_text: RunText, options: Options) -> StudyResults:
    outcome = run_text(SEARCH, SimulatedExecutor(pure_noise))
    assert (outcome.trials, outcome.interrupted) == (8 * 2 + 3 * 4, False)
    return results(options)


def test_the_best_cells_are_reported_by_fresh_seeds(
    searched: StudyResults, run_text: RunText, options: Options
) -> None:
    confirmed = [cell for cell in searched.cells if cell.is_confirmed]
    assert len(confirmed) == 2
    for cell in confirmed:
        assert tuple(cell.values) == FRESH
        assert tuple(cell.search_values) == (0, 1)
    assert tuple(searched.cells[0].values) == (0, 1, *FRESH)
    others = [
        statistics.fmean(cell.values.values())
        for cell in searched.cells[1:]
        if not cell.is_confirmed
    ]
    chosen = [statistics.fmean(cell.search_values.values()) for cell in confirmed]
    assert min(chosen) >= max(others)


def test_only_confirmed_cells_have_verdicts(
    searched: StudyResults, options: Options
) -> None:
    confirmed = {cell.index for cell in searched.cells if cell.is_confirmed}
    for effect in Study("tiny", options.url).effects():
        if effect.row in confirmed:
            assert effect.withheld is None
            assert effect.seeds == FRESH
            continue
        assert effect.withheld is Withheld.NOT_CONFIRMED
        assert effect.seeds == (0, 1)
        assert effect.verdict is Verdict.INCONCLUSIVE


def test_the_table_says_what_the_search_saw(
    searched: StudyResults, options: Options
) -> None:
    shown = Study("tiny", options.url).results_table()
    assert "adjusted for 2 comparisons" in shown.notes[0]
    (note,) = [note for note in shown.notes if note.startswith("Confirmed on 4 fresh")]
    for cell in searched.cells:
        told = (
            statistics.fmean(cell.search_values.values()) if cell.search_values else 0
        )
        assert (f"row {cell.index} {told:.2f}" in note) == cell.is_confirmed
    # Only rows that were confirmed can be the best ones, and row 0.
    best = best_rows(searched, effects(searched, 1.0))
    assert best
    assert all(row == 0 or searched.cells[row].is_confirmed for row in best)
    table = Study("tiny", options.url).effects_table()
    assert any(note.startswith("not confirmed") for note in table.notes)
    for row in table.data:
        confirmed = searched.cells[row["row"]].is_confirmed
        assert (row["p_adjusted"] is not None) == confirmed


def test_a_column_says_which_seeds_chose_a_row(
    searched: StudyResults, options: Options
) -> None:
    confirmed = [cell for cell in searched.cells if cell.is_confirmed]
    frame = Study("tiny", options.url).frame()
    with Reader(options.url) as reader:
        _, rows = reader.query(
            "SELECT cell, AVG(top1), COUNT(*) FROM study_results WHERE study = 'tiny' AND"
            " chose = 0 GROUP BY cell"
        )
    means = {cell: (mean, count) for cell, mean, count in rows}
    for cell in confirmed:
        fresh = [cell.values[seed] for seed in FRESH]
        assert means[cell.index] == (pytest.approx(statistics.fmean(fresh)), 4)
        own = frame[frame.cell == cell.index]
        assert set(own[own.chose == 1].seed) == set(cell.search_values)
        assert list(own[own.chose == 0].top1) == pytest.approx(fresh)
    others = set(frame.cell) - {cell.index for cell in confirmed}
    assert not frame[frame.cell.isin(others)].chose.any()


def test_only_fresh_seeds_decide_the_front(
    searched: StudyResults, options: Options
) -> None:
    confirmed = {cell.index for cell in searched.cells if cell.is_confirmed}
    table = Study("tiny", options.url).pareto()
    assert {row["row"] for row in table.data} <= {0, *confirmed}
    assert any("cells are left out" in note for note in table.notes)


def test_proposals_do_not_depend_on_the_confirmation(
    searched: StudyResults, run_text: RunText, options: Options
) -> None:
    with_confirmation = [dict(cell.levels) for cell in searched.cells]
    other = Options(runs=options.runs / "other", cpus=2)
    declared = space.load(WITHOUT, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", other, None, SimulatedExecutor(pure_noise))
    assert [dict(cell.levels) for cell in results(other).cells] == with_confirmation


@pytest.mark.proof
def test_killed_at_any_event_the_table_is_the_undisturbed_one(
    run_text: RunText, options: Options, tmp_path_factory: pytest.TempPathFactory
) -> None:
    undisturbed = Options(runs=tmp_path_factory.mktemp("undisturbed"), cpus=2)
    declared = space.load(SEARCH, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", undisturbed, executor=SimulatedExecutor())
    kills = 0
    for at in range(7, 90, 9):
        try:
            run_text(SEARCH, SimulatedExecutor(), killing(at))
        except Killed:
            kills += 1
    assert kills > 2
    assert not run_text(SEARCH).interrupted
    for form in ("md", "json"):
        assert Study("tiny", options.url).table(form) == Study(
            "tiny", undisturbed.url
        ).table(form)
    assert run_text(SEARCH).trained == 0


def test_a_scheduler_does_not_stop_a_confirmation(
    run_text: RunText, options: Options
) -> None:
    text = SEARCH + "scheduler: {name: asha, grace_epochs: 1, reduction: 2}\n"
    assert not run_text(text).interrupted
    with Reader(options.url) as reader:
        trials = reader.trials.of("tiny")
    fresh = [trial.status for trial in trials if trial.seed in FRESH]
    # Row 0, and the cells with completed seeds.
    assert len(fresh) in (8, 12)
    assert set(fresh) == {Status.COMPLETED}
    assert Status.PRUNED in {trial.status for trial in trials}


def test_a_longer_search_confirms_its_own_best_cells(
    run_text: RunText, options: Options
) -> None:
    run_text(SEARCH, SimulatedExecutor(pure_noise))
    longer = SEARCH.replace("cells: 8", "cells: 12")
    run_text(longer, SimulatedExecutor(pure_noise))
    found = results(options)
    confirmed = {cell.index for cell in found.cells if cell.is_confirmed}
    means = {
        cell.index: statistics.fmean((cell.search_values or cell.values).values())
        for cell in found.cells[1:]
        if cell.statuses
    }
    assert confirmed == set(sorted(means, key=lambda row: -means[row])[:2])


@pytest.mark.proof
def test_a_confirmation_that_is_left_out_afterwards_takes_the_verdicts_with_it(
    run_text: RunText, options: Options
) -> None:
    run_text(SEARCH, SimulatedExecutor(pure_noise))
    run_text(WITHOUT, SimulatedExecutor(pure_noise))
    found = Study("tiny", options.url).effects()
    assert {effect.withheld for effect in found} <= {Withheld.KNOWN, Withheld.PARTIAL}


@pytest.mark.proof
def test_a_confirmation_that_is_added_afterwards_is_another_generation(
    run_text: RunText, options: Options
) -> None:
    run_text(WITHOUT, SimulatedExecutor(pure_noise))
    assert "not confirmed" in findings(options)
    outcome = run_text(SEARCH, SimulatedExecutor(pure_noise))
    assert outcome.trained == 12
    found = results(options)
    assert found.before.generation == 2
    assert "not confirmed" not in findings(options)
    told = [one.text for one in review("tiny", options.url) if "seeds" in one.name]
    assert not any("Write seeds:" in text for text in told)
    assert all("Write confirm:" in text for text in told)


def test_several_objectives_confirm_cells_of_the_front(
    run_text: RunText, options: Options
) -> None:
    text = (
        SEARCH.replace("name: tpe", "name: nsga2") + "metric: {top1: max, flops: min}\n"
    )
    text = text.replace("  recipe.lr", "  shortcuts.count: [0, 1, 2]\n  recipe.lr")
    run_text(text, SimulatedExecutor(pure_noise))
    found = results(options)
    points = {
        cell.index: (
            statistics.fmean(cell.search_values.values())
            if cell.is_confirmed
            else statistics.fmean(
                value for seed, value in cell.values.items() if seed not in FRESH
            ),
            -cell.cost.flops,
        )
        for cell in found.cells
        if cell.cost is not None and cell.values
    }
    confirmed = [cell.index for cell in found.cells if cell.is_confirmed]
    assert confirmed
    for row in confirmed:
        better = [
            other
            for other, point in points.items()
            if point != points[row]
            and point[0] >= points[row][0]
            and point[1] >= points[row][1]
        ]
        assert better == []


def test_a_search_with_one_seed_can_be_confirmed(
    run_text: RunText, options: Options
) -> None:
    run_text(SEARCH.replace("seeds: 2", "seeds: 1"), SimulatedExecutor(pure_noise))
    study = Study("tiny", options.url)
    confirmed = {cell.index for cell in study.results().cells if cell.is_confirmed}
    assert len(confirmed) == 2
    for effect in study.effects():
        expected = None if effect.row in confirmed else Withheld.NOT_CONFIRMED
        assert effect.withheld is expected
    assert "adjusted for 2 comparisons" in study.results_table().notes[0]
    metric = study.results().metric
    for effect in study.effects():
        if effect.row not in confirmed:
            assert "did not choose it" in sentence(effect, metric, margin=0.5)


def test_a_search_that_goes_on_has_no_p_values(
    run_text: RunText, options: Options
) -> None:
    with pytest.raises(Killed):
        run_text(SEARCH, SimulatedExecutor(pure_noise), killing(45))
    found = Study("tiny", options.url).effects()
    assert found
    assert {effect.withheld for effect in found} == {Withheld.UNFINISHED}
    assert {effect.p_adjusted for effect in found} == {None}


def test_confirmed_cells_need_seeds() -> None:
    text = SEARCH.replace("confirm: 4, ", "")
    with pytest.raises(AblateError, match=r"confirm_cells = 2 needs .* confirm: 5"):
        space.load(text, "tiny.yaml")


def test_the_plan_says_what_will_be_confirmed(say: Say) -> None:
    from pathlib import Path

    Path("search.yaml").write_text(SEARCH)
    code, out, _ = say("plan", "search.yaml")
    assert code == 0
    assert "Then the best cells (2) and row 0 are trained on 4 fresh seeds." in out
