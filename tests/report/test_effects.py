"""Effects and verdicts of single studies, and how they read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType

import pytest
from scipy import stats

from ablate.errors import AblateError
from ablate.records import Status, StudyResults
from ablate.report import effects_table, numbers
from ablate.report.charts import interaction_chart, interaction_charts, terms_chart
from ablate.report.effects import control_effects, effects
from ablate.report.factorial import Factorial
from ablate.report.verdicts import Estimate, Verdict, verdicts_by_holm
from ablate.report.wording import sentence
from ablate.statistics import spending
from ablate.tasks import classification
from tests.benchmarks import load


@pytest.fixture(scope="module")
def trust() -> ModuleType:
    return load("trust")


def study(
    trust: ModuleType,
    values: Sequence[Sequence[float]],
    levels: Sequence[Mapping[str, object]] | None = None,
) -> StudyResults:
    made: StudyResults = trust.made(values, levels or trust.names(len(values)))
    return made


def test_an_effect_is_the_paired_t_test(trust: ModuleType) -> None:
    a, b = [79.1, 80.3, 78.2, 79.9], [80.0, 80.9, 79.4, 80.6]
    (effect,) = effects(study(trust, [a, b]), 0.5)
    expected = stats.ttest_rel(b, a)
    assert effect.estimate is not None
    assert effect.estimate.p == pytest.approx(expected.pvalue)
    # What the first look at four seeds may spend of the 5 %.
    level = spending.FIRST * spending.spent(4)
    low, high = expected.confidence_interval(1 - level)
    assert (effect.estimate.low, effect.estimate.high) == (
        pytest.approx(low),
        pytest.approx(high),
    )
    assert effect.verdict is Verdict.HELPS
    assert (
        sentence(effect, classification.METRICS[0], 0.5)
        == f"cell = 1 helps: +0.85 points (95 % interval {low:+.2f} to {high:+.2f}, 4"
        " seeds) at equal FLOPs."
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [(0, "at equal FLOPs"), (40, "at +0.04 MFLOPs"), (-40, "at -0.04 MFLOPs")],
)
def test_a_sentence_says_what_the_row_costs(
    trust: ModuleType, more: int, said: str
) -> None:
    flops = [1_000_000, 1_000_000 + 1000 * more]
    results = trust.made([[80.0, 81.0], [81.5, 81.4]], trust.names(2), flops)
    (effect,) = effects(results, 0.5)
    assert said in sentence(effect, classification.METRICS[0], 0.5)


def test_a_value_just_below_the_limit_does_not_look_like_it() -> None:
    assert [numbers.p_text(value) for value in (0.0496, 0.05, 0.0494, 0.0004)] == [
        "0.0496",
        "0.050",
        "0.049",
        "< 0.001",
    ]


def test_the_direction_of_a_loss_is_down(trust: ModuleType) -> None:
    results = replace(
        study(trust, [[1.0, 1.1, 1.2], [0.5, 0.61, 0.7]]),
        direction="min",
    )
    assert effects(results, 0.02)[0].verdict is Verdict.HELPS
    assert effects(replace(results, direction="max"), 0.02)[0].verdict is Verdict.HURTS


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[80.0], [81.0]], "one seed contains no information about noise"),
        ([[80.0, 80.0, 81.0], [80.5, 80.5, 81.5]], "all differences are equal"),
        ([[80.0, 81.0], [81.5, 81.4]], "inconclusive"),
        (
            [[80.0, 81.0, 79.0, 80.5], [80.01, 81.02, 79.0, 80.5]],
            "makes no difference of 0.5 points or more",
        ),
    ],
)
def test_what_cannot_be_reported_is_said(
    trust: ModuleType, values: list[list[float]], words: str
) -> None:
    (effect,) = effects(study(trust, values), 0.5)
    assert words in sentence(effect, classification.METRICS[0], 0.5)
    assert effect.verdict in (Verdict.INCONCLUSIVE, Verdict.SAME)


def test_diverged_and_pruned_seeds_are_shown_and_in_no_mean(trust: ModuleType) -> None:
    results = study(trust, [[80.0, 81.0, 79.0], [81.0, 82.1, 80.2]])
    states = {
        0: Status.COMPLETED,
        1: Status.COMPLETED,
        2: Status.COMPLETED,
        3: Status.DIVERGED,
        4: Status.PRUNED,
    }
    cell = replace(results.cells[1], statuses=states)
    (effect,) = effects(replace(results, cells=(results.cells[0], cell)), 0.5)
    assert effect.mean == pytest.approx(1.1)
    assert effect.left_out == {"diverged": 1, "pruned": 1}
    assert "3 seeds; 1 diverged; 1 pruned" in sentence(
        effect, classification.METRICS[0], 0.5
    )


def test_the_predicted_seeds_are_fewer_where_the_effect_is_clearer(
    trust: ModuleType,
) -> None:
    def further(shift: float) -> int:
        (effect,) = effects(
            study(
                trust, [[80.0, 81.0, 79.0], [80.9 + shift, 81.2 + shift, 80.1 + shift]]
            ),
            0.5,
        )
        assert effect.verdict is Verdict.INCONCLUSIVE
        assert effect.further is not None
        return effect.further

    assert further(0.2) <= further(0.0) < further(-0.3)


def test_no_estimates_no_verdicts() -> None:
    assert verdicts_by_holm([], 0.5, "max") == []
    (found,) = verdicts_by_holm([Estimate.of(1.0, 0.1, 9)], 0.5, "max")
    assert found.verdict is Verdict.HELPS


GRID = [
    dict(zip("ab", cell, strict=True)) for cell in itertools.product((0, 1), (0, 1, 2))
]


def test_main_effects_average_over_the_other_factors(trust: ModuleType) -> None:
    noise = [
        [0.1, -0.1, 0.0],
        [0.0, 0.1, -0.1],
        [-0.1, 0.0, 0.1],
        [0.1, 0.0, -0.1],
        [0.0, -0.1, 0.1],
        [-0.1, 0.1, 0.0],
    ]
    means = [70 + 2 * c["a"] + c["b"] + c["a"] * c["b"] for c in GRID]
    values = [[m + e for e in row] for m, row in zip(means, noise, strict=True)]
    results = study(trust, values, GRID)
    model = Factorial(results, {"a": 0, "b": 0})
    found = {
        (term.factors, term.levels): term.estimate
        for term in model.main_effects(0.5, "max")
    }
    assert {
        key: round(estimate.value, 6) for key, estimate in found.items() if estimate
    } == {
        (("a",), (1,)): 3.0,  # 2 + the mean of b
        (("b",), (1,)): 1.5,
        (("b",), (2,)): 3.0,
    }
    together = {term.levels: term.estimate for term in model.interactions(0.5, "max")}
    assert {
        key: round(estimate.value, 6) for key, estimate in together.items() if estimate
    } == {(1, 1): 1.0, (1, 2): 2.0}
    terms = model.contributions({"a": 1, "b": 2}, 0.5, "max")
    notes = {
        by_seed: terms_chart(results, terms, "Contributions", by_seed=by_seed).note
        for by_seed in (False, True)
    }
    assert "pooled over all cells" in notes[False]
    assert "Student's t over the seeds" in notes[True]
    assert {
        (t.kind, t.factors[0]): round(t.estimate.value, 6) for t in terms if t.estimate
    } == {
        ("alone", "a"): 2.0,
        ("alone", "b"): 2.0,
        ("left out", "a"): 4.0,
        ("left out", "b"): 4.0,
        ("shapley", "a"): 3.0,
        ("shapley", "b"): 3.0,
    }
    shapley = sum(t.estimate.value for t in terms if t.estimate and t.kind == "shapley")
    assert shapley == pytest.approx(means[-1] - means[0]), (
        "Shapley values add up to what all do together"
    )


def test_only_kinds_of_contributions_in_the_table_are_explained(
    trust: ModuleType,
) -> None:
    levels = [{"a": 0, "b": 0}, {"a": 1, "b": 0}, {"a": 0, "b": 1}]
    values = [[70, 71, 70.5], [71, 72.1, 71.4], [70, 71.1, 70.4]]
    for cells, kinds in (
        (3, {"alone"}),
        (4, {"alone", "left out", "shapley", "full model"}),
    ):
        results = study(
            trust,
            [*values, [72, 73, 72.6]][:cells],
            [*levels, {"a": 1, "b": 1}][:cells],
        )
        table = effects_table.contributions_table(
            results, {"a": 0, "b": 0}, {"a": 1, "b": 1}, 0.5
        )
        notes = " ".join(table.notes)
        words = ("alone", "left out", "shapley", "full model")
        assert {word for word in words if word in notes} == kinds


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ({}, None),
        ({2: Status.RUNNING}, None),
        ({2: Status.FAILED}, "without a result: 1 failed."),
        (
            {1: Status.DIVERGED, 2: Status.FAILED},
            "without a result: 1 failed, 1 diverged.",
        ),
        ({1: Status.PRUNED, 2: Status.PRUNED}, "without a result: 2 pruned."),
    ],
)
def test_effects_of_factors_name_the_trials_that_they_leave_out(
    trust: ModuleType, statuses: Mapping[int, Status], said: str | None
) -> None:
    """A level that makes trials fail would look good by the trials that are left."""
    levels = [
        dict(zip("ab", cell, strict=True)) for cell in itertools.product((0, 1), (0, 1))
    ]
    results = study(
        trust,
        [[70, 71, 70.5], [71, 72.1, 71.4], [70, 71.1, 70.4], [72, 73, 72.4]],
        levels,
    )
    cells = list(results.cells)
    values = {
        seed: value for seed, value in cells[3].values.items() if seed not in statuses
    }
    cells[3] = replace(
        cells[3], values=values, statuses={**cells[3].statuses, **statuses}
    )
    results = replace(results, cells=tuple(cells))
    baseline = {"a": 0, "b": 0}
    full = {"a": 1, "b": 1}
    for table in (
        effects_table.factors_table(results, baseline, 0.5, interactions=False),
        effects_table.factors_table(results, baseline, 0.5, interactions=True),
        effects_table.contributions_table(results, baseline, full, 0.5),
    ):
        notes = " ".join(table.notes)
        if said is None:
            assert "without a result" not in notes
        else:
            assert said in notes


def test_a_failed_control_is_not_part_of_the_effects_of_factors(
    trust: ModuleType,
) -> None:
    levels = [{"a": 0, "b": 0}, {"a": 1, "b": 0}, {"a": 0, "b": 1}, {"a": 1, "b": 1}]
    values = [[70, 71, 70.5], [71, 72.1, 71.4], [70, 71.1, 70.4], [72, 73, 72.4]]
    results = study(trust, values, levels)
    control = replace(
        results.cells[0],
        index=4,
        role="control",
        control_of=1,
        values={},
        statuses={0: Status.FAILED},
    )
    results = replace(results, cells=(*results.cells, control))
    table = effects_table.factors_table(
        results, {"a": 0, "b": 0}, 0.5, interactions=False
    )
    assert "without a result" not in " ".join(table.notes)


def test_a_reason_and_the_number_of_its_seeds_are_said_once(trust: ModuleType) -> None:
    results = study(trust, [[70, 71, 70.5, 70.2], [71, 72.1, 71.4, 71.3]])
    states = {**results.cells[1].statuses, 3: Status.FAILED}
    values = {seed: results.cells[1].values[seed] for seed in (0, 1, 2)}
    cell = replace(results.cells[1], values=values, statuses=states)
    results = replace(results, cells=(results.cells[0], cell))
    table = effects_table.effects_table(results, effects(results, 0.5), 0.5)
    assert [row[-1] for row in table.rows] == ["trials failed (1)"]


def test_a_repeated_cell_counts_once_and_stands_for_its_levels(
    trust: ModuleType,
) -> None:
    """Where a is 0 the model does not read b: those cells are one, with one mean and no
    degrees of freedom of their own.
    """
    values = [[70.0, 70.2, 69.9], [0.0] * 3, [71.0, 71.1, 71.2], [72.0, 72.3, 71.9]]
    results = study(
        trust,
        values,
        [
            dict(zip("ab", cell, strict=True))
            for cell in itertools.product((0, 1), (0, 1))
        ],
    )
    cells = list(results.cells)
    cells[1] = replace(
        cells[1], values={}, statuses={}, same_as=0, unread=frozenset("b")
    )
    model = Factorial(replace(results, cells=tuple(cells)), {"a": 0, "b": 0})
    assert model.freedom == (3 - 1) * (3 - 1)
    a, b = model.main_effects(0.5, "max")
    assert a.estimate is not None
    assert b.estimate is not None
    assert a.estimate.value == pytest.approx((71.1 + 72.0667) / 2 - 70.0333, abs=1e-3)
    assert b.estimate.value == pytest.approx((72.0667 - 71.1) / 2, abs=1e-3), (
        "half of the cells do not read it"
    )


def test_one_at_a_time_tells_main_effects_only(trust: ModuleType) -> None:
    levels = [{"a": 0, "b": 0}, {"a": 1, "b": 0}, {"a": 0, "b": 1}]
    model = Factorial(
        study(trust, [[70, 71, 70.5], [71, 72.1, 71.4], [70, 71.1, 70.4]], levels),
        {"a": 0, "b": 0},
    )
    assert model.additive
    assert [
        round(t.estimate.value, 3) for t in model.main_effects(0.5, "max") if t.estimate
    ] == [1.0, 0.0]
    assert all(term.estimate is None for term in model.interactions(0.5, "max"))
    alone = {
        t.factors[0]: t.estimate
        for t in model.contributions({"a": 1, "b": 1}, 0.5, "max")
    }
    assert set(alone) == {"a", "b"}


def test_one_seed_has_no_spread(trust: ModuleType) -> None:
    with pytest.raises(AblateError, match="the spread cannot be measured with 1 seeds"):
        Factorial(study(trust, [[70.0], [71.0]]), {"cell": 0})


def test_rounding_is_no_spread(trust: ModuleType) -> None:
    """One image more of 10,000 on every seed: differences that are equal but for their
    last bits.
    """
    correct = [7012, 7030, 6977, 7001, 7040]
    results = study(
        trust,
        [
            [n / 10_000 * 100 for n in correct],
            [(n + 1) / 10_000 * 100 for n in correct],
        ],
    )
    assert effects(results, 0.5)[0].estimate is None
    for values in (
        [[10.0] * 3, [10.0] * 3],
        [[0.0] * 3, [0.0] * 3],
        [[70.1, 71.2, 69.3], [70.4, 71.5, 69.6]],
    ):
        with pytest.raises(AblateError, match="contains no information about noise"):
            Factorial(study(trust, values), {"cell": 0})


def test_a_row_without_an_estimate_is_one_of_the_family(trust: ModuleType) -> None:
    results = study(trust, [[80.0, 81.0, 79.0], [81.0, 81.9, 80.25], [82.0]])
    first, second = effects(results, 0.5)
    assert first.estimate is not None
    assert first.judged is not None
    alone = effects(replace(results, cells=results.cells[:2]), 0.5)[0].p_adjusted
    assert alone is not None
    # It is one of two rows.
    assert alone < first.judged.p < 2.5 * alone
    assert second.estimate is None


def test_interactions_of_a_folded_grid_are_not_made_up(trust: ModuleType) -> None:
    """b is not read where a is 0; over all cells it does nothing, and its line is flat."""
    levels = [
        dict(zip("abc", cell, strict=True))
        for cell in itertools.product((0, 1), (0, 1), (0, 1))
    ]
    noise = itertools.cycle([0.1, -0.1, 0.05])
    values = [
        [70 + 5 * c["a"] + c["c"] + next(noise) for _ in range(3)] for c in levels
    ]
    results = study(trust, values, levels)
    cells = [
        (
            replace(
                cell,
                values={},
                statuses={},
                same_as=cell.index - 2,
                unread=frozenset("b"),
            )
            if c["a"] == 0 and c["b"]
            else cell
        )
        for cell, c in zip(results.cells, levels, strict=True)
    ]
    chart = interaction_chart(replace(results, cells=tuple(cells)), "b", "c")
    for line in chart.series:
        assert abs(line.y[1] - line.y[0]) < 0.2
        assert len(line.y) == 2


def test_only_interactions_that_the_cells_show_are_drawn(trust: ModuleType) -> None:
    """One factor at a time shows none; the two factors of a grid show theirs."""
    grid = [
        dict(zip("abc", cell, strict=True))
        for cell in itertools.product((0, 1), (0, 1), (0,))
    ]
    values = [
        [70.0, 70.1, 69.9],
        [71.0, 71.2, 70.9],
        [72.0, 72.1, 71.8],
        [75.0, 75.1, 74.8],
    ]
    charts = interaction_charts(study(trust, values, grid))
    assert [chart.title for chart in charts] == ["a x b"]
    alone = study(trust, values[:3], grid[:3])
    assert interaction_charts(alone) == []


def test_effects_against_controls_of_the_same_cost(trust: ModuleType) -> None:
    results = study(trust, [[70, 71, 70.5], [72, 73.1, 72.4], [71.9, 73.0, 72.5]])
    control = replace(results.cells[2], role="control", control_of=1)
    (effect,) = control_effects(
        replace(results, cells=(*results.cells[:2], control)), 0.5
    )
    assert (effect.row, effect.against) == (1, 2)
    assert effect.mean == pytest.approx(1 / 30, abs=1e-6)
    assert (
        len(effects(replace(results, cells=(*results.cells[:2], control)), 0.5)) == 1
    ), "controls are no variants"


def test_effects_of_factors_say_why_their_noise_is_pooled(trust: ModuleType) -> None:
    """With seven seeds and one missing, each cell still has five or more."""
    levels = [{"a": 0, "b": 0}, {"a": 1, "b": 0}, {"a": 0, "b": 1}, {"a": 1, "b": 1}]
    noise = [0.0, 0.3, -0.2, 0.1, -0.4, 0.2, 0.5]
    values = [[70 + cell + e * (1 + cell) for e in noise] for cell in range(4)]
    complete = study(trust, values, levels)
    cells = list(complete.cells)
    rest = {seed: value for seed, value in cells[3].values.items() if seed != 6}
    cells[3] = replace(cells[3], values=rest)
    lacking = replace(complete, cells=tuple(cells))
    for results, is_pooled in ((complete, False), (lacking, True)):
        table = effects_table.factors_table(
            results, {"a": 0, "b": 0}, 0.5, interactions=False
        )
        notes = " ".join(table.notes)
        assert ("a cell lacks one of them" in notes) is is_pooled
        assert ("computed seed by seed" in notes) is not is_pooled


def test_a_trainer_without_costs_has_no_column_for_them(trust: ModuleType) -> None:
    results = study(trust, [[70.0, 71.0, 72.5], [73.0, 75.0, 74.0]])
    table = effects_table.effects_table(results, effects(results, 0.5), 0.5)
    assert "Δ FLOPs" in " ".join(table.columns)
    cells = tuple(replace(cell, cost=None) for cell in results.cells)
    results = replace(results, cells=cells)
    table = effects_table.effects_table(results, effects(results, 0.5), 0.5)
    assert "Δ FLOPs" not in " ".join(table.columns)
