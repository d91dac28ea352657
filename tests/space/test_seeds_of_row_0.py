"""The key `seeds.baseline`: how it is read, planned, stored and refused."""

from __future__ import annotations

import pytest

from ablate import pipeline, space
from ablate.errors import AblateError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.plan import make_plan
from ablate.results.review import review
from ablate.results.study import Study
from ablate.scheduling.cost_cache import CostCache
from tests.conftest import TINY, RunText

MORE = TINY.replace("seeds: 2", "seeds: {count: 2, baseline: 5}")


def seeds_of(text: str) -> list[list[int]]:
    plan = make_plan(space.load(text, "tiny.yaml"), CostCache({}))
    return [[trial.seed for trial in cell.trials] for cell in plan.cells]


@pytest.mark.parametrize(
    ("seeds", "row_0", "others"),
    [
        ("{count: 2, baseline: 5}", [0, 1, 2, 3, 4], [0, 1]),
        ("{count: [7, 3], baseline: 4}", [7, 3, 8, 9], [7, 3]),
        ("{until_decided: 4, start: 2, baseline: 6}", [0, 1, 2, 3, 4, 5], [0, 1, 2, 3]),
        ("{until_decided: 4, start: 2, baseline: 3}", [0, 1, 2, 3], [0, 1, 2, 3]),
    ],
)
def test_row_0_has_further_seeds(
    seeds: str, row_0: list[int], others: list[int]
) -> None:
    first, *rest = seeds_of(TINY.replace("seeds: 2", f"seeds: {seeds}"))
    assert first == row_0
    assert rest and all(row == others for row in rest)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ("{count: 5, baseline: 5}", "must be more than 5, that of the other rows"),
        ("{until_decided: 9, baseline: 3}", "must be more than 3"),
        ("{adaptive: 5, baseline: 9}", "unknown key 'baseline'"),
    ],
)
def test_a_number_that_is_not_more_is_refused(seeds: str, message: str) -> None:
    with pytest.raises(AblateError, match=message):
        space.load(TINY.replace("seeds: 2", f"seeds: {seeds}"), "tiny.yaml")


def test_a_search_has_no_row_0_with_further_seeds() -> None:
    text = MORE.replace("design: grid", "strategy: {name: random, cells: 3}")
    with pytest.raises(AblateError, match="baseline works for designs only"):
        space.load(text, "tiny.yaml")


@pytest.mark.proof
def test_more_seeds_of_row_0_after_results_are_a_new_generation(
    run_text: RunText, options: Options
) -> None:
    run_text(MORE, SimulatedExecutor())
    study = Study("tiny", options.url)
    assert study.declared() == space.load(MORE, "tiny.yaml")
    assert study.results().before.studies == ()
    assert pipeline.resume("tiny", options, executor=SimulatedExecutor()).trained == 0
    hints = [finding.text for finding in review("tiny", options.url)]
    assert any("Write `seeds: {count: " in hint for hint in hints), hints
    more = MORE.replace("baseline: 5", "baseline: 8")
    assert run_text(more, SimulatedExecutor()).trained == 3
    later = Study("tiny", options.url)
    assert later.results().before.generation == 2
    assert Study("tiny@1", options.url).results().baseline_seeds == 5
    # Fewer seeds of row 0 than those that were known may be chosen ones.
    fewer = MORE.replace("baseline: 5", "baseline: 4")
    run_text(fewer, SimulatedExecutor())
    assert all(effect.withheld for effect in Study("tiny", options.url).effects())
