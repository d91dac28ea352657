"""The seed's share of the variance of a training."""

from __future__ import annotations

import numpy as np
import pytest

from ablate.report.pairing import seed_share
from tests.benchmarks import load

made_up = load("made_up")


def share_of(values: np.ndarray) -> float | None:
    return seed_share(made_up.made(values, made_up.names(len(values))))


def drawn(share: float, rows: int = 40, seeds: int = 200) -> np.ndarray:
    generator = np.random.default_rng(3)
    common = generator.standard_normal((1, seeds)) * np.sqrt(share)
    noise = generator.standard_normal((rows, seeds)) * np.sqrt(1 - share)
    return 70 + 3 * generator.standard_normal((rows, 1)) + common + noise


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_known_share_is_found(share: float) -> None:
    found = share_of(drawn(share))
    assert found == pytest.approx(share, abs=0.05)


def test_it_is_the_mean_correlation_of_rows_with_equal_noise() -> None:
    values = drawn(0.4, rows=2, seeds=500)
    three = np.vstack([values, values[0] + 1])
    correlations = np.corrcoef(three)
    mean = correlations[np.triu_indices(3, 1)].mean()
    assert share_of(three) == pytest.approx(mean, abs=0.02)


def test_two_rows_or_two_seeds_tell_nothing() -> None:
    assert share_of(drawn(0.5, rows=2)) is None
    assert share_of(drawn(0.5, seeds=2)) is None


def test_rows_without_noise_have_no_share() -> None:
    assert share_of(np.full((4, 4), 70.0)) is None
