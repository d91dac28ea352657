"""Exact importance on complete grids, against an independent decomposition."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ablate.records import Level, StudyResults
from ablate.report.effects_table import shares_table
from ablate.report.factorial import Factorial
from ablate.report.importance import exact_shares
from tests.benchmarks import load

BASE: dict[str, Level] = {"a": 0, "b": 0, "c": 0}
LEVELS: list[dict[str, Level]] = [
    {"a": a, "b": b, "c": c}
    for a, b, c in itertools.product(range(2), range(3), range(2))
]


@pytest.fixture(scope="module")
def trust() -> ModuleType:
    return load("trust")


def grid(
    trust: ModuleType,
    truth: Callable[[Any], float],
    seeds: int,
    noise: float,
    draw: int,
) -> StudyResults:
    generator = np.random.default_rng(draw)
    means = np.array([truth(cell) for cell in LEVELS])
    values = means[:, None] + generator.normal(0, 1, (1, seeds))
    values = values + generator.normal(0, noise, (len(LEVELS), seeds))
    results: StudyResults = trust.made(values, LEVELS)
    return results


def shares_of(results: StudyResults) -> dict[str, tuple[float, float]]:
    shares = exact_shares(Factorial(results, BASE))
    assert shares is not None
    return {share.factor: (share.main, share.total) for share in shares}


def by_hand(truth: Callable[[Any], float]) -> dict[str, tuple[float, float]]:
    """The variance of conditional means, and the mean of conditional variances."""
    values = {tuple(cell.values()): truth(cell) for cell in LEVELS}
    every = list(values.values())
    found = {}
    for place, name in enumerate(BASE):
        groups: dict[object, list[float]] = {}
        rest: dict[object, list[float]] = {}
        for key, value in values.items():
            groups.setdefault(key[place], []).append(value)
            rest.setdefault((*key[:place], *key[place + 1 :]), []).append(value)
        main = np.var([np.mean(group) for group in groups.values()])
        total = np.mean([np.var(group) for group in rest.values()])
        found[name] = (float(main / np.var(every)), float(total / np.var(every)))
    return found


def together(cell: Any) -> float:
    return float(3 * cell["a"] + cell["b"] + 2 * cell["a"] * cell["b"])


def test_without_noise_the_shares_are_those_of_the_definition(
    trust: ModuleType,
) -> None:
    found = shares_of(grid(trust, together, 3, 1e-6, 0))
    for name, (main, total) in by_hand(together).items():
        assert found[name] == (
            pytest.approx(main, abs=1e-4),
            pytest.approx(total, abs=1e-4),
        )
    assert (
        sum(main for main, _ in found.values())
        < 1
        < sum(total for _, total in found.values())
    )


def test_noise_is_subtracted(trust: ModuleType) -> None:
    """A factor that does nothing has no share on average, with few noisy seeds too."""
    draws = [shares_of(grid(trust, together, 2, 1.0, draw)) for draw in range(200)]
    for name, (main, total) in by_hand(together).items():
        assert np.mean([one[name][0] for one in draws]) == pytest.approx(main, abs=0.03)
        assert np.mean([one[name][1] for one in draws]) == pytest.approx(
            total, abs=0.03
        )


def test_folded_cells_have_the_noise_of_the_cell_that_they_repeat(
    trust: ModuleType,
) -> None:
    """c is not read where a is 0."""
    results = grid(trust, lambda cell: 4.0 * cell["a"], 3, 0.5, 1)
    first = {
        (cell.levels["a"], cell.levels["b"]): cell for cell in reversed(results.cells)
    }
    cells = tuple(
        replace(
            cell,
            same_as=first[0, cell.levels["b"]].index,
            statuses={},
            values={},
            unread=frozenset({"c"}),
        )
        if cell.levels["a"] == 0 and cell.levels["c"] == 1
        else cell
        for cell in results.cells
    )
    found = shares_of(replace(results, cells=cells))
    assert found["a"][1] == pytest.approx(1.0, abs=0.1)
    assert found["b"][1] < 0.1
    assert found["c"][1] < 0.1


def test_the_kernel_of_the_audit_has_all_of_it(trust: ModuleType) -> None:
    """The samplers' importances gave the shortcuts a half or a fifth."""
    results = grid(trust, lambda cell: 28.4 * cell["a"], 3, 0.5, 2)
    table = shares_table(results, BASE)
    assert table is not None
    assert table.data[0]["factor"] == "a"
    assert table.data[0]["total"] > 0.99
    assert all(row["total"] < 0.01 for row in table.data[1:])


def test_there_is_none_without_a_grid_or_noise(trust: ModuleType) -> None:
    results = grid(trust, together, 3, 0.5, 3)
    assert shares_table(replace(results, cells=results.cells[:-1]), BASE) is None
    assert shares_table(grid(trust, together, 1, 0.5, 3), BASE) is None


def test_a_share_is_never_more_than_the_whole(trust: ModuleType) -> None:
    """Less the noise, the part of a factor can be larger than the whole by chance."""
    largest = 0.0
    for draw in range(50):
        results = grid(trust, lambda cell: 2.0 * cell["a"], 2, 1.0, draw)
        for share in exact_shares(Factorial(results, BASE)) or []:
            assert 0 <= share.main <= share.total <= 1
            largest = max(largest, share.main)
    assert largest == 1, "some part would have been larger"
