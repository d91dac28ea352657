"""The printed tables: they are what the search spaces train, and their costs come out
or say why not.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from ablate import factors, space
from ablate.audit.verify import Book, architecture_of, verify
from ablate.cost import count
from ablate.plan.designs import combinations
from ablate.published import PAPERS, matching_row, tables
from ablate.records import Cost

SPACES = Path(__file__).parents[2] / "search_spaces"
# Their networks are small enough to count in seconds; `make verify-costs` counts all.
QUICK = ["augvit/table5", "mabvit/m16", "iffn/table2"]


def test_each_paper_has_tables_and_about_a_hundred_printed_costs() -> None:
    assert {name.partition("/")[0] for name in tables()} == set(PAPERS)
    printed = sum(
        bool(row.params) + bool(row.flops)
        for table in tables().values()
        for row in table.rows
    )
    assert printed > 190


@pytest.mark.parametrize("name", tables())
def test_rows_name_known_factors_at_allowed_levels(name: str) -> None:
    table = tables()[name]
    assert table.about
    assert table.rows
    assert len({row.label for row in table.rows}) == len(table.rows)
    for row in table.rows:
        for factor, level in row.levels.items():
            if factor not in (
                "backbone",
                "data.image_size",
                "data.image_width",
            ) and not factor.startswith("recipe."):
                assert factors.find(factor)[1].allowed.accepts(level), (
                    row.label,
                    factor,
                    level,
                )


@pytest.mark.proof
@pytest.mark.parametrize("name", tables())
def test_every_table_has_a_space_whose_cells_are_its_rows(name: str) -> None:
    declared = space.read(SPACES / f"{name}.yaml")
    assert declared.claim.published == name
    table = tables()[name]
    fixed = {
        "backbone": declared.network.backbone,
        "data.image_size": declared.data.image_size,
        "data.image_width": declared.data.image_width,
        **declared.factors.fixed,
    }
    recipe = {
        f"recipe.{key}": getattr(declared.recipe, key)
        for key in ("epochs", "repeats", "random_erasing", "mixup")
    }
    found = [
        matching_row(table, levels, {**recipe, **fixed}, declared.network.head)
        for levels in combinations(declared)
    ]
    missing = [row.label for row in table.rows if row not in found]
    assert not missing


@pytest.mark.proof
@pytest.mark.parametrize("name", QUICK)
def test_printed_costs_come_out_or_have_a_cause_that_holds(name: str) -> None:
    for checked in verify(tables()[name]):
        assert checked.explained, checked


def test_shortcuts_add_what_the_papers_formulas_say() -> None:
    """12 * sites * T * b * d parameters, and 197 * 12 * sites * T * (2 d log2(d/b) + 2
    b d) FLOPs.
    """
    none, *some = (
        count(architecture_of(row)) for row in tables()["augvit/table3"].rows
    )
    for t, found in enumerate(some, start=1):
        assert found.params - none.params == 12 * 2 * t * 4 * 384
        flops = 197 * 12 * 2 * t * (2 * 384 * math.log2(384 / 4) + 2 * 4 * 384)
        assert found.flops_paper - none.flops_paper == pytest.approx(flops, abs=1)


def test_a_wrong_print_is_different() -> None:
    """The check can fail: a count that does not round to the print in its last digit."""
    table = tables()["augvit/table4"]

    def kinds(flops: float) -> list[str]:
        cost = Cost(
            params=1,
            flops=round(flops * 1e9),
            flops_paper=round(flops * 1e9),
            activations=1,
            elementwise=1,
        )
        first = replace(table, rows=table.rows[:1])
        return [
            checked.kind.value
            for checked in verify(first, Book(lambda architecture: cost))
            if checked.cost == "FLOPs"
        ]

    assert kinds(4.6) == ["equal"]
    assert kinds(4.649) == ["equal"]
    assert kinds(4.65) == ["different"]
    assert kinds(4.549) == ["different"]


def test_rows_match_by_what_the_network_reads() -> None:
    table = tables()["augvit/table5"]
    assert (
        matching_row(table, {"shortcuts.count": 0, "shortcuts.b": None}, {}).label
        == "Baseline"
    )
    levels = {
        "shortcuts.count": 2,
        "shortcuts.projection": "circulant",
        "shortcuts.b": 4,
    }
    assert matching_row(table, levels, {}).label == "block-circulant b = 4"
    assert matching_row(table, {**levels, "shortcuts.b": 16}, {}) is None


@pytest.mark.proof
def test_all_published_architectures_resolve() -> None:
    for table in tables().values():
        for row in table.rows:
            assert architecture_of(row).classes == row.classes
