"""Costs, refusals and times that one command leaves for the next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ablate import space
from ablate.errors import Infeasible
from ablate.machine import cache
from ablate.pipeline import preview
from ablate.plan import make_plan
from ablate.records import Architecture, Cost
from ablate.scheduling import cost_cache
from ablate.scheduling.cost_cache import CostCache
from ablate.training import probe
from tests.conftest import TINY

# Three heads do not divide the width.
SOME_REFUSED = TINY.replace("heads: 2, ", "").replace(
    "  layout: [serial, parallel]\n", "  size.heads: [2, 3]\n"
)


@pytest.fixture(autouse=True)
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))


def architectures(text: str) -> list[Architecture]:
    """The different architectures of a space."""
    found: dict[str, Architecture] = {}

    def collect(architecture: Architecture) -> Cost:
        found[architecture.hash] = architecture
        return Cost(params=1, flops=1, flops_paper=1, activations=1, elementwise=1)

    make_plan(space.load(text, "tiny.yaml"), collect)
    return list(found.values())


def refuse(architecture: Architecture) -> Cost:
    raise Infeasible("the width is odd")


def fail(architecture: Architecture) -> Cost:
    raise AssertionError("it is known")


def test_a_refusal_is_known_to_the_next_command() -> None:
    first, *_ = architectures(TINY)
    for count in (refuse, fail):
        with pytest.raises(Infeasible, match="the width is odd"):
            CostCache({}, count)(first)


def test_what_memory_refuses_is_not_kept() -> None:
    first, *_ = architectures(TINY)

    def large(architecture: Architecture) -> Cost:
        raise MemoryError("out of memory")

    with pytest.raises(Infeasible, match="memory"):
        CostCache({}, large)(first)
    assert CostCache({})(first).flops > 0


@pytest.mark.proof
def test_many_architectures_are_counted_by_several_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost_cache, "MANY", 2)
    monkeypatch.setattr(cost_cache, "usable_cpus", lambda: 2)
    every = architectures(SOME_REFUSED)

    def costs(cached: CostCache) -> list[str]:
        found = []
        for architecture in every:
            try:
                found.append(str(cached(architecture)))
            except Infeasible as error:
                found.append(str(error))
        return found

    CostCache({}).ahead(lambda: every)
    ahead = costs(CostCache({}, fail))
    monkeypatch.setenv(cache.VARIABLE, "/proc/none")
    assert ahead == costs(CostCache({}))
    assert any("heads" in cost for cost in ahead)


def test_a_step_is_timed_once_unless_the_machine_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[str] = []

    def seconds(architecture: Architecture, batch: int, *, threads: int) -> float:
        timed.append(architecture.hash)
        return 1.0

    monkeypatch.setattr(probe, "seconds_per_image", seconds)
    declared = space.load(TINY, "tiny.yaml")
    url = str(tmp_path / "none.db")
    for load, times in ((1e6, 1), (1e6, 2), (0.0, 3), (0.0, 3)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert preview(declared, url).seconds is not None
        assert len(timed) == times
