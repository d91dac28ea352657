"""The short version of `make trust`: every promise of the statistics, on made-up
studies with a known truth.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from ablate.records import Before, StudyResults
from ablate.report.best_rows import best_rows
from ablate.report.effects import effects
from ablate.statistics.verdicts import holm
from tests.benchmarks import load

# Studies for each promise; `make trust` takes more.
COUNT = 800


@pytest.fixture(scope="module")
def trust() -> ModuleType:
    return load("trust")


KINDS = (
    "studies",
    "row 0",
    "tuning",
    "across",
    "elsewhere",
    "targets",
    "chains",
    "images",
    "users",
    "workflows",
)


@pytest.mark.proof
@pytest.mark.parametrize("kind", KINDS)
def test_every_promise_is_kept(trust: ModuleType, kind: str) -> None:
    kinds = trust.short_proofs(COUNT)
    assert tuple(kinds) == KINDS
    broken = [proof for proof in kinds[kind] if not proof.holds]
    assert not broken


@pytest.mark.proof
def test_planted_effects_are_recovered_without_bias(trust: ModuleType) -> None:
    errors = dict(trust.biases(1000))
    assert len(errors) == 6
    # Three standard errors of a mean of 200 studies' estimates, the least exact of
    # which has a standard error of 0.6.
    assert all(abs(error) < 3 * 0.6 / 200**0.5 for error in errors.values()), errors


def test_a_broken_promise_is_noticed(trust: ModuleType) -> None:
    """The proofs can fail: without adjusting for nine comparisons, far more than 5 % of
    studies would see an effect.
    """
    assert not trust.Proof("", "", 0.09, 0, 0.05, 2000).holds
    generator = np.random.default_rng(0)
    unadjusted = 0
    for _ in range(300):
        results = trust.made(trust.drawn(generator, [0.0] * 9, 5), trust.names(9))
        pairs = [trust.paired(cell, results.cells[0]) for cell in results.cells[1:]]
        unadjusted += any(pair.estimate.p < 0.05 for pair in pairs)
    assert not trust.Proof("", "", unadjusted / 300, 0, 0.05, 300).holds


@pytest.mark.proof
def test_users_would_be_fooled_if_every_study_were_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simulated users can fool: without groups, most get what they want."""
    users = load("users")
    equal = users.NOISES["equal noise"]
    # A study of one row with five seeds has 3.3 %.
    cases = {
        (users.adds_one_seed, 1): 0.07,
        (users.selects_seeds, 4): 0.2,
        (users.swaps_the_baseline, 4): 0.05,
        (users.repeats_under_new_names, 1): 0.1,
        (users.corrects_a_variant, 7): 0.12,
        (users.tunes_the_baseline(20, 1), 27): 0.1,
        (users.compares_known_rows_with_a_new_row_0, 8): 0.1,
        (users.drops_a_row_and_makes_it_row_0, 8): 0.04,
    }
    for user, rows in cases:
        assert users.fooled(200, user, rows, equal) < 0.09
    results = users.Desk.results

    def as_the_first(desk: Any, study: Any) -> StudyResults:
        return replace(results(desk, study, alone=True), before=Before())

    monkeypatch.setattr(users.Desk, "results", as_the_first)
    for (user, rows), share in cases.items():
        assert users.fooled(200, user, rows, equal) > share, user


@pytest.mark.proof
def test_estimates_are_those_of_the_mixed_model(trust: ModuleType) -> None:
    assert trust.against_mixed_model(3) < 1e-6


@pytest.mark.proof
def test_holm_is_that_of_statsmodels() -> None:
    generator = np.random.default_rng(0)
    for size in (1, 2, 7, 30):
        raw = generator.uniform(0, 0.2, size).round(2).tolist()
        assert np.allclose(holm(raw, size), multipletests(raw, method="holm")[1])


@pytest.mark.proof
@pytest.mark.parametrize("seeds", [3, 5])
def test_equal_rows_are_all_bold(trust: ModuleType, seeds: int) -> None:
    """A row that equals the others is hardly ever told from the best one."""
    for name, noise in trust.NOISES.items():
        generator = np.random.default_rng(3)
        told = 0
        for _ in range(400):
            values = trust.drawn(generator, [0.0] * 8, seeds, noise)
            results = trust.made(values, trust.names(8))
            found = effects(results, 1.0)
            told += len(best_rows(results, found)) < 8
        assert trust.Proof("", "", told / 400, 0, 0.05, 400).holds, (name, told)
