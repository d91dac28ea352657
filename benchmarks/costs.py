"""How long it takes to count the cost of a new architecture.

    make bench-costs

Each round counts the same architectures twice: as `ablate` does, and all modules of the
network with drawn weights, by the same rules. Both give the same numbers, or the
benchmark fails.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from machine import machine_text

from ablate.cost import count
from ablate.cost.count import JitModelAnalysis, handles
from ablate.families import resolve
from ablate.models import build
from ablate.records import Architecture, Level, Settings

BACKBONES = (
    "deit_small_patch16_224",
    "cait_xxs24_224",
    "swin_tiny_patch4_window7_224",
    "pvt_tiny",
    "poolformer_s12",
    "t2t_vit_14",
)
SETTINGS: tuple[dict[str, Level], ...] = (
    {},
    {"shortcuts.count": 1},
    {"shortcuts.count": 2, "layout": "parallel"},
)


def whole(architecture: Architecture) -> int:
    """FLOPs of an architecture, from a trace of all its modules."""
    model = build(architecture).eval()
    image = torch.zeros(1, *architecture.input_shape)
    analysis = JitModelAnalysis(model, (image,)).set_op_handle(**handles())
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    analysis.tracer_warnings("none")
    with torch.no_grad():
        counted = analysis.by_operator()
    return round(
        sum(n for key, n in counted.items() if key.startswith(("matrix/", "other/")))
    )


def compared(backbone: str, settings: Settings) -> tuple[float, float]:
    """Seconds of both ways for one architecture."""
    architecture = resolve(backbone, 224, 3, 1000, settings)
    start = time.perf_counter()
    cost = count(architecture)
    middle = time.perf_counter()
    flops = whole(architecture)
    end = time.perf_counter()
    if cost.flops != flops:
        raise SystemExit(f"{backbone} {settings}: {cost.flops} is not {flops}")
    return middle - start, end - middle


def main(rounds: int) -> None:
    """Compares all architectures and prints a table in Markdown."""
    torch.set_num_threads(1)
    print("| backbone | factors | ablate, s | all modules, s | ratio |")
    print("|---|---|---|---|---|")
    for backbone in BACKBONES:
        for settings in SETTINGS:
            compared(backbone, settings)
            pairs = [compared(backbone, settings) for _ in range(rounds)]
            ours, theirs = (
                statistics.median(each) for each in zip(*pairs, strict=True)
            )
            factors = ", ".join(f"{name} = {level}" for name, level in settings.items())
            ratio = statistics.median(other / own for own, other in pairs)
            print(
                f"| {backbone} | {factors or 'none'} | {ours:.3f} | {theirs:.3f} |"
                f" {ratio:.1f} |",
                flush=True,
            )
    print(f"\n{rounds} rounds, one thread; {machine_text()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    main(parser.parse_args().rounds)
