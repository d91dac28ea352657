"""Ranges of levels, and limits over levels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from ablate import space
from ablate.errors import AblateError, SpaceError
from ablate.plan import make_plan
from ablate.records import Architecture, Cost, Known, Space
from ablate.records.plain import to_data
from ablate.scheduling import strategies
from ablate.scheduling.combinations import Combinations, reading_order
from ablate.scheduling.search import Search
from ablate.scheduling.strategies import CellOutcome, Exported
from ablate.space.ranges import LEVELS_OF_A_SEARCH, spaced
from ablate.store.space_data import from_data
from ablate.text.document import parse

TEXT = """
question: Which learning rate?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors: {recipe.lr: {low: 3e-4, high: 1e-2, scale: log}, ffn.kernel: [none, 3]}
baseline: {recipe.lr: 1e-3}
strategy: {name: tpe, cells: 12}
"""
DESIGN = TEXT.replace("scale: log}", "scale: log, count: 4}").replace(
    "strategy: {name: tpe, cells: 12}", "design: grid"
)


def load(text: str) -> Space:
    return space.load(text, "ranges.yaml")


def count(_: Architecture) -> Cost:
    return Cost(params=9, flops=9, flops_paper=9, activations=9, elementwise=9)


def test_a_range_of_a_search_is_a_list_of_numbers() -> None:
    levels = load(TEXT).factors.levels["recipe.lr"]
    assert levels[0] == 3e-4
    assert levels[-1] == 1e-2
    assert 1e-3 in levels
    assert LEVELS_OF_A_SEARCH <= len(levels) <= LEVELS_OF_A_SEARCH + 1
    ratios = [second / first for first, second in itertools.pairwise(levels)]
    assert max(ratios) < 1.06
    assert load(TEXT).factors.baseline["recipe.lr"] == 1e-3


def test_a_range_of_a_design_has_as_many_levels_as_it_says() -> None:
    declared = load(DESIGN)
    assert declared.factors.levels["recipe.lr"] == (3e-4, 9.65e-4, 1e-3, 3.11e-3, 1e-2)
    assert declared.factors.baseline == {"recipe.lr": 1e-3, "ffn.kernel": "none"}
    assert len(make_plan(declared, count).cells) == 10


def test_a_range_and_its_list_are_one_space() -> None:
    ranged = load(DESIGN)
    listed = load(
        DESIGN.replace(
            "{low: 3e-4, high: 1e-2, scale: log, count: 4}",
            "[3e-4, 9.65e-4, 1e-3, 3.11e-3, 1e-2]",
        )
    )
    hashes = [
        [trial.hash for cell in make_plan(each, count).cells for trial in cell.trials]
        for each in (ranged, listed)
    ]
    assert hashes[0] == hashes[1]


@pytest.mark.hypothesis
@given(
    low=st.floats(1e-9, 1e6),
    ratio=st.floats(1.001, 1e9),
    number=st.integers(2, 300),
    scale=st.sampled_from(["linear", "log"]),
)
def test_levels_are_different_in_order_and_inside(
    low: float, ratio: float, number: int, scale: str
) -> None:
    levels: list[Any] = spaced(low, low * ratio, number, scale)
    assert levels[0] == low
    assert levels[-1] == low * ratio
    assert 2 <= len(levels) <= number
    assert levels == sorted(set(levels))


@pytest.mark.hypothesis
@given(
    low=st.integers(-1000, 1000),
    width=st.integers(1, 1000),
    number=st.integers(2, 300),
)
def test_between_whole_numbers_levels_are_whole(
    low: int, width: int, number: int
) -> None:
    levels: list[Any] = spaced(low, low + width, number, "linear")
    assert all(type(level) is int for level in levels)
    assert levels[0] == low
    assert levels[-1] == low + width
    assert len(levels) == min(number, width + 1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("{low: 1e-2, high: 3e-4}", "low is 0.01 and high is 0.0003"),
        ("{low: 1e-2, high: 1e-2}", "low is 0.01 and high is 0.01"),
        ("{low: 0, high: 1e-2, scale: log}", "a logarithmic range is above 0"),
        ("{low: 2e-3, high: 1e-2}", "the baseline level 0.001 is outside the range"),
        ("{low: 1e-4}", "missing key 'high' in factors.recipe.lr"),
        ("{low: 1e-4, high: 1e-2, scale: lgo}", "did you mean 'log'"),
        ("{low: 1e-4, high: 1e-2, steps: 3}", "unknown key 'steps'"),
        ("{low: 1e-4, high: 1e-2, count: 1}", "greater than or equal to 2"),
        ("{low: 1e-4, high: 1e-2, count: 10000}", "less than or equal to 1000"),
        ("{low: true, high: 2}", "factors.recipe.lr.low: must be a number, found"),
        ("{low: small, high: 2}", "factors.recipe.lr.low: must be a number, found"),
        ("{low: 1e-4, high: 1e-2, zzz: 3}", "known: low, high, scale, count"),
        ("{low: .nan, high: 2}", "'.nan' is not a finite number"),
        ("{low: 0, high: .inf}", "'.inf' is not a finite number"),
        ("{low: -1.7e308, high: 1.7e308}", "has no finite width"),
        ("{}", "missing key 'low' in factors.recipe.lr"),
        ("{low: -1, high: 1e-2}", "recipe.lr: "),
    ],
)
def test_wrong_ranges(changed: str, message: str) -> None:
    text = TEXT.replace("{low: 3e-4, high: 1e-2, scale: log}", changed)
    with pytest.raises(SpaceError) as caught:
        load(text)
    assert message in str(caught.value)
    assert "ranges.yaml:4: " in str(caught.value)
    assert len(caught.value.problems) == (2 if changed == "{}" else 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TEXT.replace("baseline: {recipe.lr: 1e-3}\n", ""),
            "a range has no first level; name its baseline level:"
            " `baseline: {recipe.lr: 0.0003}`",
        ),
        (
            DESIGN.replace(", count: 4", ""),
            "a design needs the number of levels of a range, such as {low: 0.0003,"
            " high: 0.01, scale: log, count: 5}",
        ),
        (
            DESIGN.replace("design: grid", "design: rows\nrows: [{}, {ffn.kernel: 3}]"),
            "rows name their levels",
        ),
        (
            TEXT.replace(
                "ffn.kernel: [none, 3]", "ffn.kernel: {low: 1, high: 7}"
            ).replace("1e-3}", "1e-3, ffn.kernel: 1}"),
            "ffn.kernel: 2 is not a level",
        ),
        (
            TEXT + "exclude: [{recipe.lr: 2e-3}]\n",
            "exclude: 0.002 is not among the levels of recipe.lr",
        ),
    ],
)
def test_ranges_where_they_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        load(text)
    assert message in str(caught.value)
    assert max(map(len, str(caught.value).splitlines())) < 400


@pytest.mark.proof
def test_the_schema_has_ranges_of_numbers_only() -> None:
    schema = space.json_schema()
    jsonschema.validate(parse(TEXT, "x").values, schema)
    wrong = TEXT.replace("[none, 3]", "{low: 1, high: 3}")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(parse(wrong, "x").values, schema)


def test_a_search_over_ranges_knows_which_factors_are_read() -> None:
    declared = load(
        TEXT.replace(
            "ffn.kernel: [none, 3]",
            "shortcuts.b: [1, 2], shortcuts.count: {low: 0, high: 60}, recipe.momentum:"
            " {low: 0.5, high: 0.99}, recipe.optimizer: [adamw, sgd]",
        ).replace("1e-3}", "1e-3, shortcuts.count: 0, recipe.momentum: 0.9}")
    )
    order = reading_order(declared)
    assert order.index("shortcuts.count") < order.index("shortcuts.b")
    assert order.index("recipe.optimizer") < order.index("recipe.momentum")
    combinations = Combinations(declared, 0)
    drawn = combinations.draw(1)
    assert drawn is not None
    assert not combinations.is_exhausted


def test_limits_over_levels() -> None:
    declared = load(
        DESIGN.replace("ffn.kernel: [none, 3]", "size.mlp_ratio: [2, 4]").replace(
            "recipe.lr: {low: 3e-4",
            "recipe.weight_decay: [0.0, 0.1], recipe.lr: {low: 3e-4",
        )
        + 'limits: ["recipe.lr * (1 + 10 * recipe.weight_decay) <= 1e-2", "size.width <= 16"]\n'
    )
    plan = make_plan(declared, count)
    notes = {
        (cell.levels["recipe.weight_decay"], cell.levels["recipe.lr"]): cell.note
        for cell in plan.cells
        if not cell.trials and cell.same_as is None
    }
    assert list(notes) == [(0.1, 1e-2)]
    assert (
        "recipe.lr * (1 + 10 * recipe.weight_decay) = 0.02 breaks the limit"
        in notes[0.1, 1e-2]
    )
    assert from_data(to_data(declared), "").limits == declared.limits


@pytest.mark.parametrize(
    "limit",
    ["ffn.kernel <= 3", "recipe.epochs <= 3", "layout <= 1", "recipe.lr() <= 1"],
)
def test_limits_are_about_numbers_that_the_space_names(limit: str) -> None:
    with pytest.raises(SpaceError) as caught:
        load(TEXT + f'limits: ["{limit}"]\n')
    assert "is not a bound on costs, or on factors whose levels are numbers" in str(
        caught.value
    )
    assert "recipe.lr" in str(caught.value)


def test_a_level_that_is_no_number_is_infeasible() -> None:
    """A row of design rows may have a level that is not listed: the backbone's own."""
    declared = load(
        """
question: Which kernel?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors: {ffn.kernel: [3, 5]}
design: rows
rows: [{ffn.kernel: 3}, {}, {ffn.kernel: 5}]
limits: ["ffn.kernel <= 3"]
"""
    )
    notes = [cell.note for cell in make_plan(declared, count).cells]
    assert notes[0] == ""
    assert "ffn.kernel is none here, which is no number" in notes[1]
    assert "ffn.kernel = 5 breaks the limit" in notes[2]


def test_spacing_of_a_narrow_range_is_exact_enough() -> None:
    levels: list[Any] = spaced(0.9, 0.95, 101, "linear")
    assert len(levels) == 101
    assert all(
        math.isclose(level, 0.9 + 0.0005 * number, rel_tol=1e-3)
        for number, level in enumerate(levels)
    )


def test_between_whole_ends_a_rate_has_fractions() -> None:
    text = DESIGN.replace(
        "recipe.lr: {low: 3e-4, high: 1e-2, scale: log, count: 4}",
        "recipe.weight_decay: {low: 0, high: 1, count: 5}, shortcuts.count: {low: 0,"
        " high: 8, count: 5}",
    ).replace("recipe.lr: 1e-3", "recipe.weight_decay: 0.1, shortcuts.count: 0")
    levels = load(text).factors.levels
    assert levels["recipe.weight_decay"] == (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
    assert levels["shortcuts.count"] == (0, 2, 4, 6, 8)
    assert {type(level) for level in levels["shortcuts.count"]} == {int}


def results(_: Collection[str]) -> dict[str, Known]:
    return {}


def test_a_range_that_changes_keeps_the_cells_that_are_known() -> None:
    before = load(TEXT)
    search = Search(before, count, results)
    search.advance()
    proposed = [cell.levels for cell in search.plan.cells]
    assert len(proposed) == 4
    after = load(TEXT.replace("high: 1e-2", "high: 3e-2"))
    again = Search(after, count, results, proposed)
    assert [cell.levels for cell in again.plan.cells] == proposed
    narrow = load(TEXT.replace("high: 1e-2", "high: 5e-3"))
    kept = Search(narrow, count, results, proposed).plan.cells
    assert [cell.levels for cell in kept] == [
        levels for levels in proposed if levels["recipe.lr"] <= 5e-3
    ]
    assert 1 < len(kept) < 4


def test_row_0_keeps_the_limits() -> None:
    for limit in ("recipe.lr <= 5e-4", "1 / (recipe.lr - 1e-3) <= 3", "params <= 3"):
        declared = load(DESIGN + f'limits: ["{limit}"]\n')
        with pytest.raises(AblateError, match="row 0 is not allowed"):
            make_plan(declared, count)


def test_ranges_are_numbers_for_optuna() -> None:
    declared = load(
        TEXT.replace(
            "ffn.kernel: [none, 3]",
            "ffn.kernel: [none, 3], size.depth: {low: 1, high: 4}",
        )
        .replace("depth: 1, ", "")
        .replace("1e-3}", "1e-3, size.depth: 2}")
    )
    cells = [
        Exported(
            {"recipe.lr": 1e-3, "size.depth": 2, "ffn.kernel": 3},
            CellOutcome("completed", (float(number),)),
            {},
            {},
        )
        for number in range(4)
    ]
    (trial, *_) = strategies._trials(cells, declared.factors, 1)
    lr, depth, kernel = (
        trial.distributions[name] for name in ("recipe.lr", "size.depth", "ffn.kernel")
    )
    assert isinstance(lr, FloatDistribution)
    assert (lr.low, lr.high, lr.log) == (3e-4, 1e-2, True)
    assert isinstance(depth, IntDistribution)
    assert (depth.low, depth.high, depth.log) == (1, 4, False)
    assert isinstance(kernel, CategoricalDistribution)
