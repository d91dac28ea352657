"""Iso-cost controls: the width is the nearest one, and the table says what capacity
alone gives.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablate import pipeline, space
from ablate.cli.app import app
from ablate.cost import count
from ablate.errors import AblateError
from ablate.pipeline import Options
from ablate.plan import make_plan
from ablate.plan.cells import Cells
from ablate.results.study import Study
from tests.conftest import RunText

TEXT = """
question: Is it the shortcut or the capacity?
backbone: {family: vit, patch_size: 4, width: 24, depth: 2, heads: 2, mlp_ratio: 2}
factors:
  shortcuts.count: [0, 1, 4]
  ffn.kernel: [none, 3]
control: CONTROL
design: one-at-a-time
seeds: 2
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 3, batch_size: 50, warmup_epochs: 0}
"""


@pytest.mark.proof
@pytest.mark.parametrize("cost", ["params", "flops"])
def test_a_control_has_the_width_that_costs_as_much(cost: str) -> None:
    declared = space.load(TEXT.replace("CONTROL", f"iso-{cost}"), "tiny.yaml")
    plan = make_plan(declared, count)
    variants = [cell for cell in plan.cells if cell.role == "variant"]
    controls = {cell.control_of: cell for cell in plan.cells if cell.role == "control"}
    made = Cells(declared, count)
    for variant in variants:
        assert variant.cost is not None

        def gap(width: int, target: int = getattr(variant.cost, cost)) -> int:
            return int(
                abs(
                    getattr(
                        made.cost({**declared.factors.baseline, "size.width": width}),
                        cost,
                    )
                    - target
                )
            )

        best = min(range(16, 60, 2), key=gap)
        if variant.index not in controls:
            assert best == 24, "the baseline itself is nearest"
            continue
        assert controls[variant.index].levels == {
            **declared.factors.baseline,
            "size.width": best,
        }
    assert controls
    assert all(
        cell.index > max(variant.index for variant in variants)
        for cell in controls.values()
    ), "rows of their own, at the end"


def test_the_table_tells_the_gain_over_the_control(
    run_text: RunText, options: Options
) -> None:
    run_text(TEXT.replace("CONTROL", "iso-params"))
    study = Study("tiny", options.url)
    assert "Δ control" in study.table()
    rows = {row["row"]: row for row in json.loads(study.table("json"))}
    cells = {cell.index: cell for cell in study.results().cells}
    controlled = [row for row in rows.values() if row["role"] == "variant"]
    assert len(controlled) == 3
    for row in controlled:
        mine, control = cells[row["row"]], cells[row["control"]]
        other = control if control.same_as is None else cells[control.same_as]
        expected = sum(mine.values[seed] - other.values[seed] for seed in (0, 1)) / 2
        assert row["gain"] == pytest.approx(expected)
    assert study.frame()["size.width"].notna().any()
    assert run_text(TEXT.replace("CONTROL", "iso-params")).trained == 0


def test_a_baseline_that_is_nearest_in_cost_is_the_control(
    run_text: RunText,
    options: Options,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    text = TEXT.replace("CONTROL", "iso-flops")
    text = text.replace("  shortcuts.count: [0, 1, 4]\n", "").replace(
        "heads: 2", "heads: 4"
    )
    Path("tiny.yaml").write_text(text)
    assert run_text(text).trained == 4
    plan = make_plan(space.load(text, "tiny.yaml"), count)
    assert [cell.role for cell in plan.cells] == ["reference", "variant"]
    costs = [cell.cost.flops for cell in plan.cells if cell.cost]
    more = f"{100 * (costs[1] / costs[0] - 1):+.1f} %"
    study = Study("tiny", options.url)
    (controlled,) = study.effects_table("controls").data
    (row,) = study.effects_table("rows").data
    assert controlled["difference"] == row["difference"]
    note = (
        "Compared with row 0, because no other width of the baseline is nearer in cost:"
        " row 1."
    )
    assert note in study.effects_table("controls").notes
    assert note not in study.effects_table("rows").notes
    done = CliRunner().invoke(app, ["plan", "tiny.yaml"])
    assert f"Row 1 has {more} of FLOPs" in " ".join(done.output.split())


def test_a_control_gets_a_row_where_the_baseline_has_none(
    run_text: RunText, options: Options
) -> None:
    text = TEXT.replace("CONTROL", "iso-flops").replace("heads: 2", "heads: 4")
    text = text.replace("one-at-a-time", "leave-one-out").replace("[0, 1, 4]", "[0, 1]")
    run_text(text)
    study = Study("tiny", options.url)
    declared, cells = study.declared(), study.results().cells
    assert cells[0].levels == declared.factors.full
    controls = [cell for cell in cells if cell.role == "control"]
    assert controls[0].levels == declared.factors.baseline
    assert controls[0].control_of is not None
    variant = cells[controls[0].control_of]
    gains = [variant.values[seed] - controls[0].values[seed] for seed in (0, 1)]
    effects = {row["row"]: row for row in study.effects_table("controls").data}
    assert effects[variant.index]["difference"] == pytest.approx(sum(gains) / 2)


@pytest.mark.parametrize(
    "backbone",
    ["swin_tiny_patch4_window7_224", "cait_xxs24_224", "t2t_vit_14", "poolformer_s12"],
)
def test_a_backbone_whose_width_cannot_change_has_no_control(backbone: str) -> None:
    text = TEXT.replace("CONTROL", "iso-flops").replace(
        "{family: vit, patch_size: 4, width: 24, depth: 2, heads: 2, mlp_ratio: 2}",
        backbone,
    )
    with pytest.raises(
        AblateError, match=f"size.width cannot be changed on {backbone}"
    ):
        pipeline.cost_plan(space.load(text, "tiny.yaml"), "nowhere.db")


def test_a_baseline_that_cannot_be_built_has_no_control() -> None:
    text = TEXT.replace("CONTROL", "iso-flops").replace(
        "ffn.kernel: [none, 3]", "recipe.warmup_epochs: [3, 0]"
    )
    with pytest.raises(
        AblateError,
        match=(
            "control: the baseline cannot be built: 3 warm-up epochs leave nothing of 3"
            " epochs"
        ),
    ):
        pipeline.cost_plan(space.load(text, "tiny.yaml"), "nowhere.db")
