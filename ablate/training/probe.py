"""Measures how long training takes, from a few steps on made-up images.

This gives the estimate of a plan before anything is trained.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate import heads
from ablate.models import build
from ablate.records import Architecture

# If a step takes this many seconds, a larger batch would not improve the estimate.
LONG_ENOUGH = 0.2


def seconds_per_image(
    architecture: Architecture, batch_size: int, *, threads: int = 1
) -> float:
    """Returns the seconds of a training step on the CPU per image.

    The batch doubles up to `batch_size` or until a step is long enough. Small networks
    spend their time on overhead per step, large ones on the images.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            model = build(architecture).train()
            step_seconds(model, architecture, 2)
            images = 2
            while (
                taken := min(
                    step_seconds(model, architecture, images) for _ in range(2)
                )
            ) < LONG_ENOUGH and images < batch_size:
                images = min(2 * images, batch_size)
    finally:
        torch.set_num_threads(before)
    return taken / images


def step_seconds(model: nn.Module, architecture: Architecture, images: int) -> float:
    """Returns the seconds of one forward and backward pass."""
    inputs = torch.randn(images, *architecture.input_shape)
    start = time.perf_counter()
    loss_of(model, architecture, inputs).backward()
    return time.perf_counter() - start


def loss_of(model: nn.Module, architecture: Architecture, inputs: Tensor) -> Tensor:
    """Returns a loss of a network on made-up images, whatever its head is."""
    if not architecture.head:
        classes = torch.zeros(len(inputs), dtype=torch.int64, device=inputs.device)
        return F.cross_entropy(model(inputs), classes)
    head = heads.find(architecture.head)
    if head.loss is not None:
        return head.loss(model, inputs)
    return torch.stack(
        [tensor.float().mean() for tensor in _tensors(model(inputs))]
    ).sum()


def _tensors(output: Any) -> Iterator[Tensor]:
    """Yields the tensors in what a head returns."""
    if isinstance(output, Tensor):
        yield output
        return
    for item in output:
        yield from _tensors(item)
