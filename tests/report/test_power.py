"""Power: the difference that is promised is found as often as promised."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from ablate.records import Before
from ablate.report.effects import effects
from ablate.report.family import sd_of_training
from ablate.report.verdicts import Verdict
from ablate.statistics.power import detectable, power_of
from tests.benchmarks import load


@pytest.fixture(scope="module")
def trust() -> ModuleType:
    return load("trust")


@pytest.mark.proof
@pytest.mark.parametrize(("rows", "seeds"), [(1, 4), (4, 3), (7, 5)])
def test_the_difference_is_found_with_that_probability(
    trust: ModuleType, rows: int, seeds: int
) -> None:
    size = detectable(rows, [seeds])
    found, _, _ = trust.power(1500, rows + 1, seeds, size)
    # Three standard errors.
    assert abs(found - 0.8) < 3 * (0.8 * 0.2 / 1500) ** 0.5


@pytest.mark.proof
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_a_primary_difference_is_found_with_that_probability(
    trust: ModuleType, seeds: int
) -> None:
    size = detectable(1, [seeds])
    _, found, _ = trust.power(1500, 5, seeds, size)
    assert abs(found - 0.8) < 3 * (0.8 * 0.2 / 1500) ** 0.5


def test_more_seeds_find_smaller_differences() -> None:
    sizes = [detectable(3, [seeds]) for seeds in (10, 5, 3, 2)]
    assert sizes == sorted(sizes)


@pytest.mark.proof
def test_seeds_that_are_added_find_a_difference_with_that_probability(
    trust: ModuleType,
) -> None:
    """Three seeds of four rows, and then eight."""
    power = power_of(2.5, 4, [3, 8])
    assert power_of(2.5, 4, [3]) < power < power_of(2.5, 4, [8])
    generator = np.random.default_rng(5)
    means = [0.0, 2.5 * trust.NOISE, 0.0, 0.0, 0.0]
    found = 0
    for _ in range(600):
        values = trust.drawn(generator, means, 8)
        first = trust.made(values[:, :3], trust.names(5))
        whole = trust.made(values, trust.names(5))
        whole = replace(whole, before=Before(generation=2, studies=(first,)))
        found += effects(whole, trust.MARGIN)[0].verdict is Verdict.HELPS
    assert abs(found / 600 - power) < 3 * (0.8 * 0.2 / 600) ** 0.5


def test_the_noise_so_far_is_that_of_a_single_training(trust: ModuleType) -> None:
    values = trust.drawn(np.random.default_rng(0), [0.0, 3.0, -2.0, 0.0], 400)
    sd = sd_of_training(trust.made(values, trust.names(4)))
    assert sd == pytest.approx(trust.NOISE, rel=0.05)
    assert sd_of_training(trust.made(values[:, :1], trust.names(4))) is None
