"""Plans: designs, folding, limits, reasons."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate import space
from ablate.cost import count
from ablate.errors import AblateError, Infeasible
from ablate.plan import make_plan
from ablate.plan.designs import MOST_CELLS, combinations
from ablate.records import Architecture, Cost, Design, Factors, Space
from ablate.space.recipes import RECIPES

DOCUMENT = """
question: q
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors:
  shortcuts.count: [0, 1, 2]
  shortcuts.b: [1, 2]
  layout: [serial, parallel]
data: digits
recipe: {epochs: 2, warmup_epochs: 0}
"""


def declared(extra: str = "", document: str = DOCUMENT) -> Space:
    return space.load(document + extra, "plan.yaml")


def fake_cost(architecture: Architecture) -> Cost:
    return Cost(
        params=int(architecture.hash[:4], 16),
        flops=100,
        flops_paper=90,
        activations=10,
        elementwise=5,
    )


def test_grid_has_every_combination_once_baseline_first() -> None:
    cells = combinations(declared())
    assert len(cells) == 12 == len({tuple(c.items()) for c in cells})
    assert cells[0] == {"shortcuts.count": 0, "shortcuts.b": 1, "layout": "serial"}


def test_one_at_a_time() -> None:
    cells = combinations(declared("design: one-at-a-time\n"))
    assert [sum(c[k] != cells[0][k] for k in c) for c in cells] == [0, 1, 1, 1, 1]


def test_leave_one_out_starts_from_the_full_model() -> None:
    cells = combinations(declared("design: leave-one-out\n"))
    full = {"shortcuts.count": 2, "shortcuts.b": 2, "layout": "parallel"}
    assert cells == [
        full,
        {**full, "shortcuts.count": 0},
        {**full, "shortcuts.b": 1},
        {**full, "layout": "serial"},
    ]


def test_leave_one_out_takes_a_full_model_that_is_said() -> None:
    cells = combinations(
        declared("design: leave-one-out\nfull: {shortcuts.count: 1}\n")
    )
    assert cells[0]["shortcuts.count"] == 1


def test_add_one_in() -> None:
    cells = combinations(declared("design: add-one-in\n"))
    assert cells[0] == {"shortcuts.count": 0, "shortcuts.b": 1, "layout": "serial"}
    assert [c["shortcuts.count"] for c in cells] == [0, 2, 0, 0]


def test_baseline_may_be_another_level() -> None:
    cells = combinations(declared("baseline: {shortcuts.count: 2}\n"))
    assert cells[0]["shortcuts.count"] == 2
    assert len(cells) == 12


@pytest.mark.parametrize("recipe", ["small", "{epochs: 1}"])
def test_a_warm_up_that_the_document_does_not_set_fits_into_the_epochs_of_each_cell(
    recipe: str,
) -> None:
    text = DOCUMENT.replace(
        "  layout: [serial, parallel]\n", "  recipe.epochs: [1, 2, 20]\n"
    )
    plan = make_plan(
        declared(document=text.replace("{epochs: 2, warmup_epochs: 0}", recipe)),
        fake_cost,
    )
    trained = {
        cell.trials[0].recipe.epochs: cell.trials[0].recipe.warmup_epochs
        for cell in plan.cells
        if cell.trials
    }
    assert trained == {1: 0, 2: 1, 20: RECIPES["small"].warmup_epochs}


def test_a_warm_up_that_the_document_sets_is_refused_in_the_cells_that_it_eats() -> (
    None
):
    text = DOCUMENT.replace(
        "  layout: [serial, parallel]\n", "  recipe.epochs: [1, 20]\n"
    )
    plan = make_plan(
        declared(document=text.replace("warmup_epochs: 0", "warmup_epochs: 2")),
        fake_cost,
    )
    refused = {
        cell.levels["recipe.epochs"]: cell.note
        for cell in plan.cells
        if not cell.trials and cell.same_as is None
    }
    assert list(refused) == [1]
    assert refused[1].startswith("2 warm-up epochs leave nothing of 1 epochs")


def test_random_is_seeded_and_grows() -> None:
    four = combinations(declared("design: {name: random, cells: 4, seed: 5}\n"))
    eight = combinations(declared("design: {name: random, cells: 8, seed: 5}\n"))
    assert eight[:4] == four
    assert len({tuple(c.items()) for c in eight}) == 8
    assert (
        len(combinations(declared("design: {name: random, cells: 99, seed: 5}\n")))
        == 12
    )


@pytest.mark.proof
@given(
    st.lists(st.integers(2, 4), min_size=1, max_size=4),
    st.integers(1, 60),
    st.integers(0, 5),
)
@settings(deadline=None)
def test_designs_keep_their_promises(sizes: list[int], cells: int, seed: int) -> None:
    base = declared()
    factors = {f"f{i}": tuple(range(n)) for i, n in enumerate(sizes)}
    first, last = (
        {n: levels[0] for n, levels in factors.items()},
        {n: levels[-1] for n, levels in factors.items()},
    )
    for name in ("grid", "one-at-a-time", "leave-one-out", "add-one-in", "random"):
        found = combinations(
            replace(
                base,
                factors=Factors(levels=factors, fixed={}, baseline=first, full=last),
                design=Design(name, cells if name == "random" else None, seed),
            )
        )
        assert len({tuple(c.items()) for c in found}) == len(found)
        assert all(
            list(c) == list(factors) and all(c[n] in factors[n] for n in c)
            for c in found
        )
        assert found[0] == (last if name == "leave-one-out" else first)
        expected = {
            "grid": math.prod(sizes),
            "one-at-a-time": 1 + sum(n - 1 for n in sizes),
            "leave-one-out": 1 + len(sizes),
            "add-one-in": 1 + len(sizes),
            "random": min(cells, math.prod(sizes)),
        }
        assert len(found) == expected[name]


def test_a_grid_that_no_one_can_train_is_refused() -> None:
    many = {f"f{i}": (0, 1) for i in range(20)}
    with pytest.raises(AblateError, match="1,048,576 cells"):
        space = declared()
        combinations(replace(space, factors=replace(space.factors, levels=many)))
    assert MOST_CELLS < 2**20


def test_cells_that_build_the_same_model_are_folded_with_the_reason() -> None:
    plan = make_plan(declared(), fake_cost)
    folded = [cell for cell in plan.cells if cell.same_as is not None]
    assert [(cell.index, cell.same_as) for cell in folded] == [(2, 0), (3, 1)]
    assert all(
        cell.note == "shortcuts.b is not read unless a circulant projection is used"
        for cell in folded
    )
    assert len(plan.trials) == 10 * 3
    assert len({trial.hash for trial in plan.trials}) == 30


def test_seeds_are_crossed_and_come_one_after_the_other() -> None:
    plan = make_plan(declared("seeds: [3, 8]\n"), fake_cost)
    assert [trial.seed for trial in plan.trials] == [3] * 10 + [8] * 10


def test_infeasible_cells_say_why() -> None:
    document = DOCUMENT.replace("shortcuts.b: [1, 2]", "shortcuts.b: [1, 3]")
    plan = make_plan(declared(document=document), count)
    bad = [cell for cell in plan.cells if cell.note and cell.same_as is None]
    assert len(bad) == 4
    assert all(
        cell.note == "shortcuts.b = 3 does not divide the width 16" and not cell.trials
        for cell in bad
    )


def test_limits_compare_with_the_baseline() -> None:
    plan = make_plan(declared('limits: {params: "<= 1.01 * baseline"}\n'), count)
    broken = [cell for cell in plan.cells if not cell.feasible and cell.same_as is None]
    assert broken
    assert all(
        "breaks the limit params <= 1.01 * baseline" in cell.note for cell in broken
    )
    assert plan.cells[0].feasible


def test_a_limit_on_a_baseline_that_cannot_be_built() -> None:
    document = (
        DOCUMENT.replace("heads: 2", "heads: 3") + 'limits: {params: "<= baseline"}\n'
    )
    plan = make_plan(declared(document=document), count)
    assert all("does not divide size.width" in cell.note for cell in plan.cells)

    def refuse_baseline(architecture: Architecture) -> Cost:
        if "shortcuts.count" not in architecture.settings:
            raise Infeasible("no baseline today")
        return fake_cost(architecture)

    with pytest.raises(AblateError, match="the baseline itself cannot be built"):
        make_plan(declared('limits: {params: "<= baseline"}\n'), refuse_baseline)


def test_recipe_factors_change_the_trial_not_the_architecture() -> None:
    document = DOCUMENT.replace(
        "  layout: [serial, parallel]",
        "  recipe.lr: [1e-3, 2e-3, 0.001]".replace(", 0.001", ""),
    )
    plan = make_plan(declared(document=document), fake_cost)
    rates = {cell.trials[0].recipe.lr for cell in plan.cells if cell.trials}
    assert rates == {1e-3, 2e-3}
    assert (
        len({cell.architecture.hash for cell in plan.cells if cell.architecture}) == 5
    )


def test_augmentation_that_the_data_do_not_go_through_is_infeasible() -> None:
    plan = make_plan(
        declared(
            document=DOCUMENT.replace("epochs: 2", "rand_augment: rand-m9, epochs: 2")
        ),
        fake_cost,
    )
    assert all(
        "recipe.rand_augment works only on image files" in cell.note
        for cell in plan.cells
    )


def test_a_setting_that_no_cell_reads_is_refused() -> None:
    document = DOCUMENT.replace("  shortcuts.count: [0, 1, 2]\n", "").replace(
        "  shortcuts.b: [1, 2]\n", "  ffn.kernel: [none, 3]\n"
    )
    with pytest.raises(
        AblateError,
        match=(
            "no cell reads shortcuts.b: shortcuts.b is not read unless a circulant"
            " projection is used"
        ),
    ):
        make_plan(declared("fixed: {shortcuts.b: 2}\n", document), fake_cost)
    with pytest.raises(
        AblateError,
        match=(
            "no cell reads recipe.momentum: recipe.momentum is not read unless"
            " optimizer is sgd"
        ),
    ):
        make_plan(
            declared(
                document=DOCUMENT.replace(
                    "layout: [serial, parallel]", "recipe.momentum: [0.9, 0.5]"
                )
            ),
            fake_cost,
        )


def test_a_recipe_factor_that_is_not_read_folds_with_the_reason() -> None:
    document = DOCUMENT.replace(
        "layout: [serial, parallel]",
        "recipe.optimizer: [adamw, sgd]\n  recipe.momentum: [0.9, 0.5]",
    )
    folded = [
        c
        for c in make_plan(declared(document=document), fake_cost).cells
        if "recipe.momentum" in c.note
    ]
    assert folded
    assert all(c.levels["recipe.optimizer"] == "adamw" for c in folded)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("drop.path: [0.1, 0.2]", "it has no effect"),
        ("recipe.rand_augment: ['', foo]", "rand_augment"),
    ],
)
def test_what_would_do_nothing_or_fail_later_is_infeasible(
    settings: str, reason: str
) -> None:
    plan = make_plan(
        declared(document=DOCUMENT.replace("layout: [serial, parallel]", settings)),
        count,
    )
    assert any(reason in cell.note and not cell.trials for cell in plan.cells)


def test_a_decay_that_no_factor_reads_is_one_trial(tiny: str) -> None:
    text = tiny.replace(
        "layout: [serial, parallel]", "recipe.factor_decay: [rule, code]"
    )
    made = make_plan(space.load(text, "tiny.yaml"), fake_cost)
    assert [cell.same_as for cell in made.cells] == [None, 0, None, None]


@pytest.mark.parametrize(
    ("recipe", "extra", "note"),
    [
        (
            "cutmix: 1, mixup_prob: 0.5",
            "patch.variant: code, patch.mixing: 1",
            "patch.variant = code mixes every batch",
        ),
        (
            "cutmix: 1, mixup_off_epoch: 1",
            "patch.variant: code, patch.mixing: 1",
            "patch.variant = code mixes every batch",
        ),
        (
            "accumulate: 40",
            "",
            "recipe.accumulate = 40 is more than the 25 images of a process",
        ),
    ],
)
def test_recipes_that_a_cell_cannot_follow(recipe: str, extra: str, note: str) -> None:
    text = f"""question: q
backbone: {{family: vit, patch_size: 4, width: 16, depth: 2, heads: 2}}
factors: {{attnscale: [false, true]}}
fixed: {{{extra}}}
data: digits
recipe: {{epochs: 2, warmup_epochs: 0, batch_size: 50, {recipe}}}
resources: {{processes: {2 if "accumulate" in recipe else 1}}}
seeds: 1
"""
    plan = make_plan(
        space.load(text, "a.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    )
    assert not plan.trials
    assert all(note in cell.note for cell in plan.cells), [
        cell.note for cell in plan.cells
    ]
