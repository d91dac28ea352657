"""How fast whole backbones train, and what each option of a loop is worth.

    make bench-models DEVICE=cuda
    make bench-models MODELS=vit_tiny_patch16_224 BATCH=2 PRECISION=float32   to try it

For each backbone: epochs of `Training` against a loop by hand on random images in
memory; that loop with fused AdamW, channels-last layout and torch.compile, in turns
with the plain one; and what factors cost. The options change the last bits of results.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from machine import machine_text
from steps import ByHand, compared, in_turns, prices

from ablate import space
from ablate.families import resolve
from ablate.records import Architecture, Level, Trial
from ablate.training.timing import Conditions

CLASSES = 1000
SPACE = """
question: How fast does this backbone train?
backbone: {backbone}
factors: {{layout: [serial, parallel]}}
data: {images}
recipe:
  epochs: 1000
  batch_size: {batch}
  warmup_epochs: 0
  precision: {precision}
"""
OPTIONS: dict[str, dict[str, bool]] = {
    "fused AdamW": {"fused": True},
    "channels-last": {"channels_last": True},
    "torch.compile": {"compiled": True},
    "all three": {"fused": True, "channels_last": True, "compiled": True},
}


def network(backbone: str, size: int, settings: dict[str, Level]) -> Architecture:
    return resolve(backbone, size, 3, CLASSES, settings)


def write_images(file: Path, size: int, number: int) -> None:
    """Writes random images; every class has one at least."""
    drawn = np.random.default_rng(0)
    shape = (number, size, size, 3)
    labels = np.arange(number) % CLASSES
    labels[-1] = CLASSES - 1
    np.savez(
        file,
        x_train=drawn.integers(0, 256, shape, dtype=np.uint8),
        y_train=labels,
        x_test=drawn.integers(0, 256, (2, size, size, 3), dtype=np.uint8),
        y_test=np.array([0, CLASSES - 1]),
    )


def options(trial: Trial, rounds: int, device: str) -> None:
    """Prints the speed of the loop by hand with each option."""
    print("\n| option of the loop by hand | images / s, relative |")
    print("|---|---|")
    plain = ByHand(trial, torch.device(device))
    for name, chosen in OPTIONS.items():
        changed = ByHand(trial, torch.device(device), **chosen)
        pairs = in_turns(changed.epoch, plain.epoch, rounds)
        ratio = statistics.median(usual / own for own, usual in pairs)
        print(f"| {name} | x {ratio:.2f} |", flush=True)


def main(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images.npz"
        write_images(images, given.size, given.steps * given.batch)
        for backbone in given.models:
            text = SPACE.format(
                backbone=backbone,
                images=images,
                batch=given.batch,
                precision=given.precision,
            )
            declared = space.load(text, "models.yaml")
            make = partial(network, backbone, given.size)
            trial = Trial(make({}), declared.recipe, declared.data, 0)
            print(f"\n## {backbone}, {given.size} x {given.size}, {given.precision}\n")
            print("| images / s | by hand | ratio |")
            print("|---|---|---|")
            print(f"| {compared(trial, given.rounds, given.device)} |", flush=True)
            options(trial, given.rounds, given.device)
            conditions = Conditions(
                images=given.batch, precision=given.precision, device=given.device
            )
            prices(make, conditions)
    print(
        f"\n{given.batch} images a step, {given.steps} steps an epoch, {given.rounds}"
        f" rounds; {machine_text()}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models",
        nargs="*",
        default=["deit_tiny_patch16_224", "deit_small_patch16_224"],
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=5)
    main(parser.parse_args())
