"""Trials that are stopped early: by which rule, what is stored of them, and that a
resumed run knows what the first one knew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.execution import make
from ablate.execution.early_stopping import make_stopping_rule
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Hooks, Options
from ablate.records import (
    Ended,
    Epoch,
    Event,
    Order,
    Resources,
    Scheduler,
    Status,
    Trial,
)
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import RunText

GRID = """
question: Which trials are worth their epochs?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors:
  recipe.lr: [1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3, 3.2e-3, 6.4e-3, 1.28e-2]
  recipe.weight_decay: [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4]
scheduler: SCHEDULER
seeds: 1
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 27, batch_size: 50, warmup_epochs: 0}
"""


def curve(trial: Trial, number: int) -> Epoch:
    """Cells keep their order from the first epoch on; the best is in the middle."""
    level = (
        90
        - abs(math.log2(trial.recipe.lr / 1.6e-3)) * 3
        - abs(trial.recipe.weight_decay - 0.05) * 40
    )
    return Epoch(
        number=number,
        metrics={
            "train_loss": 1.0,
            "loss": 1.0,
            "top1": level * (1 - math.exp(-6 * number / trial.recipe.epochs)),
            "top5": 99.0,
        },
        lr=trial.recipe.lr,
        seconds=1.0,
    )


def with_scheduler(scheduler: str) -> str:
    return GRID.replace("SCHEDULER", scheduler)


@pytest.mark.parametrize(
    ("scheduler", "most"),
    [
        ("{name: asha, reduction: 3}", 0.30),
        ("{name: hyperband, reduction: 3}", 0.45),
        ("{name: median, grace_epochs: 2}", 0.75),
    ],
)
def test_the_best_cell_is_found_with_a_part_of_the_epochs(
    run_text: RunText, options: Options, scheduler: str, most: float
) -> None:
    run_text(with_scheduler(scheduler), SimulatedExecutor(curve))
    results = Study("tiny", options.url).results()
    best = max(results.cells, key=lambda cell: max(cell.values.values(), default=0))
    assert (best.levels["recipe.lr"], best.levels["recipe.weight_decay"]) == (
        1.6e-3,
        0.05,
    )
    states = Counter(
        state for cell in results.cells for state in cell.statuses.values()
    )
    assert states[Status.PRUNED] > 16
    assert states[Status.PRUNED] + states[Status.COMPLETED] == 64
    assert all(
        not cell.values
        for cell in results.cells
        if Status.PRUNED in cell.statuses.values()
    ), "pruned ones have no value"
    with Reader(options.url) as reader:
        (trained,) = reader.query("SELECT SUM(epochs_done) FROM trials")[1][0]
    assert trained <= most * 64 * 27
    assert run_text(with_scheduler(scheduler), SimulatedExecutor(curve)).trained == 0, (
        "what was pruned stays so"
    )


@pytest.mark.proof
def test_a_resumed_run_knows_the_rungs(
    run_text: RunText, options: Options, table: Callable[[], str]
) -> None:
    """A run that is interrupted again and again stops the same trials, but for those
    that were under way.
    """
    text = with_scheduler("{name: asha, reduction: 3}")
    outcome, runs = None, 0
    while outcome is None or outcome.interrupted:
        events: list[Event] = []

        def enough(events: list[Event] = events) -> bool:
            return sum(isinstance(event, Ended) for event in events) >= 9

        outcome = run_text(
            text, SimulatedExecutor(curve), Hooks(event=events.append, stop=enough)
        )
        runs += 1
    assert runs > 5
    with Reader(options.url) as reader:
        (trained,) = reader.query("SELECT SUM(epochs_done) FROM trials")[1][0]
    assert trained <= 0.30 * 64 * 27, (
        "without its memory, each run would have trained its first trials to the end"
    )


def order(
    scheduler: Scheduler, peers: dict[str, tuple[Epoch, ...]] | None = None
) -> Order:
    return Order(
        jobs=(),
        metric="top1",
        direction="max",
        resources=Resources(),
        epochs=9,
        scheduler=scheduler,
        peers=peers or {},
    )


def flat(value: float, count: int) -> tuple[Epoch, ...]:
    return tuple(
        Epoch(
            number=number,
            metrics={"train_loss": 1.0, "loss": 1.0, "top1": value, "top5": 99.0},
            lr=0.1,
            seconds=1.0,
        )
        for number in range(1, count + 1)
    )


def test_known_curves_are_compared_with() -> None:
    peers = {f"peer{n}": flat(80.0 + n, 9) for n in range(4)}
    for scheduler in (Scheduler("asha", 1, 3), Scheduler("median", 1)):
        rule = make_stopping_rule(order(scheduler, peers))
        assert rule is not None
        rule.add("good", ())
        rule.add("bad", ())
        assert not rule.stops("good", flat(90.0, 1))
        assert rule.stops("bad", flat(10.0, 1))
        alone = make_stopping_rule(order(scheduler))
        assert alone is not None
        alone.add("bad", ())
        assert not alone.stops("bad", flat(10.0, 1)), "nothing to compare with"


def test_epochs_reported_twice_count_once() -> None:
    rule = make_stopping_rule(
        order(
            Scheduler("asha", 1, 3), {f"peer{n}": flat(80.0 + n, 9) for n in range(4)}
        )
    )
    assert rule is not None
    rule.add("one", flat(10.0, 2))
    assert not rule.stops("one", flat(10.0, 2)), "decided before"
    assert rule.stops("one", flat(10.0, 3))


def test_a_trial_is_in_the_same_bracket_in_every_run() -> None:
    keys = [f"{n:020x}" for n in range(64)]

    def stopped() -> list[bool]:
        rule = make_stopping_rule(
            order(
                Scheduler("hyperband", 1, 3), {key: flat(50.0, 9) for key in keys[:32]}
            )
        )
        assert rule is not None
        for key in keys[32:]:
            rule.add(key, ())
        return [rule.stops(key, flat(10.0, 1)) for key in keys[32:]]

    assert stopped() == stopped()
    assert len(set(stopped())) == 2, "some brackets begin later"


def test_fifo_has_no_rule() -> None:
    assert make_stopping_rule(order(Scheduler())) is None


@pytest.mark.proof
def test_the_inline_executor_stops_trials_too(tiny: str, tmp_path: Path) -> None:
    text = (
        tiny.replace(
            "layout: [serial, parallel]", "recipe.lr: [2e-3, 1e-7, 1e-8, 1e-9]"
        )
        + "scheduler: {name: asha, reduction: 2}\n"
    )
    options = Options(runs=tmp_path, executor="inline", cpus=2)
    pipeline.run(
        space.load(text.replace("epochs: 3", "epochs: 4"), "tiny.yaml"),
        "tiny.yaml",
        options,
        executor=make("inline"),
    )
    states = Counter(
        state
        for cell in Study("tiny", options.url).results().cells
        for state in cell.statuses.values()
    )
    assert states[Status.PRUNED] >= 2
    assert states[Status.COMPLETED] >= 2
    assert sum(states.values()) == 16


def test_a_trial_that_may_not_be_stopped_is_not_compared() -> None:
    peers = {f"peer{n}": flat(80.0 + n, 9) for n in range(4)}
    rule = make_stopping_rule(order(Scheduler("asha", 1, 3), peers))
    assert rule is not None
    rule.add("exempt", (), early_stop="apart")
    assert not rule.stops("exempt", flat(10.0, 9))
    rule.add("bad", ())
    assert rule.stops("bad", flat(10.0, 1))


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", "median"])
def test_row_0_counts_for_the_others_and_is_never_stopped(scheduler: str) -> None:
    said = (
        Scheduler(scheduler, 1, 3) if scheduler != "median" else Scheduler("median", 1)
    )
    peers = {f"peer{n}": flat(80.0 + n, 9) for n in range(6)}
    rule = make_stopping_rule(order(said, peers))
    assert rule is not None
    rule.add("row 0", (), early_stop="compared")
    for epochs in range(1, 10):
        assert not rule.stops("row 0", flat(10.0, epochs))
    rule.add("bad", ())
    assert any(rule.stops("bad", flat(5.0, epochs)) for epochs in range(1, 10))
