"""What must hold on a GPU: `make gpu`.

These tests need little beyond torch and timm, because a borrowed machine may have
nothing else. ABLATE_TEST_DEVICE=cpu tries them without a GPU; the tests of GPU memory
and energy then have nothing to test.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from ablate import pipeline, space
from ablate.errors import Infeasible
from ablate.execution.trial_run import TrialRun
from ablate.factors.factor import Factor
from ablate.families import resolve
from ablate.families.family import Family
from ablate.layers.attention import ScaledHighPass
from ablate.layers.circulant import CirculantProjection
from ablate.learning.patches import PatchTerms
from ablate.models import build
from ablate.records import Diagnostics, Ended, Event, Job, Resources, Status, Trial
from ablate.store.reader import Reader
from ablate.training import Training
from ablate.training.energy import EnergyMeter
from ablate.training.timing import Conditions, Stopwatch
from tests.families.test_families import (
    FAMILIES,
    IDS,
    PAIRS,
    architecture,
    images,
    levels_on,
)

pytestmark = pytest.mark.gpu
DEVICE = os.environ.get("ABLATE_TEST_DEVICE", "cuda")
needs_memory_of_a_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="tried on a CPU")
SPACE = """
question: Does it train on a GPU?
backbone: {{family: vit, patch_size: 2, width: 48, depth: 2, heads: 4}}
factors: {{layout: [serial, parallel]}}
fixed: {{shortcuts.count: 2, attnscale: true}}
data: {{name: digits, train_images: 1000, test_images: 300}}
recipe: {{epochs: {epochs}, batch_size: {batch}, lr: 4e-3, precision: {precision}}}
"""


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels that give the same bits each time.

    With `warn_only`, attention keeps its kernels without this promise.
    """
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def trial(precision: str = "float32", epochs: int = 4, batch: int = 50) -> Trial:
    text = SPACE.format(precision=precision, epochs=epochs, batch=batch)
    declared = space.load(text, "gpu.yaml")
    network = resolve(declared.network.backbone, 8, 1, 10, declared.factors.fixed)
    return Trial(network, declared.recipe, declared.data, seed=0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_trial_learns_in_each_precision(precision: str, tmp_path: Path) -> None:
    training = Training(trial(precision, epochs=20), tmp_path, device=DEVICE)
    while not training.finished:
        training.epoch()
    training.close()
    # On a CPU, five seeds, and five runs from slightly different weights, reach 81 to 88.
    assert training.epochs[-1].metrics["top1"] > 60, "chance is 10"


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_resumed_trial_gives_the_same_bits(precision: str, tmp_path: Path) -> None:
    whole = Training(trial(precision), tmp_path / "whole", device=DEVICE)
    while not whole.finished:
        whole.epoch()
    whole.close()
    first = Training(trial(precision), tmp_path / "parts", device=DEVICE)
    first.epoch()
    first.epoch()
    first.save()
    first.close()
    second = Training(trial(precision), tmp_path / "parts", device=DEVICE)
    assert len(second.epochs) == 2
    while not second.finished:
        second.epoch()
    second.close()
    for one, other in zip(whole.epochs, second.epochs, strict=True):
        assert one.metrics == other.metrics
    weights = second._model.state_dict()
    for name, tensor in whole._model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_network_computes_what_it_computes_on_a_cpu(family: str) -> None:
    torch.manual_seed(0)
    model = build(architecture(family)).eval()
    with torch.inference_mode():
        expected = model(images(family))
        found = model.to(DEVICE)(images(family).to(DEVICE)).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("family", "factor"), PAIRS, ids=IDS)
def test_a_factor_takes_two_steps(family: Family, factor: Factor) -> None:
    levels = levels_on(family, factor)
    if not levels or any(slot in family.lacks for slot in factor.needs):
        with pytest.raises(Infeasible):
            build(architecture(family.name, **(levels or {"size.width": 48})))
        return
    found = architecture(family.name, **levels)
    torch.manual_seed(0)
    model = build(found).train().to(DEVICE)
    terms = PatchTerms(found, model).to(DEVICE)
    optimizer = torch.optim.AdamW([*model.parameters(), *terms.parameters()])
    batch = images(family.name).to(DEVICE)
    labels = torch.tensor([1, 2], device=DEVICE)
    for precision in (torch.float32, torch.bfloat16):
        optimizer.zero_grad()
        with torch.autocast(
            torch.device(DEVICE).type,
            dtype=torch.bfloat16,
            enabled=precision == torch.bfloat16,
        ):
            loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        assert math.isfinite(loss.item())
    assert all(weight.isfinite().all() for weight in model.parameters())


@pytest.mark.parametrize(("width", "blocks"), [(48, 4), (128, 1), (192, 8), (384, 4)])
def test_circulant_projections_agree_with_float64(width: int, blocks: int) -> None:
    torch.manual_seed(0)
    exact = CirculantProjection(width, blocks, 2).double()
    z = torch.randn(3, 17, width, dtype=torch.float64, requires_grad=True)
    expected = exact(z)
    expected.sum().backward()
    found = CirculantProjection(width, blocks, 2).to(DEVICE)
    found.c.data.copy_(exact.c.data)
    inputs = z.detach().float().to(DEVICE).requires_grad_()
    out = found(inputs)
    out.sum().backward()
    for one, other in (
        (out, expected),
        (inputs.grad, z.grad),
        (found.c.grad, exact.c.grad),
    ):
        assert one is not None
        assert other is not None
        scale = other.abs().max()
        assert (one.double().cpu() - other).abs().max() < 1e-5 * scale


def test_attnscale_without_a_map_agrees_with_float64() -> None:
    torch.manual_seed(0)
    exact = ScaledHighPass(3).double()
    nn.init.normal_(exact.w)
    q, k, v = torch.randn(3, 2, 3, 17, 16, dtype=torch.float64)
    expected = exact((q @ k.transpose(-2, -1)).softmax(-1)) @ v
    found = ScaledHighPass(3).to(DEVICE)
    found.w.data.copy_(exact.w.data)
    near = [one.float().to(DEVICE) for one in (q, k, v)]
    attended = nn.functional.scaled_dot_product_attention(*near, scale=1.0)
    out = found.of_attended(attended, near[2])
    torch.testing.assert_close(out.double().cpu(), expected, rtol=1e-3, atol=1e-4)


def events(job: Job) -> list[Event]:
    run = TrialRun(job, "inline")
    try:
        happened = list(run.start())
        while run.status == Status.RUNNING:
            happened += run.step()
    finally:
        run.close()
    return happened


def job(wanted: Trial, folder: Path) -> Job:
    gpus = 0.0 if DEVICE == "cpu" else 1.0
    resources = Resources(cpus=1, gpus=gpus)
    return Job(wanted, str(folder), resources, diagnostics=Diagnostics())


@needs_memory_of_a_gpu
def test_a_trial_without_enough_memory_fails_and_the_next_one_trains(
    tmp_path: Path,
) -> None:
    wide = {"size.width": 2048, "size.depth": 12, "size.heads": 16}
    small = trial(epochs=1)
    network = resolve("vit", 8, 1, 10, {"size.patch_size": 2, **wide})
    large = Trial(network, small.recipe, small.data, seed=0)
    torch.cuda.set_per_process_memory_fraction(0.02)
    try:
        ended = events(job(large, tmp_path))[-1]
        assert isinstance(ended, Ended)
        assert ended.status == Status.FAILED
        assert "out of memory" in ended.error
        ended = events(job(small, tmp_path))[-1]
        assert isinstance(ended, Ended)
        assert ended.status == Status.COMPLETED
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@needs_memory_of_a_gpu
def test_energy_is_measured() -> None:
    meter = EnergyMeter("cuda", 1, 1)
    meter.start()
    left = torch.randn(4096, 4096, device="cuda")
    for _ in range(200):
        left = (left @ left).tanh()
    torch.cuda.synchronize()
    joules = meter.joules()
    assert joules is not None
    assert joules > 1


def test_training_steps_are_timed() -> None:
    conditions = Conditions(images=8, precision="bfloat16", device=DEVICE)
    network = trial().architecture
    measured = Stopwatch(network, conditions).measure(network)
    assert 0.2 < measured.step_ratio < 5


def test_trials_that_share_a_gpu_have_the_bits_of_trials_alone(tmp_path: Path) -> None:
    metrics = []
    for executor, share in (("inline", 1.0), ("local", 0.25)):
        text = SPACE.format(epochs=2, batch=100, precision="bfloat16")
        gpus = share if DEVICE == "cuda" else 0
        text += f"resources: {{gpus: {gpus}}}\nseeds: 2\n"
        folder = tmp_path / executor
        options = pipeline.Options(folder, executor=executor)
        pipeline.run(space.load(text, "space.yaml"), "space.yaml", options)
        with Reader(options.url) as reader:
            asked = "SELECT trial_hash, epoch, name, value FROM epoch_metrics"
            metrics.append(reader.query(f"{asked} ORDER BY 1, 2, 3")[1])
    alone, shared = metrics
    assert len(alone) > 2 * 2 * 2
    assert shared == alone
