"""Several processes train one trial: the same batches, the same bits when resumed, and
no process left behind.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path

import psutil
import pytest
import torch

from ablate import space
from ablate.data import describe
from ablate.data.batches import batches, first_images
from ablate.data.share import Share
from ablate.errors import DataError, ExecutorError, SpaceError
from ablate.execution import make
from ablate.records import Ended, Event, Recipe, Resources, Started, Status, Trial
from ablate.training import Diverged, Training
from tests.execution.test_executors import listening, order
from tests.execution.test_executors import numbers as curves
from tests.training.test_training import EVERYTHING, RECIPE, numbers, trial

CPU = torch.device("cpu")
# All that is drawn for the whole batch or in its order: everything but dropping and
# erasing.
SHARED = replace(EVERYTHING, batch_size=40, random_erasing=0.0, epochs=3)


def drawing() -> Trial:
    """A trial that draws all there is to draw, and has batch norm."""
    settings = {
        "drop.path": 0.3,
        "drop.dropout": 0.1,
        "ffn.kernel": 3,
        "patch.mixing": 0.5,
    }
    return trial(replace(EVERYTHING, batch_size=40), **settings)


def trained(
    wanted: Trial, folder: Path, processes: int
) -> tuple[list[tuple[float, ...]], dict[str, torch.Tensor]]:
    """The curve and the weights of a trial trained to its end."""
    training = Training(wanted, folder, processes=processes)
    while not training.finished:
        training.epoch()
    training.save()
    training.close()
    return numbers(training.epochs), read(folder)


def read(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint."""
    state = torch.load(folder / "last.pt", weights_only=True)
    return {
        **state["model"],
        **{f"ema.{k}": v for k, v in state["ema"].items()},
        **state["terms"],
    }


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize(("batch", "of"), [(8, 2), (24, 3), (16, 4)])
def test_shares_are_even_and_hold_everything_once(
    batch: int, of: int, mixes: bool
) -> None:
    positions = list(range(batch))
    shares = []
    for rank in range(of):
        mine = Share(rank, of).training(batch, mixes)
        shares.append(positions[mine] if isinstance(mine, slice) else mine)
    assert sorted(chain(*shares)) == positions
    assert {len(share) for share in shares} == {batch // of}
    if mixes:
        assert all(
            one + other == batch - 1
            for share in shares
            for one, other in zip(share, reversed(share), strict=True)
        )
    tested = [positions[Share(rank, of).test()] for rank in range(of)]
    assert sorted(chain(*tested)) == positions


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(
        DataError,
        match=(
            "a batch of 50 images cannot be shared by 4 processes; set .* a multiple"
            " of 4"
        ),
    ):
        Share(0, 4).training(50, False)
    with pytest.raises(
        DataError, match="by 2 processes that mix pairs; set .* a multiple of 4"
    ):
        Share(0, 2).training(50, True)


def test_the_shares_of_augmented_batches_are_those_of_one_process() -> None:
    data, recipe = (
        describe("digits", train_images=90, test_images=7),
        Recipe(batch_size=16, crop_padding=1, flip=0.5, mixup=1.0),
    )

    def read(share: Share) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(
            batches(data, recipe, CPU, share).train(torch.Generator().manual_seed(1))
        )

    whole, shares = read(Share()), [read(Share(rank, 2)) for rank in range(2)]
    for update, (images, labels) in enumerate(whole):
        for rank, share in enumerate(shares):
            mine = Share(rank, 2).training(16, True)
            assert torch.equal(share[update][0], images[mine])
            assert torch.equal(share[update][1], labels[mine])
    parts = [batches(data, recipe, CPU, Share(rank, 8)) for rank in range(8)]
    assert sum(len(labels) for part in parts for _, labels in part.test()) == 7, (
        "one process has none"
    )
    assert len(next(first_images(parts[7], 5))) == 5, "diagnostics see all images"


@pytest.mark.proof
def test_the_shares_of_image_files_are_those_of_one_process(tmp_path: Path) -> None:
    """The same order with one process and with two; each augments its share with draws
    of its own.
    """
    from PIL import Image

    for split, count in (("train", 8), ("val", 3)):
        for number in range(2 * count):
            file = tmp_path / split / f"class{number % 2}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (10 * number, 0, 0)).save(file)
    data = replace(describe("folder", str(tmp_path), image_size=8), workers=1)
    recipe = Recipe(batch_size=4)

    def read(share: Share) -> list[list[float]]:
        found = batches(data, recipe, CPU, share).train(
            torch.Generator().manual_seed(1)
        )
        return [
            [round(float(image[0].median()), 4) for image in images]
            for images, _ in found
        ]

    whole, first, second = read(Share()), read(Share(0, 2)), read(Share(1, 2))
    assert [batch[0::2] for batch in whole] == first
    assert [batch[1::2] for batch in whole] == second
    recipe = replace(recipe, random_erasing=1.0)
    assert read(Share(1, 2)) == read(Share(1, 2)), "drawn again they are the same"
    tests = [batches(data, recipe, CPU, Share(rank, 2)) for rank in range(2)]
    assert sum(len(labels) for found in tests for _, labels in found.test()) == 6
    assert sum(len(labels) for _, labels in tests[1].test(whole=True)) == 6


def test_resources_say_how_many_processes(tiny: str) -> None:
    def load(line: str, text: str = tiny) -> Resources:
        return space.load(text + f"resources: {line}\n", "tiny.yaml").resources

    assert load("{processes: 2}") == Resources(2, 0, 2)
    assert load("{gpus: 2}") == Resources(2, 2, 2)
    assert load("{gpus: 2, cpus: 8}") == Resources(8, 2, 2)
    assert load("{gpus: 0.5}") == Resources(1, 0.5, 1)
    assert Resources(8, 2, 2).threads == 4
    with pytest.raises(
        SpaceError, match="resources.processes = 3, but with resources.gpus = 2 a trial"
    ):
        load("{gpus: 2, processes: 3}")
    with pytest.raises(
        SpaceError, match="resources.processes = 2, but with resources.gpus = 1 a trial"
    ):
        load("{gpus: 1, processes: 2}")
    with pytest.raises(
        SpaceError,
        match=(
            "resources.cpus = 1 is less than one for each of 2 processes; set cpus: 2"
        ),
    ):
        load("{cpus: 1, processes: 2}")
    with pytest.raises(
        SpaceError,
        match=(
            "recipe.batch_size = 50 cannot be shared by 4 processes; it must be a"
            " multiple of 4"
        ),
    ):
        load("{processes: 4}")
    with pytest.raises(
        SpaceError, match="2 processes that mix pairs; it must be a multiple of 4"
    ):
        load("{processes: 2}", tiny.replace("warmup_epochs: 0", "mixup: 0.5"))
    with pytest.raises(
        SpaceError,
        match=(
            "recipe.mixup_mode = elem does not work with 2 processes that share a batch"
        ),
    ):
        load(
            "{processes: 2}",
            tiny.replace("warmup_epochs: 0", "mixup: 0.5, mixup_mode: elem"),
        )
    varied = tiny.replace(
        "factors:", "factors:\n  recipe.batch_size: [50, 25]"
    ).replace("batch_size: 50, ", "")
    with pytest.raises(
        SpaceError, match=r"tiny.yaml:5: recipe.batch_size = 25 cannot be shared by 2"
    ):
        load("{processes: 2}", varied)


@pytest.mark.proof
def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    """Up to rounding, with augmentation, mixing, clipping, EMA and a loss term that has
    weights; only the loopback is used.
    """
    wanted = trial(SHARED, **{"patch.mixing": 0.5, "patch.cosine": 0.3})
    alone, weights = trained(wanted, tmp_path / "one", 1)
    job = order((wanted,), tmp_path / "two", Resources(2, 0, 2))
    events: list[Event] = []
    addresses: list[str] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, Started):
            addresses.extend(listening())

    make("inline").run(job, emit, lambda: False)
    assert not psutil.Process().children(), "no process is left"
    place = events[0].place if isinstance(events[0], Started) else None
    assert place is not None
    assert (place.device, place.threads) == ("cpu x2", 1)
    assert events[-1] == Ended(wanted.hash, Status.COMPLETED)
    assert len(addresses) >= 3, "torch's store and Gloo's listeners are seen"
    assert set(addresses) == {"127.0.0.1"}
    (shared,) = curves(events).values()
    for one, two in zip(alone, shared, strict=True):
        assert two == pytest.approx(one[1:], abs=1e-4)
    others = read(tmp_path / "two" / wanted.hash)
    assert set(others) == set(weights)
    assert all(torch.allclose(others[key], weights[key], atol=1e-4) for key in weights)


@pytest.mark.proof
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_batch_norm_of_two_processes_takes_half_precision(
    precision: str, tmp_path: Path
) -> None:
    recipe = replace(
        SHARED, epochs=1, warmup_epochs=0, optimizer="sgd", lr=0.05, precision=precision
    )
    wanted = trial(recipe, **{"ffn.kernel": 3})
    (alone,), _ = trained(wanted, tmp_path / "one", 1)
    (shared,), weights = trained(wanted, tmp_path / "two", 2)
    assert shared == pytest.approx(alone, rel=0.02, abs=2.0)
    assert all(
        tensor.dtype == torch.float32
        for name, tensor in weights.items()
        if "running_var" in name
    )


@pytest.mark.proof
@pytest.mark.parametrize("accumulate", [1, 2])
def test_batch_norm_of_two_processes_is_that_of_one(
    accumulate: int, tmp_path: Path
) -> None:
    """Its statistics are those of all images of a batch, or of a part; so are the
    running ones, which tests use.
    """
    # With SGD: a bias before a batch norm has a gradient of nothing but rounding, which
    # AdamW would magnify.
    recipe = replace(SHARED, epochs=2, accumulate=accumulate, optimizer="sgd", lr=0.05)
    wanted = trial(recipe, **{"ffn.kernel": 3})
    alone, weights = trained(wanted, tmp_path / "one", 1)
    shared, others = trained(wanted, tmp_path / "two", 2)
    for one, two in zip(alone, shared, strict=True):
        assert two == pytest.approx(one, abs=1e-4)
    assert any("running_var" in name for name in weights)
    for name, tensor in weights.items():
        torch.testing.assert_close(others[name], tensor, atol=1e-4, rtol=1e-3)


@pytest.mark.proof
def test_two_processes_take_their_shares_in_parts(tmp_path: Path) -> None:
    recipe = replace(SHARED, epochs=2)
    alone, weights = trained(trial(recipe), tmp_path / "one", 1)
    shared, others = trained(trial(replace(recipe, accumulate=3)), tmp_path / "two", 2)
    for one, two in zip(alone, shared, strict=True):
        assert two == pytest.approx(one, abs=1e-4)
    assert all(torch.allclose(others[key], weights[key], atol=1e-4) for key in weights)


SCRIPT = """
import sys, time
from pathlib import Path
from ablate.training import Training
from tests.training.test_parallel import drawing

training = Training(drawing(), Path(sys.argv[1]), processes=2)
training.epoch()
training.epoch()
training.save()
print("saved", flush=True)
while True:
    training.epoch()
"""


@pytest.mark.proof
@pytest.mark.proof
def test_killed_and_resumed_it_is_bit_for_bit_the_same(tmp_path: Path) -> None:
    wanted = drawing()
    straight, weights = trained(wanted, tmp_path / "straight", 2)
    assert all(math.isfinite(number) for epoch in straight for number in epoch)
    folder = tmp_path / "killed"
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "saved\n"
    others = psutil.Process(run.pid).children(recursive=True)
    assert len(others) == 1
    run.kill()
    run.communicate()
    _, alive = psutil.wait_procs(others, timeout=10)
    assert not alive, "a process outlived the one that it follows"
    again, same = trained(wanted, folder, 2)
    assert again == straight
    assert all(torch.equal(weights[key], same[key]) for key in weights)


@pytest.mark.proof
def test_divergence_is_reported_in_step_and_a_dead_process_fails_the_trial(
    tmp_path: Path,
) -> None:
    training = Training(
        trial(replace(RECIPE, lr=1e30, optimizer="sgd", warmup_epochs=0)),
        tmp_path,
        processes=2,
    )
    for _ in range(2):
        with pytest.raises(Diverged, match="loss is (nan|inf)"):
            for _ in range(4):
                training.epoch()
    (other,) = psutil.Process().children()
    os.kill(other.pid, signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(ExecutorError, match="process 1 of 2 was killed by SIGKILL"):
        training.epoch()
    assert time.monotonic() - start < 20
    training.close()
    assert not torch.distributed.is_initialized()


@pytest.mark.proof
def test_a_process_that_cannot_begin_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, one that finds other code than its leader has."""
    (tmp_path / "timm.py").write_text("raise ImportError('half of an installation')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ExecutorError, match="process 1 of 2 ended with code 1"):
        Training(trial(), tmp_path / "run", processes=2)
    assert not psutil.Process().children()
