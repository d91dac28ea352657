"""Compiled networks, channels last, checkpointing: resumed bit for bit, and refused where
they cannot work.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint as checkpoints
from torch import nn

from ablate import models, pipeline, space
from ablate.cost import count
from ablate.errors import AblateError, Infeasible, SpaceError
from ablate.families import resolve
from ablate.learning import speed
from ablate.learning.speed import compile_network, eager, enable_checkpointing
from ablate.plan.plan import make_plan
from ablate.records import Diagnostics, Level, Recipe, Trial
from ablate.training import Training
from tests.training.test_training import EVERYTHING, RECIPE, train, trial

DROPS: dict[str, Level] = {"drop.path": 0.3, "drop.dropout": 0.1, "shortcuts.count": 1}
# Inductor warns of complex numbers, which circulant shortcuts use; and torch of itself.
pytestmark = pytest.mark.filterwarnings("ignore")
TEXT = """
question: q
backbone: BACKBONE
factors: {layout: [serial, parallel]}
data: {name: digits, image_size: 32}
recipe: {compile: true}
seeds: 1
"""


@pytest.mark.parametrize(
    "recipe",
    [
        replace(EVERYTHING, checkpointing=True),
        replace(EVERYTHING, channels_last=True),
        replace(RECIPE, optimizer_options="fused=true"),
        replace(RECIPE, optimizer="sgd", optimizer_options="fused=true"),
        replace(EVERYTHING, compile=True, epochs=3),
        replace(
            EVERYTHING,
            compile=True,
            checkpointing=True,
            channels_last=True,
            ema=0.0,
            epochs=3,
        ),
    ],
    ids=["checkpointing", "channels last", "fused", "fused sgd", "compile", "all"],
)
@pytest.mark.proof
def test_it_resumes_bit_for_bit(recipe: Recipe, tmp_path: Path) -> None:
    chosen = trial(recipe, **DROPS)
    straight, weights = train(chosen, tmp_path / "straight")
    resumed, others = train(chosen, tmp_path / "resumed", (1, 2))
    assert resumed == straight
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[key], others[key]) for key in weights)


@pytest.mark.proof
def test_checkpointing_changes_no_bit(tmp_path: Path) -> None:
    usual, weights = train(trial(EVERYTHING, **DROPS), tmp_path / "usual")
    again, others = train(
        trial(replace(EVERYTHING, checkpointing=True), **DROPS), tmp_path / "again"
    )
    assert again == usual
    assert all(torch.equal(weights[key], others[key]) for key in weights)


@pytest.mark.proof
def test_a_compiled_network_learns_the_same(tmp_path: Path) -> None:
    """Up to rounding. Its weights have the usual names."""
    usual, weights = train(trial(RECIPE), tmp_path / "usual")
    compiled, others = train(trial(replace(RECIPE, compile=True)), tmp_path / "fast")
    assert [row[1] for row in compiled] == pytest.approx(
        [row[1] for row in usual], rel=1e-3
    )
    assert weights.keys() == others.keys()


@pytest.mark.proof
def test_diagnostics_see_inside_a_compiled_network(tmp_path: Path) -> None:
    chosen = Diagnostics(("token_similarity",), images=16)
    taken = []
    for number, compiled in enumerate((False, True)):
        training = Training(
            trial(replace(RECIPE, compile=compiled, epochs=1)), tmp_path / str(number)
        )
        training.epoch()
        taken.append(training.diagnose(chosen))
        training.close()
    assert len(taken[0]) == len(taken[1]) > 0
    for usual, fast in zip(*taken, strict=True):
        assert np.array(fast.values) == pytest.approx(np.array(usual.values), rel=1e-2)


def test_a_network_is_compiled_and_runs_eagerly_on_demand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        ran.append("compiled")
        return graph.forward

    model = nn.Linear(2, 2)
    compiled = model.compile
    monkeypatch.setattr(
        model, "compile", lambda **options: compiled(backend=backend, **options)
    )
    compile_network(model)
    with eager(model):
        model(torch.ones(1, 2))
    assert ran == []
    model(torch.ones(1, 2))
    assert ran == ["compiled"]
    # Code for each shape, whatever other shapes there were.
    model(torch.ones(3, 2))
    model(torch.ones(5, 2))
    assert ran == ["compiled"] * 3
    # A copy, such as that of an EMA, runs too.
    copy.deepcopy(model)(torch.ones(1, 2))


def test_images_and_kernels_lie_with_their_channels_last(tmp_path: Path) -> None:
    training = Training(trial(replace(RECIPE, channels_last=True)), tmp_path)
    seen = []
    model: nn.Module = training._tested_model
    model.patch_embed.proj.register_forward_hook(
        lambda module, inputs, output: seen.append((inputs[0], module.weight))
    )
    training.epoch()
    training.close()
    image, kernel = seen[0]
    # With one channel, both formats are the same.
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert kernel.is_contiguous(memory_format=torch.channels_last)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The blocks whose activations are computed again."""
    seen: list[object] = []
    original = checkpoints.checkpoint

    def counted(block: Any, *inputs: Any, **options: Any) -> Any:
        seen.append(block)
        return original(block, *inputs, **options)

    monkeypatch.setattr(checkpoints, "checkpoint", counted)
    return seen


@pytest.mark.parametrize(
    ("backbone", "side", "settings"),
    [
        ("vit_tiny_patch16_224", 32, {"shortcuts.count": 2, "layout": "parallel"}),
        ("cait_xxs24_224", 32, {"shortcuts.count": 1}),
        ("poolformer_s12", 64, {"ffn.kernel": 3}),
        ("swin_tiny_patch4_window7_224", 224, {"shortcuts.count": 1}),
        ("pvt_tiny", 64, {"shortcuts.count": 1}),
        ("t2t_vit_14", 64, {"shortcuts.count": 1}),
        ("lvt_r1", 64, {}),
        ("resnet18", 32, {}),
        ("convnext_atto", 32, {}),
    ],
)
@pytest.mark.proof
def test_each_family_computes_its_blocks_again(
    backbone: str, side: int, settings: dict[str, Level], calls: list[object]
) -> None:
    architecture = resolve(backbone, side, 3, 10, settings)
    torch.manual_seed(0)
    model = models.build(architecture).eval()
    images = torch.randn(2, 3, side, side)
    usual = model(images)
    usual.square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    assert not calls
    model.zero_grad()
    enable_checkpointing(model)
    again = model(images)
    again.square().sum().backward()
    assert torch.equal(again, usual)
    assert len(calls) >= 4
    repeated = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(map(torch.equal, gradients, repeated))


def plan_notes(text: str) -> list[str]:
    plan = make_plan(space.load(text, "a.yaml"), count)
    return [cell.note for cell in plan.cells]


def test_a_network_without_checkpointing_is_refused_in_the_plan() -> None:
    with pytest.raises(Infeasible, match="no method set_grad_checkpointing"):
        enable_checkpointing(nn.Linear(1, 1))
    other = TEXT.replace("compile", "checkpointing").replace("BACKBONE", "inception_v4")
    other = other.replace("layout: [serial, parallel]", "drop.dropout: [0, 0.1]")
    other = other.replace("image_size: 32", "image_size: 96")
    with pytest.raises(AblateError, match="cannot compute activations again"):
        pipeline.preview(space.load(other, "a.yaml"), "none.db")
    vit = TEXT.replace("compile", "checkpointing").replace(
        "BACKBONE", "{family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}"
    )
    assert plan_notes(vit) == ["", ""]


def test_without_a_compiler_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.replace("BACKBONE", "vit_tiny_patch16_224")
    assert space.load(text, "a.yaml").recipe.compile
    monkeypatch.setattr(speed.shutil, "which", lambda name: None)
    with pytest.raises(SpaceError, match=r"needs a C\+\+ compiler"):
        space.load(text, "a.yaml")


@pytest.mark.parametrize("field", ["compile", "checkpointing", "channels_last"])
def test_other_tasks_do_not_read_it(field: str) -> None:
    text = (
        "question: q\ntask: segmentation\ndata: digit-scenes\n"
        "backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}\n"
        f"recipe: {{{field}: true}}\n"
        "factors: {layout: [serial, parallel]}\nseeds: 1\n"
    )
    with pytest.raises(SpaceError, match=f"does not read recipe.{field}"):
        space.load(text, "a.yaml")


def test_it_is_part_of_the_identity_and_the_default_is_not() -> None:
    assert trial(RECIPE).hash == trial(replace(RECIPE, compile=False)).hash
    hashes: set[str] = {trial(RECIPE).hash}
    fields = ("compile", "checkpointing", "channels_last", "tf32")
    for field in fields:
        changed: Trial = trial(replace(RECIPE, **{field: True}))
        hashes.add(changed.hash)
    assert len(hashes) == len(fields) + 1
