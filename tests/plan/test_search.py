"""Searches: what is proposed depends on seed and results only; conditions, limits,
known points, seeds, several objectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from ablate import space
from ablate.errors import Infeasible
from ablate.plan.limits import violations
from ablate.records import (
    Architecture,
    Cost,
    Epoch,
    Known,
    Settings,
    Space,
    Status,
    Trial,
)
from ablate.scheduling.combinations import reading_order
from ablate.scheduling.search import Search
from ablate.scheduling.strategies import SAMPLERS

TEXT = """
question: Where is the optimum?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors:
  recipe.lr: [1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3, 3.2e-3, 6.4e-3]
  recipe.weight_decay: [0.0, 0.01, 0.02, 0.05, 0.1, 0.2]
  recipe.label_smoothing: [0.0, 0.1, 0.2]
strategy: {name: tpe, cells: 30, parallel: 3}
seeds: 1
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 2, batch_size: 50, warmup_epochs: 0}
"""
CONDITIONAL = TEXT.replace(
    TEXT[TEXT.index("  recipe.lr") : TEXT.index("strategy")],
    "  shortcuts.b: [1, 2, 4]\n  shortcuts.count: [0, 1, 2]\n  recipe.momentum: [0.8,"
    " 0.9]\n  recipe.optimizer: [adamw, sgd]\n",
)


def free(architecture: Architecture) -> Cost:
    return Cost(
        params=1000, flops=1000, flops_paper=1000, activations=1000, elementwise=0
    )


def top1(trial: Trial) -> float:
    """The best is in the middle."""
    recipe = trial.recipe
    return (
        90
        - abs(recipe.lr - 1.6e-3) * 1e3
        - abs(recipe.weight_decay - 0.05) * 30
        - recipe.label_smoothing * 5
    )


def known(
    trial: Trial, status: Status = Status.COMPLETED, value: float | None = None
) -> Known:
    value = top1(trial) if value is None else value
    epochs = tuple(
        Epoch(
            number=n,
            metrics={
                "train_loss": 1.0,
                "loss": 1.0,
                "top1": value * n / trial.recipe.epochs,
                "top5": 99.0,
            },
            lr=0.1,
            seconds=1.0,
        )
        for n in range(1, trial.recipe.epochs + 1)
    )
    return Known(status, epochs)


class Bench:
    """Results that a test fills in."""

    def __init__(self) -> None:
        self.found: dict[str, Known] = {}

    def __call__(self, hashes: Iterable[str]) -> Mapping[str, Known]:
        return {key: self.found[key] for key in hashes if key in self.found}


def finish(search: Search, bench: Bench, rounds: int | None = None) -> list[Settings]:
    """Trains what is wanted, last first, until the search is done or for so many
    rounds; gives the levels proposed.
    """
    while rounds is None or rounds > 0:
        search.advance()
        wanted = search.wanted()
        if not wanted and search.has_ended:
            break
        for trial in reversed(wanted):
            bench.found[trial.hash] = known(trial)
        rounds = None if rounds is None else rounds - 1
    return [cell.levels for cell in search.plan.cells]


def load(text: str, strategy: str = "tpe") -> Space:
    return space.load(text.replace("name: tpe", f"name: {strategy}"), "search.yaml")


@pytest.mark.parametrize(
    "strategy",
    [
        *(name for name in SAMPLERS if name != "gp"),
        pytest.param("gp", marks=pytest.mark.proof),
    ],
)
def test_a_resumed_search_proposes_what_the_uninterrupted_one_would(
    strategy: str,
) -> None:
    declared, bench = load(TEXT, strategy), Bench()
    straight = finish(Search(declared, free, bench), bench)
    assert len({tuple(levels.values()) for levels in straight}) == 30
    again = Bench()
    chosen: list[Settings] = []
    for _ in range(40):
        # Each round ends with a kill: only results and what was stored of the proposals
        # are left.
        search = Search(declared, free, again, chosen)
        chosen = finish(search, again, rounds=2)
        if search.has_ended:
            break
    assert chosen == straight


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(name, marks=pytest.mark.proof if name == "gp" else ())
        for name in SAMPLERS
    ],
)
def test_what_is_ready_first_changes_no_proposal(strategy: str) -> None:
    """Results come one at a time, in another order than the trials were asked for."""
    declared, bench, slow = (
        load(TEXT.replace("cells: 30", "cells: 20"), strategy),
        Bench(),
        Bench(),
    )
    straight = finish(Search(declared, free, bench), bench)
    search, waiting = Search(declared, free, slow), list[Trial]()
    while not search.has_ended:
        search.advance()
        waiting += search.wanted()
        assert len(waiting) <= 3, "no more at once than `parallel`"
        trial = waiting.pop(len(waiting) // 2)
        slow.found[trial.hash] = known(trial)
    assert [cell.levels for cell in search.plan.cells] == straight


def test_more_cells_go_on_where_fewer_ended() -> None:
    bench = Bench()
    few = finish(
        Search(load(TEXT.replace("cells: 30", "cells: 12")), free, bench), bench
    )
    trained = set(bench.found)
    many = finish(Search(load(TEXT), free, bench, few), bench)
    straight = finish(Search(load(TEXT), free, bench), bench)
    assert many == straight
    assert many[: len(few)] == few
    assert len(set(bench.found) - trained) == 18


def test_a_new_level_keeps_what_was_proposed() -> None:
    bench = Bench()
    before = finish(
        Search(load(TEXT.replace("cells: 30", "cells: 12")), free, bench), bench
    )
    wider = load(
        TEXT.replace(
            "label_smoothing: [0.0, 0.1, 0.2]", "label_smoothing: [0.0, 0.1, 0.2, 0.3]"
        )
    )
    after = finish(Search(wider, free, bench, before), bench)
    assert after[: len(before)] == before
    assert any(levels["recipe.label_smoothing"] == 0.3 for levels in after)
    narrower = load(
        TEXT.replace("label_smoothing: [0.0, 0.1, 0.2]", "label_smoothing: [0.0, 0.1]")
    )
    kept = finish(Search(narrower, free, bench, before), bench)
    still = [levels for levels in before if levels["recipe.label_smoothing"] != 0.2]
    assert kept[: len(still)] == still


def test_conditions_are_those_of_the_factors() -> None:
    declared = load(CONDITIONAL)
    assert reading_order(declared) == [
        "shortcuts.count",
        "shortcuts.b",
        "recipe.optimizer",
        "recipe.momentum",
    ]
    bench = Bench()
    found = finish(Search(declared, free, bench), bench)
    for levels in found:
        assert levels["shortcuts.count"] != 0 or levels["shortcuts.b"] == 1, (
            "not read, so at the baseline"
        )
        assert levels["recipe.optimizer"] == "sgd" or levels["recipe.momentum"] == 0.8
    # 1 + 2 * 3 paths, 1 + 2 optimisers.
    assert len({tuple(levels.values()) for levels in found}) == 21, (
        "all there are, though 30 were asked for"
    )


def test_brute_force_tries_everything_once() -> None:
    declared, bench = load(TEXT.replace(", cells: 30", ""), "brute-force"), Bench()
    found = finish(Search(declared, free, bench), bench)
    assert len(found) == len({tuple(levels.values()) for levels in found}) == 7 * 6 * 3


def test_a_point_that_is_known_is_not_trained() -> None:
    bench = Bench()
    finish(Search(load(TEXT), free, bench), bench)
    again = Search(load(TEXT), free, bench)
    again.advance()
    assert again.wanted() == []
    assert again.has_ended


def test_limits_cost_nothing_and_reach_the_sampler() -> None:
    def cost(architecture: Architecture) -> Cost:
        return replace(
            free(architecture),
            params=1000 + 100 * int(architecture.settings.get("shortcuts.count", 0)),
        )

    text = TEXT.replace(
        "recipe.label_smoothing: [0.0, 0.1, 0.2]", "shortcuts.count: [0, 1, 2, 3, 4]"
    )
    declared = load(text + 'limits: ["params <= 1.15 * baseline.params"]\n')
    bench = Bench()
    search = Search(declared, cost, bench)
    finish(search, bench)
    cells = search.plan.cells
    assert sum(cell.feasible for cell in cells) == 30
    refused = [cell for cell in cells if cell.note.startswith("params = ")]
    assert refused
    assert all(
        int(cell.levels["shortcuts.count"]) > 1 and not cell.trials for cell in refused
    )
    told = search._sampler._study.trials
    values = [
        trial.system_attrs["constraints:params <= 1.15 * baseline.params"]
        for trial in told
    ]
    assert all(
        (value > 0) == (cell.index in {r.index for r in refused})
        for value, cell in zip(values, cells, strict=True)
    )


def test_a_cell_that_cannot_be_built_is_passed_over() -> None:
    def cost(architecture: Architecture) -> Cost:
        if architecture.settings.get("shortcuts.count") == 2:
            raise Infeasible("two is one too many")
        return free(architecture)

    bench = Bench()
    search = Search(load(CONDITIONAL), cost, bench)
    finish(search, bench)
    assert sum(cell.feasible for cell in search.plan.cells) == 4 * 3
    assert {
        cell.note
        for cell in search.plan.cells
        if not cell.feasible and cell.same_as is None
    } == {"two is one too many"}


@pytest.mark.parametrize("status", [Status.DIVERGED, Status.FAILED, Status.PRUNED])
def test_what_did_not_complete_is_reported_as_it_was(status: Status) -> None:
    declared, bench = load(TEXT.replace("cells: 30", "cells: 12")), Bench()
    search = Search(declared, free, bench)
    while not search.has_ended:
        search.advance()
        for trial in search.wanted():
            bench.found[trial.hash] = known(
                trial, status if trial.recipe.label_smoothing else Status.COMPLETED
            )
    told = {trial.number: trial for trial in search._sampler._study.trials}
    for cell in search.plan.cells[:-3]:
        bad = cell.levels["recipe.label_smoothing"] != 0
        state = told[cell.index].state.name
        assert state == (
            "COMPLETE" if not bad else "PRUNED" if status == Status.PRUNED else "FAIL"
        )
        assert sorted(told[cell.index].intermediate_values) == (
            [1, 2] if state == "PRUNED" else []
        )


def test_adaptive_seeds_are_for_those_in_the_running() -> None:
    declared = load(TEXT.replace("seeds: 1", "seeds: {adaptive: 4}"))
    bench = Bench()
    search = Search(declared, free, bench)
    finish(search, bench)
    cells = [cell for cell in search.plan.cells if cell.feasible]
    assert len(cells[0].trials) == 4, "the first has nothing to be compared with"
    assert {len(cell.trials) for cell in cells} == {
        1,
        4,
    }, "without noise a worse cell is out after its first seed"
    best = max(cells, key=lambda cell: top1(cell.trials[0]))
    assert len(best.trials) == 4
    # Rebuilt from results alone, the same seeds are asked for.
    again = Search(declared, free, bench, [cell.levels for cell in search.plan.cells])
    again.advance()
    assert again.plan == search.plan


def test_several_objectives_are_reported_with_their_costs() -> None:
    def cost(architecture: Architecture) -> Cost:
        return replace(
            free(architecture),
            flops=1000 + 100 * int(architecture.settings.get("shortcuts.count", 0)),
        )

    text = TEXT.replace(
        "recipe.label_smoothing: [0.0, 0.1, 0.2]", "shortcuts.count: [0, 1, 2, 3, 4]"
    )
    for strategy in ("nsga2", "nsga3", "tpe", "random"):
        declared = load(
            text.replace("cells: 30", "cells: 15")
            + "metric: {top1: max, flops: min}\n",
            strategy,
        )
        bench = Bench()
        search = Search(declared, cost, bench)
        finish(search, bench)
        study = search._sampler._study
        assert [direction.name for direction in study.directions] == [
            "MAXIMIZE",
            "MINIMIZE",
        ]
        first = study.trials[0]
        assert first.values == [
            pytest.approx(top1(search.plan.cells[0].trials[0])),
            1000,
        ]


def test_violations_are_shares_of_the_bound() -> None:
    limits = load(
        TEXT
        + 'limits: ["flops <= 1.05 * baseline.flops", "params >= 500", "flops / params'
        ' < 2"]\n'
    ).limits
    found = violations(
        limits,
        Cost(params=1000, flops=1100, flops_paper=1, activations=1, elementwise=1),
        Cost(params=1000, flops=1000, flops_paper=1, activations=1, elementwise=1),
        {},
    )
    assert list(found.values()) == [
        pytest.approx(50 / 1050),
        0.0 - 1.0,
        pytest.approx((1.1 - 2) / 2),
    ]


def test_fewer_cells_keep_the_first_ones() -> None:
    bench = Bench()
    many = finish(
        Search(load(TEXT.replace("cells: 30", "cells: 12")), free, bench), bench
    )
    few = Search(load(TEXT.replace("cells: 30", "cells: 5")), free, bench, many)
    assert finish(few, bench) == many[:5]
    assert few.more_cells == 0


def test_a_limit_that_comes_to_no_number_refuses_the_cell_only() -> None:
    def cost(architecture: Architecture) -> Cost:
        return replace(
            free(architecture),
            params=1000 + 100 * int(architecture.settings.get("shortcuts.count", 0)),
        )

    declared = load(CONDITIONAL + 'limits: ["flops / (params - 1100) <= 5"]\n')
    bench = Bench()
    search = Search(declared, cost, bench)
    finish(search, bench)
    notes = {
        cell.note
        for cell in search.plan.cells
        if not cell.feasible and cell.same_as is None
    }
    assert any("divides by zero" in note for note in notes)
    assert any(cell.feasible for cell in search.plan.cells)


def test_results_that_a_search_did_not_ask_for_change_no_confirmation() -> None:
    """Another study may train more seeds of a cell that this search has given up."""
    text = TEXT.replace("seeds: 1", "seeds: {adaptive: 4}").replace(
        "parallel: 3", "parallel: 3, confirm: 2, confirm_cells: 2"
    )
    declared, bench = load(text), Bench()
    search = Search(declared, free, bench)
    finish(search, bench)
    confirmed = {cell.index for cell in search.plan.cells if len(cell.trials) > 4}
    assert len(confirmed) > 1
    given_up = [cell for cell in search.plan.cells if len(cell.trials) == 1]
    for cell in given_up:
        for seed in range(1, 4):
            other = replace(cell.trials[0], seed=seed)
            bench.found[other.hash] = known(other, value=99.0)
    again = Search(declared, free, bench, [cell.levels for cell in search.plan.cells])
    again.advance()
    assert again.plan == search.plan
