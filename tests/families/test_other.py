"""Models of timm whose blocks are not known: planned, counted, trained and refused."""

from __future__ import annotations

import os

import pytest
import timm
import torch
from timm.optim import create_optimizer_v2

from ablate import families, pipeline, space
from ablate.cost import count
from ablate.errors import AblateError, Infeasible
from ablate.execution.inline import InlineExecutor
from ablate.families import resolve
from ablate.models import build
from ablate.records import Status
from ablate.results.study import Study
from ablate.scheduling.options import Options
from ablate.training.layer_order import layers_said

STUDY = """
question: Does label smoothing help a small ConvNeXt?
backbone: convnext_atto
factors:
  recipe.label_smoothing: [0.0, 0.1]
  shortcuts.count: [0, 1]
  drop.path: [0.0, 0.1]
seeds: 1
design: one-at-a-time
data: {name: digits, image_size: 32, train_images: 20, test_images: 20}
recipe: {epochs: 1, batch_size: 10, warmup_epochs: 0}
"""


@pytest.mark.proof
def test_a_study_of_any_model_of_timm_trains_and_says_what_is_not_defined(
    options: Options,
) -> None:
    declared = space.load(STUDY, "convnext.yaml")
    pipeline.run(declared, "convnext.yaml", options, executor=InlineExecutor())
    cells = Study("convnext", options.url).results().cells
    trained = {
        cell.index: set(cell.statuses.values()) == {Status.COMPLETED} for cell in cells
    }
    assert trained == {0: True, 1: True, 2: False, 3: True}
    shown = pipeline.preview(declared, options.url, options)
    assert shown.plan.cells[2].note == (
        "shortcuts is not defined on convnext_atto: ablate does not know the blocks of"
        " timm's other models"
    )


# Multiply-adds (G) and parameters (M) that the models' own papers print.
PRINTED = [
    ("convnext_tiny", 28.6, 4.5),
    ("resnet50", 25.6, 4.1),
    ("efficientnet_b0", 5.3, 0.4),
]


@pytest.mark.proof
@pytest.mark.parametrize(("name", "params", "flops"), PRINTED)
def test_they_cost_what_their_papers_print(
    name: str, params: float, flops: float
) -> None:
    found = count(resolve(name, 224, 3, 1000, {}))
    assert round(found.params / 1e6, 1) == params
    assert found.flops / 1e9 == pytest.approx(flops, rel=0.03)


def drop_path_rates(name: str, **settings: float) -> list[float]:
    model = build(resolve(name, 64, 3, 10, settings))
    return [
        module.drop_prob
        for module in model.modules()
        if type(module).__name__ == "DropPath"
    ]


def test_drop_rates_reach_the_model_or_are_refused() -> None:
    assert max(drop_path_rates("convnext_atto", **{"drop.path": 0.5})) == 0.5
    model = build(resolve("resnet10t", 64, 3, 10, {"drop.head": 0.25}))
    assert model.drop_rate == 0.25
    with pytest.raises(Infeasible, match="drop.path cannot be changed on vgg11"):
        build(resolve("vgg11", 32, 3, 10, {"drop.path": 0.5}))
    with pytest.raises(Infeasible, match="size.depth cannot be changed on"):
        build(resolve("convnext_atto", 32, 3, 10, {"size.depth": 3}))


def test_a_rate_of_zero_is_zero_whatever_the_default_of_timm() -> None:
    theirs = timm.create_model("rexnet_100", num_classes=10)
    assert theirs.get_submodule("head.drop").p == 0.2
    ours = build(resolve("rexnet_100", 64, 3, 10, {}))
    assert ours.get_submodule("head.drop").p == 0
    assert not any(drop_path_rates("swinv2_tiny_window8_256", **{"drop.path": 0.0}))


def test_models_that_word_their_refusal_differently_are_built() -> None:
    for name in ("hrnet_w18_small", "caformer_s18"):
        build(resolve(name, 64, 3, 10, {}))


def test_a_model_that_cannot_be_counted_is_a_refused_row() -> None:
    text = STUDY.replace("convnext_atto", "convmixer_768_32").replace(
        "  drop.path: [0.0, 0.1]\n", ""
    )
    with pytest.raises(
        AblateError,
        match="row 0: convmixer_768_32 cannot be counted: no rule says how much"
        " aten::_convolution_mode",
    ):
        pipeline.preview(space.load(text, "convmixer.yaml"), "none.db")


def test_a_giant_is_refused_before_memory_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 1000)
    with pytest.raises(Infeasible, match="does not fit into this machine's memory"):
        build(resolve("resnet10t", 32, 3, 10, {}))


def test_decay_by_layer_needs_layers() -> None:
    model = build(resolve("pit_ti_224", 224, 3, 10, {}))
    with (
        layers_said(model),
        pytest.raises(Infeasible, match="does not say which layers"),
    ):
        create_optimizer_v2(model, opt="sgd", lr=0.1, layer_decay=0.5)


def test_a_model_that_cannot_read_the_images_says_so() -> None:
    with pytest.raises(
        Infeasible, match="inception_v3 cannot read images of 16 x 16 pixels: "
    ):
        build(resolve("inception_v3", 16, 3, 10, {}))
    name = "vit_relpos_small_patch16_224"
    with pytest.raises(
        Infeasible, match=f"{name} cannot be built for images of 8 x 8 pixels: "
    ):
        build(resolve(name, 8, 3, 10, {}))


def test_a_model_of_fixed_side_is_built_for_the_side_of_the_images() -> None:
    model = build(resolve("mixer_s32_224", 64, 1, 10, {})).eval()
    with torch.no_grad():
        assert model(torch.zeros(2, 1, 64, 64)).shape == (2, 10)


def test_they_are_those_that_no_other_family_has() -> None:
    names = families.members_of(families.families()["timm"])
    assert {"resnet50", "convnext_tiny"} <= set(names)
    assert len(names) > 500
    assert not {"deit_tiny_patch16_224", "pvt_tiny", "lvt_r1"} & set(names)
    assert families.find("deit_tiny_patch16_224").name == "vit"
