"""Listed rows, varying backbones and resolutions, weights to start from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ablate import space
from ablate.plan import make_plan
from ablate.plan.designs import combinations
from ablate.records import Architecture, Cost, Space

ROWS = """
question: q
factors:
  backbone: [pvt_small, deit_tiny_patch16_224, cait_xxs24_224]
  data.image_size: [64, 96]
  size.depth: [2]
  shortcuts.count: [0, 1]
  talking_heads: [none, both]
fixed: {shortcuts.b: 2}
design: rows
rows:
  - {}
  - {shortcuts.count: 1}
  - {backbone: deit_tiny_patch16_224}
  - {backbone: deit_tiny_patch16_224, size.depth: 2, data.image_size: 96}
  - {backbone: pvt_small, size.depth: 2}
  - {backbone: cait_xxs24_224, talking_heads: both}
seeds: 2
data: digits
recipe: {epochs: 2, warmup_epochs: 0}
"""


def fake_cost(architecture: Architecture) -> Cost:
    from ablate.models import build

    build(architecture)
    return Cost(params=1, flops=2, flops_paper=2, activations=1, elementwise=1)


def declared(document: str = ROWS) -> Space:
    return space.load(document, "rows.yaml")


def test_rows_are_cells_and_the_first_is_the_reference() -> None:
    plan = make_plan(declared(), fake_cost)
    assert [cell.role for cell in plan.cells] == ["reference", *["variant"] * 5]
    found = [cell.architecture for cell in plan.cells]
    assert [a and (a.backbone, a.image_size, dict(a.settings)) for a in found[:4]] == [
        ("pvt_small", 64, {}),
        ("pvt_small", 64, {"shortcuts.b": 2, "shortcuts.count": 1}),
        ("deit_tiny_patch16_224", 64, {}),
        ("deit_tiny_patch16_224", 96, {"size.depth": 2}),
    ]
    assert plan.cells[3].trials[0].data.image_size == 96
    assert "size.depth cannot be changed on pvt_small" in plan.cells[4].note
    assert "talks across heads already" in plan.cells[5].note
    assert len(plan.trials) == 8


def test_what_a_row_does_not_name_is_as_in_the_backbone() -> None:
    cells = combinations(declared())
    assert "size.depth" not in cells[0]
    assert cells[0]["shortcuts.count"] == 0
    assert cells[0]["backbone"] == "pvt_small"
    assert cells[3]["size.depth"] == 2


def test_a_table_shows_a_dash_where_a_row_says_nothing() -> None:
    from ablate.cli.tables import plan_table
    from ablate.pipeline import Preview
    from ablate.report.table import markdown

    plan = make_plan(declared(), fake_cost)
    text = markdown(
        plan_table(Preview(plan=plan, known={}, to_train=plan.trials, seconds=None))
    )
    line = next(line for line in text.splitlines() if line.startswith("|   2 |"))
    assert [part.strip() for part in line.split("|")][2:7] == [
        "deit_tiny_patch16_224",
        "64",
        "-",
        "0",
        "none",
    ]


def test_backbone_and_resolution_vary_in_a_grid_too() -> None:
    document = (
        ROWS[: ROWS.index("  size.depth")].replace("pvt_small, ", "")
        + "data: digits\nrecipe: {epochs: 2, warmup_epochs: 0}\n"
    )
    plan = make_plan(declared(document), fake_cost)
    assert len(plan.cells) == 4
    assert (
        len({cell.architecture.hash for cell in plan.cells if cell.architecture}) == 4
    )


def test_mixing_needs_cutmix() -> None:
    document = """
question: q
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors:
  patch.mixing: [0, 1]
  recipe.cutmix: [0, 1]
data: digits
recipe: {epochs: 2, warmup_epochs: 0}
"""
    plan = make_plan(declared(document), fake_cost)
    notes = {
        (cell.levels["patch.mixing"], cell.levels["recipe.cutmix"]): cell.note
        for cell in plan.cells
    }
    assert (
        notes[1, 0]
        == "patch.mixing labels patches by CutMix; set recipe.cutmix above 0"
    )
    assert not notes[1, 1]


@pytest.mark.proof
def test_a_start_is_part_of_the_trial_and_its_absence_is_not(tmp_path: Path) -> None:
    torch.save({"x": torch.zeros(1)}, tmp_path / "some.pth")
    document = ROWS.replace("seeds: 2", "seeds: 1")
    without = make_plan(declared(document), fake_cost)
    with_ = make_plan(
        declared(document + f"pretrained: {tmp_path / 'some.pth'}\n"), fake_cost
    )
    assert not {t.hash for t in without.trials} & {t.hash for t in with_.trials}
    assert all(t.start and t.start.path for t in with_.trials)
    published = make_plan(declared(document + "pretrained: true\n"), fake_cost)
    assert (
        published.cells[0].note
        == "timm publishes no weights for pvt_small; name a checkpoint file:"
        " pretrained: FILE.pth"
    )
    assert published.cells[2].trials[0].start is not None


@pytest.mark.parametrize(
    ("said", "names", "images"),
    [
        ("true", None, 64),
        ("[diversity]", ("diversity",), 64),
        ("{every: 1, images: 5}", None, 5),
    ],
)
def test_diagnostics_in_short_and_in_full(
    said: str, names: tuple[str, ...] | None, images: int
) -> None:
    from ablate import diagnostics

    found = declared(ROWS + f"diagnostics: {said}\n").diagnostics
    assert found.names == (names or diagnostics.usual())
    assert found.images == images
    assert found.due(2, is_last=True)
    assert found.due(1, is_last=False) == ("every" in said)
