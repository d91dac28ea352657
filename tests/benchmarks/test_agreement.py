"""Verdicts with few seeds on the accuracies of real trainings (`make agreement`)."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from ablate.report.verdicts import Verdict
from tests.benchmarks import load

# Draws of each kind; `make agreement` takes a thousand.
COUNT = 150


@pytest.fixture(scope="module")
def agreement() -> ModuleType:
    return load("agreement")


def most(share: float) -> float:
    """The largest share that chance explains: three standard errors."""
    return share + 3 * (share * (1 - share) / COUNT) ** 0.5


def test_there_are_twelve_rows_with_twenty_seeds(agreement: ModuleType) -> None:
    _, values = agreement.stored()
    assert values.shape == (12, 20)
    assert np.isfinite(values).all()


@pytest.mark.proof
@pytest.mark.parametrize("seeds", [3, 5])
def test_few_studies_without_effects_have_a_false_verdict(
    agreement: ModuleType, seeds: int
) -> None:
    changes, values = agreement.stored()
    drawn = agreement.draw(changes, values, seeds, COUNT, agreement.without_effects)
    assert drawn.any_said <= most(0.05)


@pytest.mark.parametrize("seeds", [3, 5])
def test_no_verdict_is_the_opposite_of_that_of_all_seeds(
    agreement: ModuleType, seeds: int
) -> None:
    changes, values = agreement.stored()
    drawn = agreement.draw(changes, values, seeds, COUNT, agreement.with_effects)
    assert drawn.any_against <= most(0.01)
    assert drawn.any_said > 0.2, "the depthwise kernels are found"


def test_removing_effects_leaves_the_noise_of_a_mean(agreement: ModuleType) -> None:
    """Means of drawn seeds vary as means of new seeds do, around that of row 0."""
    _, values = agreement.stored()
    generator = np.random.default_rng(0)
    means = []
    for _ in range(4000):
        chosen = generator.choice(20, 5, replace=False)
        means.append(agreement.without_effects(values, chosen).mean(axis=1))
    assert np.mean(means, axis=0) == pytest.approx(values[0].mean(), abs=0.3)
    expected = values.std(axis=1, ddof=1) / 5**0.5
    assert np.std(means, axis=0) == pytest.approx(expected, rel=0.06)


def test_a_planted_reversal_is_noticed(agreement: ModuleType) -> None:
    """The comparison can fail: with the rows exchanged, verdicts are opposite."""
    changes, values = agreement.stored()
    swapped = values[[5, 1, 2, 3, 4, 0, *range(6, 12)]]
    truth = agreement.judged(changes, values)
    against = agreement.judged(changes, swapped)
    assert truth[4].verdict is Verdict.HELPS
    assert against[4].verdict is Verdict.HURTS
