"""The short version of `make bench-search`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_search", ROOT / "benchmarks" / "search.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_search"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tpe", "cmaes", "quasi-random"])
def test_a_strategy_beats_random(bench: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.CELLS, name, min(60, bench.CELLS[name]))
    mine, others = bench.against_random(name, 5)
    _, low, _ = bench.interval([a - b for a, b in zip(mine, others, strict=True)])
    assert low > 0
