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

from ablate.records import LEVEL, Looks, Status
from ablate.report.effects import effects
from ablate.report.family import family_of
from ablate.report.verdicts import Verdict, Withheld
from ablate.report.wording import sentence, verdict_text
from ablate.statistics import noise, spending
from ablate.statistics.noise import (
    Family,
    Null,
    null_of,
    scores_of,
    standardise,
)
from ablate.statistics.power import complete_look
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
    found = family_of(reference, rows)
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
    known = family_of(reference, rows, 4 + missing)
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
    assert family_of(reference, others) is None


def test_rows_without_values_count() -> None:
    reference, *rows = [dict(enumerate(map(float, row))) for row in drawn(2, 3)]
    known = family_of(reference, rows)
    more = family_of(reference, rows, 6)
    assert known is not None and more is not None
    for one, other in zip(known.tests(0.5, LEVEL), more.tests(0.5, LEVEL), strict=True):
        assert one is not None and other is not None
        assert one.p_adjusted < other.p_adjusted < 4 * one.p_adjusted


def test_missing_seeds_are_left_out() -> None:
    reference, *rows = [dict(enumerate(map(float, row))) for row in drawn(3, 5)]
    del rows[1][3]
    del rows[2][0]
    found = family_of(reference, rows)
    assert found is not None
    assert found.counts == (5, 4, 4)
    expected = np.mean([rows[1][seed] - reference[seed] for seed in rows[1]])
    assert found.found.mean[1] == pytest.approx(expected)


def test_no_noise_is_no_information() -> None:
    reference = {0: 80.0, 1: 81.0, 2: 79.0}
    rows = [
        {seed: value + more for seed, value in reference.items()} for more in (1, 2)
    ]
    assert family_of(reference, rows) is None
    assert family_of(reference, []) is None
    # Equal differences beside a row with noise: the noise of the others counts.
    rows[1][2] += 0.7
    found = family_of(reference, rows)
    assert found is not None
    first, _ = found.tests(0.5, LEVEL)
    assert first is None or first.error > 0


def test_differences_that_are_equal_on_paper_have_no_noise() -> None:
    """The last bits of 80.1 - 80.0 say nothing."""
    values = 80 + np.random.default_rng(1).normal(0, 0.3, (2, 3))
    values[0, 2] = 50
    values[1] = values[0] + 0.1
    reference, row = [dict(enumerate(map(float, row))) for row in values]
    assert family_of(reference, [row]) is None


def null(rows: int, seeds: int, share: float = 1.0) -> Null:
    return null_of([complete_look(rows, seeds, seeds)], share)


def test_p_values_are_those_of_the_simulation() -> None:
    three = null(3, 4)
    quantile = three.quantile(0.05)
    assert three.p(quantile) <= 0.05 < three.p(quantile - 1e-6)
    assert three.p(-quantile) == three.p(quantile)
    assert 0 < three.p(1e9) < 0.001
    assert three.p(0) == 1
    # More rows make a large score more likely, and so does a smaller share.
    assert null(2, 4).p(3.0) < three.p(3.0) < null(3, 4, 0.8).p(3.0)
    assert three.p_above(quantile) == three.p(quantile)
    assert three.p_above(-quantile) == 1


@pytest.mark.proof
@pytest.mark.parametrize(("rows", "seeds"), [(2, 3), (7, 3), (5, 6)])
def test_the_error_rate_holds_under_each_noise(rows: int, seeds: int) -> None:
    """Draws of their own, which share no code with the simulation but the scores."""
    present = np.ones((rows, seeds), dtype=bool)
    limit = null(rows, seeds).quantile(0.05)
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
    assert found.null.more == 2000 / noise.MOST_ROWS
    tests = found.tests(0.5, LEVEL)
    assert tests[6] is not None and tests[6].p_adjusted < 0.05
    others = [one for row, one in enumerate(tests) if row != 6 and one is not None]
    assert min(one.p_adjusted for one in others) > 0.05


def test_more_seeds_are_more_likely_to_decide() -> None:
    values = drawn(3, 3)
    values[1] += 0.8
    likely = chances(family(values), 0, 0.5)
    assert likely.shape == (200,)
    assert likely[0] < likely[5] < likely[40] <= 1


@pytest.mark.proof
@pytest.mark.parametrize("rows", [1, 3])
def test_all_looks_together_have_the_level_of_the_last_one(rows: int) -> None:
    """Draws of their own: 3 seeds, then 5, then 8."""
    looks = [complete_look(rows, seeds, 8) for seeds in (3, 5, 8)]
    generator = np.random.default_rng(5)
    for each in noise.NOISES:
        values = generator.normal(0, 1, (20_000, rows + 1, 8))
        values *= np.exp(generator.normal(0, each.spread / 2, (20_000, rows + 1, 1)))
        values[:, 0] *= each.baseline**0.5
        values[:, 1] *= each.row**0.5
        wrong = np.zeros(20_000, dtype=bool)
        for number, look in enumerate(looks):
            limit = null_of(looks[: number + 1]).quantile(look.level)
            wrong |= (np.abs(scores_of(values, look).score) >= limit).any(axis=1)
        level = looks[-1].level * each.allowed
        error = (2 * level * (1 - level) / 20_000) ** 0.5
        assert wrong.mean() <= level + 4 * error


def test_the_levels_of_seeds_grow_to_less_than_5_percent() -> None:
    levels = [spending.spent(seeds) for seeds in (2, 3, 5, 8, 12, 100, 10_000)]
    assert levels == sorted(levels)
    assert levels[-1] < LEVEL
    assert spending.seeds_of(3, 6) == 4


def test_the_shares_of_later_rows_add_up() -> None:
    assert sum(map(spending.later, range(1, 100_000))) < spending.LATER
    # Half of each: they can only help.
    assert sum(map(spending.proposal, range(1, 100_000))) / 2 <= 1


def test_clear_effects_are_found_at_the_first_of_many_looks(trust: ModuleType) -> None:
    values = drawn(2, 30)
    values[1] += 1000
    values[2] += 500
    results = trust.made(values[:, :3], trust.names(3))
    for effect in effects(replace(results, looks=Looks(3, 30, 3)), 0.5):
        assert effect.verdict is Verdict.HELPS


@pytest.mark.parametrize("looks", [None, Looks(3, 6, 3)])
def test_a_primary_row_whose_differences_are_equal_has_no_verdict(
    trust: ModuleType, looks: Looks | None
) -> None:
    """A network that learns nothing may have the same accuracy with every seed."""
    values = drawn(3, 6)
    values[1] = values[0] + 3
    results = trust.made(values, trust.names(4))
    first, second, third = effects(replace(results, primary=(1, 2), looks=looks), 0.05)
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
    results = replace(results, looks=Looks(3, 6, 3))
    decided, open_ = effects(results, 0.5)
    assert decided.verdict is Verdict.HELPS
    assert decided.seeds == (0, 1, 2)
    assert open_.seeds == tuple(range(6))
    # With the seeds of the first look alone, row 1 has the same verdict and interval.
    shorter = [
        replace(cell, values=dict(list(cell.values.items())[:3])) for cell in cells
    ]
    alone, _ = effects(replace(results, cells=tuple(shorter)), 0.5)
    assert alone.estimate == decided.estimate


def test_a_look_that_is_not_complete_gives_no_verdict(trust: ModuleType) -> None:
    results = trust.made([[70.0, 70.1, 69.9], [80.0, 80.2, 79.9]], trust.names(2))
    results = replace(results, looks=Looks(3, 6, 3))
    (whole,) = effects(results, 0.5)
    assert whole.verdict is Verdict.HELPS
    cells = list(results.cells)
    planned = {**cells[1].statuses, 2: Status.PLANNED}
    values = {seed: cells[1].values[seed] for seed in range(2)}
    cells[1] = replace(cells[1], statuses=planned, values=values)
    (partial,) = effects(replace(results, cells=tuple(cells)), 0.5)
    assert partial.verdict is Verdict.INCONCLUSIVE
