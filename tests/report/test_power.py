"""Power: the difference that is promised is found as often as promised."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from ablate.report.power import detectable, detectable_alone, sd_of_training
from tests.benchmarks import load


@pytest.fixture(scope="module")
def trust() -> ModuleType:
    return load("trust")


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "seeds"), [(1, 4), (4, 3), (7, 5)])
def test_the_difference_is_found_with_that_probability(
    trust: ModuleType, rows: int, seeds: int
) -> None:
    size = detectable(rows, seeds)
    found, _, _ = trust.power(1500, rows + 1, seeds, size)
    # Three standard errors.
    assert abs(found - 0.8) < 3 * (0.8 * 0.2 / 1500) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_a_primary_difference_is_found_with_that_probability(
    trust: ModuleType, seeds: int
) -> None:
    size = detectable_alone(seeds)
    _, found, _ = trust.power(1500, 5, seeds, size)
    assert abs(found - 0.8) < 3 * (0.8 * 0.2 / 1500) ** 0.5


def test_more_seeds_find_smaller_differences() -> None:
    assert detectable(3, 10) < detectable(3, 5) < detectable(3, 3) < detectable(3, 2)


def test_the_noise_so_far_is_that_of_a_single_training(trust: ModuleType) -> None:
    values = trust.drawn(np.random.default_rng(0), [0.0, 3.0, -2.0, 0.0], 400)
    sd = sd_of_training(trust.made(values, trust.names(4)))
    assert sd == pytest.approx(trust.NOISE, rel=0.05)
    assert sd_of_training(trust.made(values[:, :1], trust.names(4))) is None
