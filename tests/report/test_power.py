"""Power: the difference that is promised is found as often as promised."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from types import ModuleType

import numpy as np
import pytest

from ablate.records import History, Phase, share_of_phase
from ablate.report.effects import effects
from ablate.report.power import detectable, detectable_alone, sd_of_training
from ablate.report.verdicts import LEVEL, Verdict
from tests.benchmarks import load

# The level of a study that is declared once.
FIRST = LEVEL * share_of_phase(0)


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


@pytest.mark.slow
@pytest.mark.parametrize("phase", [1, 2])
def test_a_later_declaration_finds_its_difference_with_that_probability(
    trust: ModuleType, phase: int
) -> None:
    history = History(phases=(Phase(),) * (phase + 1), begins=(datetime.min,) * 3)
    size = detectable(4, 8, LEVEL * history.share)
    assert size > 1.2 * detectable(4, 8, FIRST)
    generator = np.random.default_rng(5)
    means = [0.0, size * trust.NOISE, 0.0, 0.0, 0.0]
    found = 0
    for _ in range(600):
        results = trust.made(trust.drawn(generator, means, 8), trust.names(5))
        # All seeds ended in the present phase.
        cells = [
            replace(cell, phase_of=dict.fromkeys(cell.values, phase))
            for cell in results.cells
        ]
        declared = replace(results, cells=tuple(cells), history=history)
        (effect, *_) = effects(declared, trust.MARGIN, predict=False)
        found += effect.verdict is Verdict.HELPS
    assert abs(found / 600 - 0.8) < 3 * (0.8 * 0.2 / 600) ** 0.5


def test_the_noise_so_far_is_that_of_a_single_training(trust: ModuleType) -> None:
    values = trust.drawn(np.random.default_rng(0), [0.0, 3.0, -2.0, 0.0], 400)
    sd = sd_of_training(trust.made(values, trust.names(4)))
    assert sd == pytest.approx(trust.NOISE, rel=0.05)
    assert sd_of_training(trust.made(values[:, :1], trust.names(4))) is None
