"""Levels that change together, and combinations that are not trained."""

from __future__ import annotations

import json

import pytest

from ablate import pipeline, space
from ablate.errors import SpaceError
from ablate.plan.designs import combinations
from ablate.records import Plan, Settings, Space
from ablate.records.changes import changes
from ablate.records.plain import to_data
from ablate.store.space_data import from_data

SPACE = """
question: q?
backbone: {family: vit, patch_size: 4, depth: 1}
factors:
  size.width: [12, 16, 24]
  shortcuts.count: [0, 1]
  size.heads: [3, 4, 6]
data: {name: digits, train_images: 100, test_images: 50}
recipe: {epochs: 1, batch_size: 50, warmup_epochs: 0}
seeds: 2
"""
TOGETHER = SPACE + "together: [[size.width, size.heads]]\n"
PAIRS = [(12, 3), (16, 4), (24, 6)]


def loaded(text: str) -> Space:
    return space.load(text, "q.yaml")


def cells(text: str) -> list[Settings]:
    return combinations(loaded(text))


def planned(text: str) -> Plan:
    return pipeline.cost_plan(loaded(text), "none.db")


def pairs(text: str) -> list[tuple[object, object, object]]:
    return [
        (cell["size.width"], cell["size.heads"], cell["shortcuts.count"])
        for cell in cells(text)
    ]


def test_a_grid_of_pairs() -> None:
    assert pairs(TOGETHER) == [
        (width, heads, count) for width, heads in PAIRS for count in (0, 1)
    ]
    for cell in cells(TOGETHER):
        assert list(cell) == ["size.width", "shortcuts.count", "size.heads"]


@pytest.mark.parametrize(
    ("design", "expected"),
    [
        ("one-at-a-time", [(12, 3, 0), (16, 4, 0), (24, 6, 0), (12, 3, 1)]),
        ("leave-one-out", [(24, 6, 1), (12, 3, 1), (24, 6, 0)]),
        ("add-one-in", [(12, 3, 0), (24, 6, 0), (12, 3, 1)]),
    ],
)
def test_other_designs(
    design: str, expected: list[tuple[object, object, object]]
) -> None:
    assert pairs(f"{TOGETHER}design: {design}\n") == expected


def test_two_level_designs() -> None:
    text = TOGETHER.replace(
        "  shortcuts.count", "  ffn.kernel: [none, 3]\n  shortcuts.count"
    )
    for design in ("{name: fractional, resolution: 3}", "plackett-burman"):
        found = pairs(f"{text}design: {design}\n")
        assert {cell[:2] for cell in found} == {(12, 3), (24, 6)}
        assert found[0] == (12, 3, 0)


def test_a_level_may_stand_beside_several() -> None:
    text = TOGETHER.replace("[12, 16, 24]", "[12, 12, 24]")
    found = [cell[:2] for cell in pairs(f"{text}design: one-at-a-time\n")]
    assert found == [(12, 3), (12, 4), (24, 6), (12, 3)]


def test_a_random_design() -> None:
    text = f"{TOGETHER}design: {{name: random, cells: 5}}\n"
    found = pairs(text)
    assert len(set(found)) == 5
    assert {cell[:2] for cell in found} <= set(PAIRS)
    alone = f"{SPACE}design: {{name: random, cells: 5}}\n"
    assert {cell[:2] for cell in pairs(alone)} - set(PAIRS)


def test_an_excluded_combination_is_listed_with_its_reason() -> None:
    text = SPACE + "exclude: [{size.width: 16, shortcuts.count: 1}, {size.heads: 6}]\n"
    plan = planned(text)
    excluded = [cell for cell in plan.cells if cell.note.startswith("excluded")]
    assert len(plan.cells) == 18
    assert {cell.note for cell in excluded} == {
        "excluded: size.width: 16, shortcuts.count: 1",
        "excluded: size.heads: 6",
    }
    for cell in plan.cells:
        if not cell.trials:
            continue
        assert cell.levels["size.heads"] != 6
        assert (cell.levels["size.width"], cell.levels["shortcuts.count"]) != (16, 1)


def test_a_search_avoids_them() -> None:
    text = SPACE + (
        "exclude: [{shortcuts.count: 1}]\nstrategy: {name: random, cells: 6}\n"
    )
    plan = planned(text)
    assert any(cell.trials for cell in plan.cells)
    for cell in plan.cells:
        assert bool(cell.trials) <= (cell.levels["shortcuts.count"] == 0)


def test_they_are_kept_in_the_store_and_count_as_changes() -> None:
    text = TOGETHER + "exclude: [{size.width: 16, shortcuts.count: 1}]\n"
    declared = loaded(text)
    data = json.loads(json.dumps(to_data(declared)))
    assert from_data(data, declared.document).factors == declared.factors
    plain = json.loads(json.dumps(to_data(loaded(SPACE))))
    assert changes(plain, plain) == []
    del plain["exclude"], plain["together"]
    assert changes(plain, json.loads(json.dumps(to_data(loaded(SPACE))))) == []
    assert any("exclude" in line for line in changes(plain, data))
    assert any("together" in line for line in changes(plain, data))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("together: [[size.width]]", "a group has two factors or more"),
        ("together: [[size.width, size.depth]]", "unknown factor 'size.depth'"),
        (
            "together: [[size.width, shortcuts.count]]",
            "equally many levels, but size.width has 3, shortcuts.count has 2",
        ),
        (
            "together: [[size.width, size.heads], [size.heads, shortcuts.count]]",
            "size.heads is named twice",
        ),
        ("together: [size.width, size.heads]", "together.0"),
        ("together: [[size.width, again]]", "unknown factor 'again'"),
        (
            "together: [[size.width, size.heads]]\nbaseline: {size.width: 16}",
            "must stand at the same place in their lists",
        ),
        (
            "together: [[size.width, size.heads]]\nstrategy: {name: random, cells: 4}",
            "not by a search",
        ),
        ("exclude: [{}]", "exclude: name levels"),
        ("exclude: [{size.width: 13}]", "13 is not among the levels of size.width"),
        ("exclude: [{size.depth: 13}]", "unknown factor 'size.depth'"),
        ("exclude: {size.width: 12}", "exclude"),
        ("exclude: [{size.width: 12}]", "size.width: 12 excludes the baseline"),
        (
            "exclude: [{size.width: 24}]\ndesign: leave-one-out",
            "size.width: 24 excludes the full",
        ),
    ],
)
def test_a_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        loaded(f"{SPACE}{text}\n")
    assert message in str(caught.value)
