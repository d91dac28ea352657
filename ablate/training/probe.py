"""How long training takes, from a few steps on made-up images: for the estimate of a plan before anything is trained."""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F

from ablate.models import build
from ablate.records import Architecture

IMAGES = 16
STEPS = 3


def seconds_per_image(architecture: Architecture, *, threads: int = 1) -> float:
    """Seconds of one thread-bound CPU training step an image, the fastest of a few."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            model = build(architecture).train()
            images = torch.randn(IMAGES, architecture.channels, architecture.image_size, architecture.image_size)
            labels = torch.zeros(IMAGES, dtype=torch.int64)
            taken = []
            for _ in range(STEPS):
                start = time.perf_counter()
                F.cross_entropy(model(images), labels).backward()
                taken.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(before)
    return min(taken) / IMAGES
