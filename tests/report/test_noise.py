"""The noise of rows: what it does not depend on, and that simulation and data agree."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ablate.records import FIRST_LEVEL, Looks, Status, next_level
from ablate.report.effects import Judge, effects
from ablate.report.family import family_of
from ablate.report.verdicts import LEVEL, Verdict, Withheld, level_of_look
from ablate.report.wording import sentence, verdict_text
from ablate.statistics import noise
from ablate.statistics.noise import Family, null_of, standardise
from ablate.statistics.seeds_needed import chances
from tests.benchmarks import load

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def trust() -> ModuleType:
    return load("trust")


def drawn(rows: int, seeds: int, seed: int = 0) -> Array:
    """Values of a reference and rows: a seed effect that all share, and noise."""
    generator = np.random.default_rng(seed)
    shared = generator.normal(0, 2, (1, seeds))
    return 70 + shared + generator.normal(0, 0.5, (rows + 1, seeds))


def family(values: Sequence[Sequence[float]] | Array) -> Family:
    reference, *rows = [dict(enumerate(map(float, row))) for row in values]
    found = family_of(reference, rows, planned=len(rows))
    assert found is not None
    return found


def test_a_single_row_is_tested_by_the_paired_t_test() -> None:
    values = drawn(1, 5)
    (test,) = family(values).tests(0.5, LEVEL)
    expected = stats.ttest_rel(values[1], values[0])
    assert test is not None
    assert test.p == test.p_adjusted == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval(0.95)
    assert (test.low, test.high) == (pytest.approx(low), pytest.approx(high))
    both = [
        stats.ttest_rel(values[1] + sign * 0.5, values[0], alternative=side).pvalue
        for sign, side in ((1, "greater"), (-1, "less"))
    ]
    assert test.p_same == pytest.approx(max(both))


def test_the_pooled_variance_is_that_of_a_model_with_seeds_as_blocks() -> None:
    values = drawn(4, 3)
    residuals = values - values.mean(axis=1, keepdims=True)
    residuals = residuals - residuals.mean(axis=0)
    pooled = 2 * (residuals**2).sum() / (4 * 2)
    differences = values[1:] - values[0]
    own = differences.var(axis=1, ddof=1)
    common = values[0] - values[1:].mean(axis=0)
    reference = 2 / (1 + 1 / 4) * common.var(ddof=1)
    blend = 0.5 * pooled + 0.3 * own + 0.2 * reference
    blend += 2 * np.maximum(own - 2 * pooled, 0)
    blend += 2 * max(reference - 2 * pooled, 0)
    found = standardise(differences, np.ones((4, 3), dtype=bool))
    assert found.error == pytest.approx(np.sqrt(blend / 3))
    assert found.score == pytest.approx(differences.mean(axis=1) / found.error)


def test_what_a_seed_does_to_all_cells_cancels() -> None:
    values = drawn(3, 4)
    moved = values + np.array([0.0, 50.0, -3.0, 7.0])
    before, after = family(values), family(moved)
    assert np.allclose(after.found.score, before.found.score)
    assert np.allclose(after.found.mean, before.found.mean)


def test_the_order_of_rows_and_seeds_does_not_matter() -> None:
    values = drawn(3, 4)
    before = family(values).tests(0.5, LEVEL)
    for order in itertools.permutations(range(3)):
        rows = [values[0], *(values[1 + row] for row in order)]
        shuffled = [row[::-1] for row in rows]
        after = family(shuffled).tests(0.5, LEVEL)
        for row, test in zip(order, after, strict=True):
            first = before[row]
            assert test is not None and first is not None
            assert test.p_adjusted == pytest.approx(first.p_adjusted, abs=1e-4)
            assert test.mean == pytest.approx(first.mean)


def test_units_do_not_matter() -> None:
    values = drawn(3, 3)
    percent = family(values).tests(0.5, LEVEL)
    shares = family(values / 100).tests(0.005, LEVEL)
    for one, other in zip(percent, shares, strict=True):
        assert one is not None and other is not None
        assert (one.p_adjusted, one.p_same) == pytest.approx(
            (other.p_adjusted, other.p_same)
        )


def test_unusual_noise_counts_more() -> None:
    values = drawn(6, 5)
    usual = family(values).found.error
    values[4] += np.array([9.0, -7.0, 4.0, -6.0, 8.0])
    found = family(values).found
    own = (values[4] - values[0]).var(ddof=1)
    assert found.error[3] > np.sqrt(own / 5)
    assert (found.error[[0, 1, 2, 4, 5]] < found.error[3]).all()
    values = drawn(6, 5)
    values[0] += np.array([9.0, -7.0, 4.0, -6.0, 8.0])
    found = family(values).found
    assert (found.error**2 > (values[1:] - values[0]).var(axis=1, ddof=1) / 5).all()
    assert (found.error > usual).all()


@given(
    st.integers(0, 10_000),
    st.sampled_from([3, 4, 5]),
    st.sampled_from([0, 3]),
    st.sampled_from([0.05, 0.045, 0.0025]),
)
def test_an_interval_excludes_0_exactly_if_p_is_below_the_level(
    seed: int, seeds: int, missing: int, level: float
) -> None:
    generator = np.random.default_rng(seed)
    noise = generator.choice([0.3, 1.0, 5.0], size=(5, 1))
    values = generator.normal(size=(5, seeds)) * noise
    values[1:] += generator.normal(0, 4, size=(4, 1))
    reference, *rows = [dict(enumerate(map(float, row))) for row in values]
    known = family_of(reference, rows, planned=4 + missing)
    assert known is not None
    for test in known.tests(0.5, level):
        assert test is not None
        assert (test.low > 0 or test.high < 0) == (test.p_adjusted < level)
        assert test.low < test.mean < test.high


def test_a_spread_of_last_bits_of_single_precision_is_none() -> None:
    base = np.array([0.731, 0.744, 0.752])
    rows = np.array([base + 0.01, base + 0.02])
    values = np.float32(np.vstack([base, rows])).astype(float)
    reference, *others = [dict(enumerate(map(float, row))) for row in values]
    assert family_of(reference, others, planned=2) is None


def test_rows_without_values_count() -> None:
    reference, *rows = [dict(enumerate(map(float, row))) for row in drawn(2, 3)]
    known = family_of(reference, rows, planned=2)
    more = family_of(reference, rows, planned=6)
    assert known is not None and more is not None
    for one, other in zip(known.tests(0.5, LEVEL), more.tests(0.5, LEVEL), strict=True):
        assert one is not None and other is not None
        assert other.p_adjusted == pytest.approx(min(1.0, 3 * one.p_adjusted))


def test_missing_seeds_are_left_out() -> None:
    reference, *rows = [dict(enumerate(map(float, row))) for row in drawn(3, 5)]
    del rows[1][3]
    del rows[2][0]
    found = family_of(reference, rows, planned=3)
    assert found is not None
    assert found.counts == (5, 4, 4)
    expected = np.mean([rows[1][seed] - reference[seed] for seed in rows[1]])
    assert found.found.mean[1] == pytest.approx(expected)


def test_no_noise_is_no_information() -> None:
    reference = {0: 80.0, 1: 81.0, 2: 79.0}
    rows = [
        {seed: value + more for seed, value in reference.items()} for more in (1, 2)
    ]
    assert family_of(reference, rows, planned=2) is None
    assert family_of(reference, [], planned=2) is None
    # Equal differences beside a row with noise: the noise of the others counts.
    rows[1][2] += 0.7
    found = family_of(reference, rows, planned=2)
    assert found is not None
    first, _ = found.tests(0.5, LEVEL)
    assert first is None or first.error > 0


def test_differences_that_are_equal_on_paper_have_no_noise() -> None:
    """The last bits of 80.1 - 80.0 say nothing."""
    values = 80 + np.random.default_rng(1).normal(0, 0.3, (2, 3))
    values[0, 2] = 50
    values[1] = values[0] + 0.1
    reference, row = [dict(enumerate(map(float, row))) for row in values]
    assert family_of(reference, [row], planned=1) is None


def test_p_values_are_those_of_the_simulation() -> None:
    null = null_of(np.ones((3, 4), dtype=bool))
    quantile = null.quantile(0.05, 3)
    assert null.p(quantile, 3) <= 0.05 < null.p(quantile - 1e-6, 3)
    assert null.p(-quantile, 3) == null.p(quantile, 3)
    assert 0 < null.p(1e9, 3) < 0.001
    assert null.p(0, 3) == 1
    # More rows make a large score more likely.
    one, two = (null_of(np.ones((rows, 4), dtype=bool)) for rows in (1, 2))
    assert one.p(2.0, 1) < two.p(2.0, 2) < null.p(2.0, 3) < null.p(2.0, 4)
    assert null.p_above(quantile, 3) == null.p(quantile, 3)
    assert null.p_above(-quantile, 3) == 1


@pytest.mark.proof
@pytest.mark.parametrize(("rows", "seeds"), [(2, 3), (7, 3), (5, 6)])
def test_the_error_rate_holds_under_each_noise(rows: int, seeds: int) -> None:
    """Draws of their own, which share no code with the simulation but the scores."""
    present = np.ones((rows, seeds), dtype=bool)
    limit = null_of(present).quantile(0.05, rows)
    generator = np.random.default_rng(99)
    for each in noise.NOISES:
        values = generator.normal(0, 1, (20_000, rows + 1, seeds))
        values *= np.exp(generator.normal(0, each.spread / 2, (20_000, rows + 1, 1)))
        values[:, 0] *= each.baseline**0.5
        values[:, rows] *= each.row**0.5
        scores = standardise(values[:, 1:] - values[:, :1], present).score
        wrong = (np.abs(scores) >= limit).any(axis=1).mean()
        level = 0.05 * each.allowed
        # Three standard errors of this share, and of that of the simulation.
        assert wrong <= level + 3 * (2 * level * (1 - level) / 20_000) ** 0.5


@pytest.mark.proof
def test_large_families_take_little_memory_and_time() -> None:
    values = drawn(2000, 3)
    values[7] += 500
    found = family(values)
    assert found.null.rows == noise.MOST_ROWS
    tests = found.tests(0.5, LEVEL)
    assert tests[6] is not None and tests[6].p_adjusted < 0.05
    others = [one for row, one in enumerate(tests) if row != 6 and one is not None]
    assert min(one.p_adjusted for one in others) > 0.05


def test_more_seeds_are_more_likely_to_decide() -> None:
    values = drawn(3, 3)
    values[1] += 0.8
    likely = chances(family(values), 0, 0.5, LEVEL)
    assert likely.shape == (200,)
    assert likely[0] < likely[5] < likely[40] <= 1


@pytest.mark.parametrize(
    "looks",
    [
        Looks(3, 6, 3),
        Looks(3, 12, 3),
        Looks(3, 30, 3),
        Looks(3, 60, 1),
        Looks(2, 1000, 1),
    ],
    ids=lambda looks: f"{looks.number} looks",
)
def test_the_shares_of_the_looks_add_up(looks: Looks) -> None:
    shares = [level_of_look(looks, look, FIRST_LEVEL) for look in range(looks.number)]
    assert sum(shares) == pytest.approx(FIRST_LEVEL)
    assert shares == sorted(shares)
    # A clear effect can be found at the first look.
    assert shares[0] >= 0.8 * min(0.001, LEVEL / looks.number) - 1e-9
    assert level_of_look(None, 0, FIRST_LEVEL) == FIRST_LEVEL


def test_the_levels_of_a_lineage_add_up() -> None:
    levels: list[float] = []
    for _ in range(30):
        levels.append(next_level(sum(levels)))
    assert levels[:4] == pytest.approx([0.04, 0.005, 0.0025, 0.00125])
    assert levels == sorted(levels, reverse=True)
    assert sum(levels) <= LEVEL + 1e-12
    # A study of an older version may have used more, and final seeds use all of it.
    assert next_level(0.045) == pytest.approx(0.0025)
    assert next_level(LEVEL) == 0.0


def test_clear_effects_are_found_at_the_first_of_many_looks(trust: ModuleType) -> None:
    values = drawn(2, 30)
    values[1] += 1000
    values[2] += 500
    results = trust.made(values[:, :3], trust.names(3))
    for effect in effects(results, 0.5, Looks(3, 30, 3)):
        assert effect.verdict is Verdict.HELPS


def test_rows_without_a_difference_still_count_at_later_looks(
    trust: ModuleType,
) -> None:
    """Which rows are left depends on their values."""
    values = drawn(3, 6)
    values[1] = values[0] + 0.01 * (values[1] - values[1].mean())
    results = trust.made(values, trust.names(4))
    cells = list(results.cells)
    for index in (1, 2):
        states = {seed: cells[index].statuses[seed] for seed in range(3)}
        short = {seed: cells[index].values[seed] for seed in range(3)}
        cells[index] = replace(cells[index], statuses=states, values=short)
    judge = Judge(
        direction="max",
        margin=50.0,
        looks=Looks(3, 6, 3),
        level=FIRST_LEVEL,
        next_level=0.0,
    )
    first = judge.together(cells[1:], cells[0], look=0)
    kept = [effect for effect in first if effect.verdict is Verdict.SAME]
    assert len(kept) == 3
    (alone,) = judge.together([cells[3]], cells[0], look=1)
    (counted,) = judge.together([cells[3]], cells[0], look=1, decided=kept[:2])
    assert alone.judged is not None and counted.judged is not None
    assert counted.judged.p == pytest.approx(min(1.0, 3 * alone.judged.p))
    assert counted.judged.p_same == alone.judged.p_same


@pytest.mark.parametrize("looks", [None, Looks(3, 6, 3)])
def test_a_primary_row_whose_differences_are_equal_has_no_verdict(
    trust: ModuleType, looks: Looks | None
) -> None:
    """A network that learns nothing may have the same accuracy with every seed."""
    values = drawn(3, 6)
    values[1] = values[0] + 3
    results = trust.made(values, trust.names(4))
    first, second, third = effects(replace(results, primary=(1, 2)), 0.05, looks)
    assert first.primary
    assert first.estimate is None
    assert first.verdict is Verdict.INCONCLUSIVE
    # The next comparisons are tested only if the first one differs.
    assert second.withheld is Withheld.NOT_TESTED
    assert third.withheld is Withheld.NOT_TESTED
    said = sentence(first, results.metric, 0.05)
    assert "all differences are equal" in said
    assert verdict_text(first) == "inconclusive: no spread"


def test_a_decided_row_keeps_the_verdict_of_its_look(trust: ModuleType) -> None:
    """Row 1 is decided at three seeds and gets no more; row 2 goes on to six."""
    noisy = [0.3, -0.2, 0.1, -0.3, 0.2, -0.1]
    reference = [70 + error for error in noisy]
    clear = [80 - error for error in noisy[:3]]
    unclear = [70.2 + 0.7 * error for error in reversed(noisy)]
    results = trust.made([reference, [*clear, 0, 0, 0], unclear], trust.names(3))
    cells = list(results.cells)
    first_three = {seed: cells[1].values[seed] for seed in range(3)}
    states = {seed: cells[1].statuses[seed] for seed in range(3)}
    cells[1] = replace(cells[1], values=first_three, statuses=states)
    results = replace(results, cells=tuple(cells))
    looks = Looks(3, 6, 3)
    decided, open_ = effects(results, 0.5, looks)
    assert decided.verdict is Verdict.HELPS
    assert decided.seeds == (0, 1, 2)
    assert open_.seeds == tuple(range(6))
    # With the seeds of the first look alone, row 1 has the same verdict and interval.
    shorter = [
        replace(cell, values=dict(list(cell.values.items())[:3])) for cell in cells
    ]
    alone, _ = effects(replace(results, cells=tuple(shorter)), 0.5, looks)
    assert alone.estimate == decided.estimate


def test_a_look_that_is_not_complete_gives_no_verdict(trust: ModuleType) -> None:
    results = trust.made([[70.0, 70.1, 69.9], [80.0, 80.2, 79.9]], trust.names(2))
    looks = Looks(3, 6, 3)
    (whole,) = effects(results, 0.5, looks)
    assert whole.verdict is Verdict.HELPS
    cells = list(results.cells)
    planned = {**cells[1].statuses, 2: Status.PLANNED}
    values = {seed: cells[1].values[seed] for seed in range(2)}
    cells[1] = replace(cells[1], statuses=planned, values=values)
    (partial,) = effects(replace(results, cells=tuple(cells)), 0.5, looks)
    assert partial.verdict is Verdict.INCONCLUSIVE


def test_seeds_are_named_at_levels_that_no_simulation_reaches() -> None:
    values = drawn(3, 3)
    values[1] += 0.8
    likely = chances(family(values), 0, 0.5, 1e-6)
    assert likely[-1] > 0.5
