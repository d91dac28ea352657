"""Row 0 with more seeds than the other rows: what rows are compared with, and how."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ablate.records import Status
from ablate.report.effects import effects
from ablate.report.effects_table import effects_table
from ablate.report.factorial import Factorial
from ablate.report.paper_table import PaperStyle, paper_table
from ablate.report.results_table import results_table
from ablate.report.table import render
from ablate.report.verdicts import Verdict
from ablate.statistics.noise import ALL_SEEDS, Extra, null_of, standardise
from ablate.statistics.power import complete_look
from tests.benchmarks import load

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def row_0() -> ModuleType:
    return load("row_0")


def drawn(rows: int, seeds: int, number: int = 0) -> Array:
    generator = np.random.default_rng(number)
    shared = generator.normal(0, 0.3, (1, seeds))
    return 70 + shared + generator.normal(0, 0.5, (rows + 1, seeds))


def test_a_row_is_compared_with_two_thirds_of_the_mean_over_all_seeds(
    row_0: ModuleType,
) -> None:
    values = drawn(3, 10)
    found = effects(row_0.study(values, 4), 0.5)
    baseline = 2 / 3 * values[0].mean() + values[0, :4].mean() / 3
    for effect in found:
        assert effect.seeds == (0, 1, 2, 3)
        assert effect.extra == 6
        assert effect.mean == pytest.approx(values[effect.row, :4].mean() - baseline)
        assert effect.estimate is not None
        assert effect.estimate.value == effect.mean


def test_extra_seeds_that_were_not_declared_are_not_used(row_0: ModuleType) -> None:
    """Their number could follow from results."""
    values = drawn(3, 10)
    undeclared = replace(row_0.study(values, 4), baseline_seeds=None)
    equal = row_0.made(values[:, :4], row_0.names(4))
    found = [(e.mean, e.estimate, e.judged) for e in effects(undeclared, 0.5)]
    assert found == [(e.mean, e.estimate, e.judged) for e in effects(equal, 0.5)]


def test_the_standard_error_is_that_of_the_sum(row_0: ModuleType) -> None:
    """The error of a single row, whose variance is its own, is written out here."""
    values = drawn(1, 12)
    shared, more = values[0, :5], values[0, 5:]
    scores = standardise(
        values[1:, :5] - shared, np.ones((1, 5), bool), Extra(shared=shared, more=more)
    )
    weight = ALL_SEEDS * 7 / 12
    own = np.var(values[1, :5] - (1 - weight) * shared, ddof=1) / 5
    rest = weight**2 * values[0].var(ddof=1) / 7
    assert scores.error[0] == pytest.approx(np.sqrt(own + rest))
    freedom = (own + rest) ** 2 / (own**2 / 4 + rest**2 / 11)
    assert scores.freedom[0] == pytest.approx(freedom)


def test_one_row_keeps_its_level_and_beats_the_paired_t(row_0: ModuleType) -> None:
    """The p value of a single comparison is simulated; its scores are drawn here anew."""
    null = null_of([complete_look(1, 4, 10, baseline=10)])
    generator = np.random.default_rng(8)
    values = generator.normal(0, 1, (4000, 2, 10))
    shared, more = values[:, 0, :4], values[:, 0, 4:]
    scores = standardise(
        values[:, 1:, :4] - shared[:, None],
        np.ones((1, 4), bool),
        Extra(shared=shared, more=more),
    ).score[:, 0]
    limit = null.quantile(0.04)
    assert (np.abs(scores) >= limit).mean() < 0.05
    assert limit < stats.t.isf(0.02, 3) * 1.02


def test_a_primary_row_uses_the_extra_seeds(row_0: ModuleType) -> None:
    values = drawn(3, 10)
    values[2] += 2
    results = replace(row_0.study(values, 4), primary=(2,))
    first = next(effect for effect in effects(results, 0.5) if effect.row == 2)
    alone = replace(results, cells=(results.cells[0], results.cells[2]), primary=())
    (expected,) = effects(alone, 0.5)
    assert first.primary and first.extra == 6
    assert first.estimate == expected.estimate
    assert first.verdict is expected.verdict is Verdict.HELPS


def test_a_failed_extra_seed_holds_all_verdicts_back(row_0: ModuleType) -> None:
    values = drawn(3, 10)
    values[1:] += 5
    results = row_0.study(values, 4)
    assert all(e.verdict is Verdict.HELPS for e in effects(results, 0.5))
    reference = results.cells[0]
    statuses = {**reference.statuses, 9: Status.FAILED}
    left = {seed: value for seed, value in reference.values.items() if seed != 9}
    failed = replace(reference, statuses=statuses, values=left)
    results = replace(results, cells=(failed, *results.cells[1:]))
    assert all(e.verdict is Verdict.INCONCLUSIVE for e in effects(results, 0.5))


def test_factor_effects_use_the_seeds_of_all_cells(row_0: ModuleType) -> None:
    levels = [{"a": a, "b": b} for a in (0, 1) for b in (0, 1)]
    values = drawn(3, 9)
    with_extra = row_0.study(values, 6)
    equal = row_0.made(values[:, :6], levels)
    cells = [
        replace(cell, levels=level)
        for cell, level in zip(with_extra.cells, levels, strict=True)
    ]
    with_extra = replace(with_extra, cells=tuple(cells), factors=("a", "b"))
    base = levels[0]
    found = Factorial(with_extra, base).main_effects(0.5, "max")
    expected = Factorial(equal, base)
    assert found == expected.main_effects(0.5, "max")
    assert Factorial(with_extra, base).by_seed


def test_every_table_has_the_same_difference_and_says_how(row_0: ModuleType) -> None:
    values = drawn(3, 10)
    results = row_0.study(values, 4)
    found = effects(results, 0.5)
    mean = found[0].mean
    assert mean is not None
    words = "A row is compared with two thirds of its mean over all 10 seeds"
    for table in (results_table(results), effects_table(results, found, 0.5)):
        shown = render(table, "md")
        assert words in shown
        assert f"{mean:+.2f}" in shown
    latex = paper_table(results, PaperStyle(columns=("cell", "top1", "delta", "n")))
    assert words in latex
    assert f"{mean:+.2f}" in latex
