"""Several small trials at once on one device, against one after the other.

    make bench-packing DEVICE=cuda
    make bench-packing IMAGES=128 EPOCHS=1 PACKS=2   to try it on a CPU

The trials differ in their seeds only. Two ways to run k of them at once:

    processes   k processes share the device, each trains one trial with `Training`
    stacked     one process trains k networks as one, with `torch.func` over stacked
                weights; a loop by hand, compared with the same loop for one network

For each way: how much faster than one after the other, the peak of memory on a GPU,
and whether each trial has the same bits as alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from machine import machine_text
from torch import Tensor
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from ablate import space
from ablate.families import resolve
from ablate.models import build
from ablate.records import Trial
from ablate.training import Training

SPACE = """
question: How many trials fit on one device?
backbone: {{family: vit, patch_size: 4, width: 192, depth: 6, heads: 3}}
factors: {{layout: [serial, parallel]}}
data: {images}
recipe:
  epochs: {epochs}
  batch_size: {batch}
  warmup_epochs: 0
  precision: {precision}
"""


def trial_of(given: argparse.Namespace, folder: Path, seed: int) -> Trial:
    text = SPACE.format(
        images=folder / "images.npz",
        epochs=given.epochs,
        batch=given.batch,
        precision=given.precision,
    )
    declared = space.load(text, "packing.yaml")
    network = resolve(declared.network.backbone, 32, 3, 10, declared.factors.fixed)
    return Trial(network, declared.recipe, declared.data, seed)


def write_images(file: Path, number: int) -> None:
    drawn = np.random.default_rng(0)
    np.savez(
        file,
        x_train=drawn.integers(0, 256, (number, 32, 32, 3), dtype=np.uint8),
        y_train=np.arange(number) % 10,
        x_test=drawn.integers(0, 256, (100, 32, 32, 3), dtype=np.uint8),
        y_test=np.arange(100) % 10,
    )


def train(given: argparse.Namespace, folder: Path, seed: int) -> float:
    """Trains one trial. Returns its last training loss."""
    with tempfile.TemporaryDirectory() as checkpoints:
        trial = trial_of(given, folder, seed)
        training = Training(trial, checkpoints, device=given.device)
        while not training.finished:
            training.epoch()
        training.close()
    return training.epochs[-1].metrics["train_loss"]


class Workers:
    """Processes that have imported everything and used the device once."""

    def __init__(self, given: argparse.Namespace, folder: Path, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes = []
        for _ in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(given, folder, theirs))
            process.start()
            self._pipes.append((ours, process))
        for pipe, _ in self._pipes:
            pipe.recv()

    def train(self, seeds: Sequence[int]) -> tuple[float, list[float]]:
        """Seconds for one trial in each process, and their losses."""
        start = time.perf_counter()
        for (pipe, _), seed in zip(self._pipes, seeds, strict=True):
            pipe.send(seed)
        losses = [pipe.recv() for pipe, _ in self._pipes]
        return time.perf_counter() - start, losses

    def close(self) -> None:
        for pipe, process in self._pipes:
            pipe.send(None)
            process.join()


def serve(given: argparse.Namespace, folder: Path, pipe: object) -> None:
    torch.set_num_threads(1)
    torch.zeros(1, device=given.device)
    pipe.send(None)
    while (seed := pipe.recv()) is not None:
        pipe.send(train(given, folder, seed))


class Stack:
    """A loop by hand over networks with different seeds, as one computation."""

    def __init__(
        self, given: argparse.Namespace, folder: Path, seeds: Sequence[int]
    ) -> None:
        trials = [trial_of(given, folder, seed) for seed in seeds]
        networks = []
        for trial in trials:
            torch.manual_seed(trial.seed)
            networks.append(build(trial.architecture).train().to(given.device))
        self._base = networks[0]
        self._weights, self._buffers = stack_module_state(networks)
        self._weights = {
            name: weight.detach().requires_grad_()
            for name, weight in self._weights.items()
        }
        self._optimizer = torch.optim.AdamW(self._weights.values(), lr=1e-3)
        self._type = torch.device(given.device).type
        self._dtype = getattr(torch, given.precision)
        with np.load(folder / "images.npz") as archive:
            images = torch.from_numpy(archive["x_train"]).permute(0, 3, 1, 2)
            self._labels = torch.from_numpy(archive["y_train"]).to(given.device)
        self._images = (images.float() / 255).to(given.device)
        self._batch, self._epochs = given.batch, given.epochs

    def _loss(
        self,
        weights: dict[str, Tensor],
        buffers: dict[str, Tensor],
        images: Tensor,
        labels: Tensor,
    ) -> Tensor:
        logits = functional_call(self._base, (weights, buffers), (images,))
        return F.cross_entropy(logits.float(), labels)

    def train(self) -> tuple[float, Tensor]:
        """Seconds of all epochs, and the last loss of each network."""
        _wait(self._type)
        start = time.perf_counter()
        gradients = vmap(
            grad_and_value(self._loss),
            in_dims=(0, 0, None, None),
            randomness="different",
        )
        losses = torch.zeros(0)
        for _ in range(self._epochs):
            for first in range(0, len(self._images), self._batch):
                batch = slice(first, first + self._batch)
                with torch.autocast(
                    self._type, self._dtype, enabled=self._dtype != torch.float32
                ):
                    grads, losses = gradients(
                        self._weights,
                        self._buffers,
                        self._images[batch],
                        self._labels[batch],
                    )
                for name, weight in self._weights.items():
                    weight.grad = grads[name]
                self._optimizer.step()
        _wait(self._type)
        return time.perf_counter() - start, losses.detach().cpu()


def _wait(kind: str) -> None:
    if kind == "cuda":
        torch.cuda.synchronize()


def peak(device: str) -> str:
    """The memory of a GPU in use, of all processes."""
    if device == "cpu":
        return ""
    free, total = torch.cuda.mem_get_info()
    return f"{(total - free) / 2**30:.1f} GB"


def processes(given: argparse.Namespace, folder: Path, number: int) -> None:
    """Prints k processes at once against one process that trains k trials."""
    seeds = list(range(number))
    workers = Workers(given, folder, number)
    together, losses = workers.train(seeds)
    memory = peak(given.device)
    workers.close()
    single = Workers(given, folder, 1)
    alone = [single.train([seed]) for seed in seeds]
    single.close()
    sequential = sum(seconds for seconds, _ in alone)
    same = losses == [loss for _, (loss,) in alone]
    show("processes", number, sequential, together, memory, same)


def stacked(given: argparse.Namespace, folder: Path, number: int) -> None:
    """Prints k stacked networks against k times one."""
    seeds = list(range(number))
    together, losses = Stack(given, folder, seeds).train()
    memory = peak(given.device)
    alone = [Stack(given, folder, [seed]).train() for seed in seeds]
    sequential = sum(seconds for seconds, _ in alone)
    same = torch.equal(losses, torch.cat([loss for _, loss in alone]))
    show("stacked", number, sequential, together, memory, same)


def show(
    way: str, number: int, sequential: float, together: float, memory: str, same: bool
) -> None:
    per_hour = 3600 * number / together
    print(
        f"| {way} | {number} | {per_hour:.0f} | x {sequential / together:.2f} | {memory} |"
        f" {'yes' if same else 'no'} |",
        flush=True,
    )


def main(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder / "images.npz", given.images)
        print(
            "| way | at once | trials per hour | against one after the other |", end=""
        )
        print(" memory | same bits |\n|---|---|---|---|---|---|")
        for number in given.packs:
            processes(given, folder, number)
            stacked(given, folder, number)
    print(
        f"\n{given.images} images of 32 x 32, {given.epochs} epochs, batches of"
        f" {given.batch}, {given.precision}, on {given.device}; {machine_text()}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--packs", type=int, nargs="*", default=[2, 4, 8, 16])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", default="bfloat16")
    sys.exit(main(parser.parse_args()))
