"""Measures latency and throughput of a network on this machine."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from ablate.models import build
from ablate.records import Architecture


@dataclass(frozen=True)
class Timing:
    """Medians over repeated passes.

    `latency_ms` is for one image, `throughput` is in images per second with `batch`
    images.
    """

    latency_ms: float
    throughput: float
    batch: int
    device: str
    threads: int


def time_model(
    architecture: Architecture,
    *,
    batch: int = 32,
    repeats: int = 10,
    device: str = "cpu",
) -> Timing:
    """Times inference in float32, after two warm-up passes."""
    model = build(architecture).eval().to(device)

    def seconds(images: int) -> float:
        inputs = torch.zeros(
            images,
            *architecture.input_shape,
            device=device,
        )
        taken = []
        with torch.inference_mode():
            for _ in range(repeats + 2):
                start = time.perf_counter()
                model(inputs)
                if device != "cpu":
                    torch.cuda.synchronize()
                taken.append(time.perf_counter() - start)
        return statistics.median(taken[2:])

    return Timing(
        latency_ms=1000 * seconds(1),
        throughput=batch / seconds(batch),
        batch=batch,
        device=device,
        threads=torch.get_num_threads(),
    )
