"""Budgets of a study: they hold over runs, kills and several kinds of studies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ablate import pipeline, space
from ablate.budget import Budget, BudgetMeter, Used
from ablate.errors import AblateError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options, Outcome
from ablate.records import Epoch, Progressed, Trial
from ablate.store.reader import Reader
from tests.conftest import TINY, Killed, Say, killing

HOUR = 3600.0


def epoch(trial: Trial, number: int) -> Epoch:
    """An hour per epoch."""
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": 50.0, "top5": 90.0},
        lr=1e-3,
        seconds=HOUR,
    )


def run(
    options: Options, budget: Budget, text: str = TINY, name: str = "tiny"
) -> Outcome:
    return pipeline.run(
        space.load(text, f"{name}.yaml"),
        f"{name}.yaml",
        replace(options, budget=budget),
        executor=SimulatedExecutor(epoch),
    )


def test_trials_are_counted_over_all_runs(options: Options) -> None:
    first = run(options, Budget(trials=3))
    assert (first.trained, first.unfinished, first.interrupted) == (3, 5, True)
    assert first.exhausted == "max_trials 3"
    again = run(options, Budget(trials=3))
    assert (again.trained, again.exhausted) == (0, "max_trials 3")
    more = run(options, Budget(trials=5))
    assert more.trained == 2
    rest = run(options, Budget(trials=8))
    assert (rest.trained, rest.interrupted, rest.exhausted) == (3, False, "")


def test_a_killed_trial_goes_on_within_the_budget(options: Options) -> None:
    """Its begin counts once."""
    with pytest.raises(Killed):
        pipeline.run(
            space.load(TINY, "tiny.yaml"),
            "tiny.yaml",
            replace(options, budget=Budget(trials=2)),
            killing(at=3),
            SimulatedExecutor(epoch),
        )
    assert run(options, Budget(trials=2)).trained <= 2
    with Reader(options.url) as reader:
        assert len(reader.costs.used(["tiny"]).trials) == 2


def test_known_results_cost_nothing(options: Options) -> None:
    run(options, Budget(), name="other")
    outcome = run(options, Budget(trials=1), TINY.replace("seeds: 2", "seeds: 3"))
    assert (outcome.known_before, outcome.trained) == (8, 1)


def test_hours_stop_a_run(options: Options) -> None:
    """Each trial takes three hours; the epoch that reaches the limit is the last."""
    outcome = run(options, Budget(hours=7))
    assert outcome.exhausted == "max_hours 7"
    assert outcome.interrupted
    with Reader(options.url) as reader:
        used = reader.costs.used(["tiny"])
    assert used.seconds / HOUR == 7
    again = run(options, Budget(hours=7))
    assert (again.trained, again.exhausted) == (0, "max_hours 7")
    assert not run(options, Budget(hours=100)).interrupted


def test_a_search_stops_too(options: Options) -> None:
    text = TINY.replace("design: grid", "strategy: {name: random, cells: 4}")
    outcome = run(options, Budget(trials=3), text)
    assert (outcome.trained, outcome.exhausted) == (3, "max_trials 3")
    assert not run(options, Budget(), text).interrupted


def test_an_epoch_that_is_reported_again_counts_once() -> None:
    meter = BudgetMeter(Budget(hours=2), Used(seconds=HOUR / 2))
    event = Progressed("a", (Epoch(number=1, metrics={}, lr=0.0, seconds=HOUR),))
    meter.count(event)
    meter.count(event)
    assert meter.hours == 1.5
    assert not meter.must_stop


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_allows_nothing_is_refused(limit: float) -> None:
    with pytest.raises(AblateError, match="give a number above 0"):
        Budget(hours=limit)


def test_the_command_says_that_the_budget_is_used_up(say: Say) -> None:
    words = ("run", "tiny.yaml", "--executor", "inline", "--max-trials", "1")
    code, out, err = say(*words)
    assert code == 3
    assert "The budget is used up (--max-trials 1): 1 of 4 trials done." in err
    assert "ablate resume tiny --executor inline" in err
    assert out.startswith("tiny") or "top-1" in out
    code, _, err = say("run", "tiny.yaml", "--max-hours", "0")
    assert code == 2
    assert "--max-hours 0.0 allows nothing" in err
