"""Trainings that completed near chance, as an outcome of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.report.collapse import collapsed_seeds, near_chance
from ablate.report.table import render
from ablate.results.review import review
from ablate.results.study import Study
from tests.store.desk import HELPS, TEXT, by_row, changed, epoch


def collapsing(trial: Trial, number: int) -> Epoch:
    """One seed of the row with only `layout` changed ends near chance."""
    made = epoch(trial, number)
    if changed(trial) == {"layout": "parallel"} and trial.seed == 2:
        return replace(made, metrics={**made.metrics, "top1": 11.0})
    return made


@pytest.fixture
def study(options: Options) -> Study:
    pipeline.run(
        space.load(TEXT, "parts.yaml"),
        "parts.yaml",
        options,
        executor=SimulatedExecutor(collapsing),
    )
    return Study("parts", options.url)


@pytest.mark.proof
def test_a_collapsed_seed_is_shown_and_stays_in_the_mean(study: Study) -> None:
    results = study.results()
    assert results.chance == 10
    assert collapsed_seeds(results) == {HELPS: [2]}
    assert "1 collapsed" in study.table()
    effect = by_row(study)[HELPS]
    assert effect.mean is not None
    assert effect.mean < -10
    assert len(effect.seeds) == 4
    others = [results.cells[HELPS].values[seed] for seed in (0, 1, 3)]
    reference = [results.cells[0].values[seed] for seed in (0, 1, 3)]
    without = (sum(others) - sum(reference)) / 3
    notes = render(study.effects_table(), "md")
    assert (
        "below 19 % while most trainings are well above: row 4: 1 of 4 seeds" in notes
    )
    assert f"which leave out the failures: row 4 {without:+.2f}" in notes
    (finding,) = [
        one for one in review("parts", study.store) if one.name == "collapsed seeds"
    ]
    assert "row 4: 1 of 4 trainings ended near chance" in finding.text


def test_a_study_in_which_nothing_is_learnt_has_no_collapse(study: Study) -> None:
    results = study.results()
    low = tuple(
        replace(cell, values=dict.fromkeys(cell.values, 12.0)) for cell in results.cells
    )
    assert collapsed_seeds(replace(results, cells=low)) == {}
    assert collapsed_seeds(replace(results, chance=None)) == {}


@pytest.mark.parametrize(
    ("chance", "limit"), [(50, 55), (10, 19), (0.1, 0.2), (1, 2), (100 / 3, 40)]
)
def test_near_chance_is_never_what_a_good_network_reaches(
    chance: float, limit: float
) -> None:
    """With two classes, twice the chance would be 100 %."""
    assert near_chance(chance) == pytest.approx(limit)
