"""Power: the difference that is promised is found as often as promised."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from ablate.records import FIRST_LEVEL, Generation
from ablate.report.effects import effects
from ablate.report.family import sd_of_training
from ablate.report.verdicts import Verdict
from ablate.statistics.power import detectable, detectable_alone
from tests.benchmarks import load

# The level of a study whose comparisons are new.
FIRST = FIRST_LEVEL


@pytest.fixture(scope="module")
def trust() -> ModuleType:
    return load("trust")


@pytest.mark.proof
@pytest.mark.parametrize(("rows", "seeds"), [(1, 4), (4, 3), (7, 5)])
def test_the_difference_is_found_with_that_probability(
    trust: ModuleType, rows: int, seeds: int
) -> None:
    size = detectable(rows, seeds, FIRST)
    found, _, _ = trust.power(1500, rows + 1, seeds, size)
    # Three standard errors.
    assert abs(found - 0.8) < 3 * (0.8 * 0.2 / 1500) ** 0.5


@pytest.mark.proof
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_a_primary_difference_is_found_with_that_probability(
    trust: ModuleType, seeds: int
) -> None:
    size = detectable_alone(seeds, FIRST)
    _, found, _ = trust.power(1500, 5, seeds, size)
    assert abs(found - 0.8) < 3 * (0.8 * 0.2 / 1500) ** 0.5


def test_more_seeds_find_smaller_differences() -> None:
    sizes = [detectable(3, seeds, FIRST) for seeds in (10, 5, 3, 2)]
    assert sizes == sorted(sizes)


@pytest.mark.proof
@pytest.mark.parametrize("level", [0.005, 0.0025])
def test_a_later_generation_finds_its_difference_with_that_probability(
    trust: ModuleType, level: float
) -> None:
    size = detectable(4, 8, level)
    assert size > 1.2 * detectable(4, 8, FIRST)
    generator = np.random.default_rng(5)
    means = [0.0, size * trust.NOISE, 0.0, 0.0, 0.0]
    found = 0
    for _ in range(600):
        results = trust.made(trust.drawn(generator, means, 8), trust.names(5))
        declared = replace(results, generation=Generation(number=2, level=level))
        (effect, *_) = effects(declared, trust.MARGIN)
        found += effect.verdict is Verdict.HELPS
    assert abs(found / 600 - 0.8) < 3 * (0.8 * 0.2 / 600) ** 0.5


def test_the_noise_so_far_is_that_of_a_single_training(trust: ModuleType) -> None:
    values = trust.drawn(np.random.default_rng(0), [0.0, 3.0, -2.0, 0.0], 400)
    sd = sd_of_training(trust.made(values, trust.names(4)))
    assert sd == pytest.approx(trust.NOISE, rel=0.05)
    assert sd_of_training(trust.made(values[:, :1], trust.names(4))) is None
