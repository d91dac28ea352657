"""The papers' printed parameters and FLOPs against what the presets cost."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.records import Cost, Level, Plan

# Counting thirty DeiTs takes seconds.
pytestmark = pytest.mark.slow

SPACES = Path(__file__).parents[2] / "search_spaces"


@cache
def plan(name: str) -> Plan:
    return pipeline.cost_plan(space.read(SPACES / f"{name}.yaml"), "/nonexistent/store.db")


def cost(name: str, **levels: Level) -> Cost:
    wanted = {key.replace("__", "."): level for key, level in levels.items()}
    found = next(cell for cell in plan(name).cells if wanted.items() <= dict(cell.levels).items())
    assert found.cost is not None
    return found.cost


def printed(value: float, digits: int) -> int:
    """A value in units of its last printed digit."""
    return round(value * 10**digits)


AUG = [
    # preset, levels, printed parameters (M), printed FLOPs (G); additions to the baseline
    ("augvit/table3", {"shortcuts__count": 1}, "0.04", "0.04"),
    ("augvit/table3", {"shortcuts__count": 2}, "0.07", "0.08"),
    ("augvit/table3", {"shortcuts__count": 3}, "0.11", "0.12"),  # printed 0.12: three times the rounded 0.04
    ("augvit/table4", {"shortcuts__count": 2, "shortcuts__placement": "msa"}, "0.037", "0.04"),  # printed 0.035
    ("augvit/table4", {"shortcuts__count": 2, "shortcuts__placement": "mlp"}, "0.037", "0.04"),  # printed 0.035
    ("augvit/table4", {"shortcuts__count": 2, "shortcuts__placement": "both"}, "0.07", "0.08"),
    ("augvit/table5", {"shortcuts__count": 2, "shortcuts__projection": "circulant", "shortcuts__b": 1}, "0.02", "0.07"),
    (
        "augvit/table5",
        {"shortcuts__count": 2, "shortcuts__projection": "circulant", "shortcuts__b": 2},
        "0.04",
        "0.07",
    ),  # printed 0.03
    ("augvit/table5", {"shortcuts__count": 2, "shortcuts__projection": "circulant", "shortcuts__b": 4}, "0.07", "0.08"),
    ("augvit/table5", {"shortcuts__count": 2, "shortcuts__projection": "circulant", "shortcuts__b": 8}, "0.15", "0.10"),
    ("augvit/table5", {"shortcuts__count": 2, "shortcuts__projection": "dense"}, "7.1", "1.4"),
]


@pytest.mark.parametrize(("preset", "levels", "params", "flops"), AUG)
def test_augmented_shortcuts_add(preset: str, levels: dict[str, Level], params: str, flops: str) -> None:
    baseline, found = cost(preset, shortcuts__count=0), cost(preset, **levels)
    for text, value in (
        (params, (found.params - baseline.params) / 1e6),
        (flops, (found.flops_paper - baseline.flops_paper) / 1e9),
    ):
        digits = len(text.partition(".")[2])
        assert printed(value, digits) == printed(float(text), digits), value


def test_additions_follow_the_papers_formulas() -> None:
    """12 * sites * T * b * d parameters, and 197 * 12 * sites * T * (2 d log2(d/b) + 2 b d) FLOPs."""
    baseline = cost("augvit/table3", shortcuts__count=0)
    for t in (1, 2, 3):
        found = cost("augvit/table3", shortcuts__count=t)
        assert found.params - baseline.params == 12 * 2 * t * 4 * 384
        assert found.flops_paper - baseline.flops_paper == pytest.approx(
            197 * 12 * 2 * t * (2 * 384 * 6.584962500721156 + 2 * 4 * 384), abs=1
        )


@pytest.mark.parametrize("preset", ["augvit/table3", "augvit/table4", "augvit/table5"])
def test_augmented_shortcuts_baseline(preset: str) -> None:
    found = cost(preset, shortcuts__count=0)
    assert printed(found.params / 1e6, 1) == 221
    assert printed(found.flops_paper / 1e9, 1) == 46


IFFN = [
    ("iffn/table2", {"ffn__agelu": 0, "ffn__kernel": "none"}, 5.72, 1.26),
    ("iffn/table2", {"ffn__agelu": 2, "ffn__kernel": "none"}, 4.89, 1.08),
    ("iffn/table2", {"ffn__agelu": 0, "ffn__kernel": 3}, 5.83, 1.28),
    ("iffn/table2", {"ffn__agelu": 2, "ffn__kernel": 3}, 5.00, 1.10),
    ("iffn/table4", {"ffn__agelu": 2}, 5.00, 1.10),
    ("iffn/table4", {"ffn__agelu": 4}, 4.55, 1.01),
    ("iffn/table6", {"ffn__kernel": 1}, 4.92, 1.08),
    ("iffn/table6", {"ffn__kernel": 3}, 5.00, 1.10),
    ("iffn/table6", {"ffn__kernel": 5}, 5.15, 1.13),
    ("iffn/table6", {"ffn__kernel": 7}, 5.37, 1.17),
]


@pytest.mark.parametrize(("preset", "levels", "params", "flops"), IFFN)
def test_iffn_tables(preset: str, levels: dict[str, Level], params: float, flops: float) -> None:
    found = cost(preset, **levels)
    assert printed(found.params / 1e6, 2) == printed(params, 2), found.params
    assert abs(printed(found.flops_paper / 1e9, 2) - printed(flops, 2)) <= 1, found.flops_paper
