"""The short version of `make bench-search`."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.benchmarks import load


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load("search")


@pytest.mark.proof
@pytest.mark.parametrize("name", ["tpe", "cmaes", "quasi-random"])
def test_a_strategy_beats_random(
    bench: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bench.CELLS, name, min(60, bench.CELLS[name]))
    mine, others = bench.against_random(name, 5)
    _, low, _ = bench.interval([a - b for a, b in zip(mine, others, strict=True)])
    assert low > 0
