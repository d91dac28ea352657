"""How fast training steps are: against a loop written by hand, and what factors cost.

    make bench-steps

The first table compares epochs of `Training` with epochs of a plain PyTorch loop that
trains the same network on the same images, in turns. The second one shows the price of
factors in time next to their price in FLOPs. On a GPU: make bench-steps DEVICE=cuda
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from machine import machine_text

from ablate import space
from ablate.cost import count
from ablate.data import arrays
from ablate.families import resolve
from ablate.models import build
from ablate.records import Architecture, Level, Trial
from ablate.training import Training
from ablate.training.timing import Conditions, Stopwatch

BATCH = 64
SPACE = """
question: How fast are training steps?
backbone: {{family: vit, patch_size: 1, width: {width}, depth: 3, heads: 4}}
factors:
  layout: [serial, parallel]
data: digits
recipe: {{epochs: 1000, batch_size: {batch}, warmup_epochs: 0, precision: {precision}}}
"""
LOOPS = ((64, "float32"), (128, "float32"), (128, "bfloat16"))
FACTORS: tuple[dict[str, Level], ...] = (
    {},
    {"shortcuts.count": 1},
    {"shortcuts.count": 2},
    {"shortcuts.count": 3},
    {"shortcuts.count": 2, "shortcuts.b": 1},
    {"shortcuts.count": 2, "shortcuts.projection": "dense"},
    {"shortcuts.count": 2, "shortcuts.order": "activation"},
    {"attnscale": True},
    {"featscale": "text"},
    {"ffn.kernel": 3},
    {"ffn.kernel": 5},
    {"ffn.agelu": 4},
    {"value": "swiglu"},
    {"talking_heads": "both"},
    {"layout": "parallel"},
)


def network(width: int, settings: dict[str, Level]) -> Architecture:
    sizes: dict[str, Level] = {
        "size.patch_size": 1,
        "size.width": width,
        "size.depth": 3,
        "size.heads": 4,
    }
    return resolve("vit", 8, 1, 10, {**sizes, **settings})


class ByHand:
    """What a researcher writes: a model, AdamW, a cosine, epochs and a test.

    Args:
        fused: AdamW as one kernel.
        channels_last: images and convolutions in channels-last layout.
        compiled: the model through `torch.compile`.
    """

    def __init__(
        self,
        trial: Trial,
        device: torch.device,
        *,
        fused: bool = False,
        channels_last: bool = False,
        compiled: bool = False,
    ) -> None:
        data = arrays.load(trial.data)
        mean, std = data.train.float().mean(), data.train.float().std()
        self._train = (data.train.float() - mean).div(std).to(device)
        self._train_labels = data.train_labels.to(device)
        self._test = (data.test.float() - mean).div(std).to(device)
        self._test_labels = data.test_labels.to(device)
        self._device = device
        self._dtype = getattr(torch, trial.recipe.precision)
        self._batch = trial.recipe.batch_size
        self._model = build(trial.architecture).to(device)
        if channels_last:
            layout = torch.channels_last
            self._model = self._model.to(memory_format=layout)
            self._train = self._train.contiguous(memory_format=layout)
            self._test = self._test.contiguous(memory_format=layout)
        if compiled:
            self._model.compile()
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=trial.recipe.lr,
            weight_decay=0.05,
            fused=fused or None,
        )
        self._steps = 0

    @property
    def images(self) -> int:
        """Training images of an epoch."""
        return len(self._train) // self._batch * self._batch

    def epoch(self) -> float:
        """Trains and tests one epoch. Returns the seconds."""
        start = time.perf_counter()
        images, labels = self._train, self._train_labels
        self._model.train()
        order = torch.randperm(len(images), device=self._device)
        for batch in order.split(self._batch)[: len(images) // self._batch]:
            self._steps += 1
            for group in self._optimizer.param_groups:
                group["lr"] = 5e-4 * (1 + math.cos(math.pi * self._steps / 25_000))
            self._optimizer.zero_grad()
            with self._autocast():
                loss = F.cross_entropy(self._model(images[batch]), labels[batch])
            loss.backward()
            self._optimizer.step()
        self._model.eval()
        images, labels = self._test, self._test_labels
        hits = 0
        with torch.inference_mode(), self._autocast():
            for first in range(0, len(images), 256):
                logits = self._model(images[first : first + 256])
                hits += int((logits.argmax(1) == labels[first : first + 256]).sum())
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def _autocast(self) -> AbstractContextManager[object]:
        if self._dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)


def loops(rounds: int, device: str) -> None:
    """Prints the speed of `Training` relative to the loop by hand."""
    print("| width | precision | `ablate`, images / s | by hand, images / s | ratio |")
    print("|---|---|---|---|---|")
    for width, precision in LOOPS:
        text = SPACE.format(width=width, batch=BATCH, precision=precision)
        declared = space.load(text, "steps.yaml")
        architecture = network(width, {})
        trial = Trial(architecture, declared.recipe, declared.data, 0)
        print(
            f"| {width} | {precision} | {compared(trial, rounds, device)} |", flush=True
        )


def compared(trial: Trial, rounds: int, device: str) -> str:
    """Trains a trial in both ways, in turns. Returns three cells of a table."""
    with tempfile.TemporaryDirectory() as folder:
        training = Training(trial, folder, device=device)
        hand = ByHand(trial, torch.device(device))
        pairs = in_turns(lambda: training.epoch().seconds, hand.epoch, rounds)
        training.close()
    own, other = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratio = statistics.median(by_hand / mine for mine, by_hand in pairs)
    return f"{hand.images / own:.0f} | {hand.images / other:.0f} | {ratio:.2f}"


def in_turns(
    one: Callable[[], float], other: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    """Seconds of both in each round, after one that is not counted."""
    one(), other()
    return [(one(), other()) for _ in range(rounds)]


def prices(
    make: Callable[[dict[str, Level]], Architecture], conditions: Conditions
) -> None:
    """Prints what factors cost in time and in FLOPs.

    Args:
        make: returns the network with these settings.
    """
    reference = make({})
    watch = Stopwatch(reference, conditions)
    base = count(reference).flops
    print(f"\nFactors on {reference.backbone}: {watch.images} images a step,", end=" ")
    print(f"{conditions.text}\n")
    print("| factors | FLOPs | time of a step | images / s |")
    print("|---|---|---|---|")
    for settings in FACTORS:
        architecture = make(settings)
        timing = watch.measure(architecture)
        name = ", ".join(f"{key} = {level}" for key, level in settings.items())
        print(
            f"| {name or 'none'} | x {count(architecture).flops / base:.2f} |"
            f" x {timing.step_ratio:.2f} | {1 / timing.step_ratio - 1:+.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--width", type=int, default=128)
    given = parser.parse_args()
    torch.set_num_threads(1)
    loops(given.rounds, given.device)
    prices(
        lambda settings: network(given.width, settings),
        Conditions(images=BATCH, device=given.device),
    )
    print(f"\n{given.rounds} rounds; {machine_text()}")
