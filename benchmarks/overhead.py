"""What an executor costs a trial: a study of short trials, through Ray and through the
local executor, against the same training in bare processes.

    make bench-overhead
    make bench-overhead SEEDS=36

Per-trial overhead = (wall seconds of `ablate run` - wall seconds of the bare processes)
* slots / trials. All include every start-up, import and shutdown; all train the same
trials to the same last bit. Each round begins with another one, and the median over
rounds is printed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from machine import machine_text

SLOTS = 2
LEVELS = ("serial", "parallel")
SPACE = """
question: What does a trial cost besides its training?
backbone: {{family: vit, patch_size: 2, width: 32, depth: 3, heads: 4, mlp_ratio: 2}}
factors:
  layout: [{levels}]
design: grid
seeds: {seeds}
data: digits
recipe: {{epochs: 6, batch_size: 64, lr: 4e-3, warmup_epochs: 0}}
"""

BARE = """
import sys, tempfile
from pathlib import Path
from ablate import space
from ablate.families import resolve
from ablate.records import Trial
from ablate.training import Training

declared = space.read(Path(sys.argv[1]))
mine, slots = int(sys.argv[2]), int(sys.argv[3])
layouts = declared.factors.levels["layout"]
cells = [{**declared.factors.fixed, "layout": layout} for layout in layouts]
architectures = [resolve(declared.network.backbone, 8, 1, 10, cell) for cell in cells]
trials = [
    Trial(found, declared.recipe, declared.data, seed)
    for seed in declared.seeds.numbers
    for found in architectures
]
for trial in trials[mine::slots]:
    training = Training(trial, Path(tempfile.mkdtemp()))
    while not training.finished:
        training.epoch()
    training.close()
"""


def study(folder: Path, executor: str) -> float:
    """Wall seconds of the study through an executor."""
    start = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "ablate",
        "run",
        "space.yaml",
        "--cpus",
        str(SLOTS),
        "--executor",
        executor,
        "--format",
        "json",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - start


def bare(folder: Path) -> float:
    """Wall seconds of the same trials, shared out over bare processes."""
    start = time.perf_counter()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", BARE, "space.yaml", str(mine), str(SLOTS)],
            cwd=folder,
        )
        for mine in range(SLOTS)
    ]
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"a bare process failed: {codes}")
    return time.perf_counter() - start


def main(rounds: int, seeds: int) -> None:
    """Runs all in turns, and prints each round and the medians."""
    trials = len(LEVELS) * seeds
    text = SPACE.format(levels=", ".join(LEVELS), seeds=seeds)
    ways: dict[str, Callable[[Path], float]] = {
        "bare": bare,
        "ray": lambda folder: study(folder, "ray"),
        "local": lambda folder: study(folder, "local"),
    }
    names = list(ways)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "space.yaml").write_text(text)
                taken[name].append(ways[name](Path(folder)))
        last = ", ".join(f"{name} {taken[name][-1]:.1f} s" for name in names)
        print(f"round {number + 1}: {last}", flush=True)
    print(f"{trials} trials on {SLOTS} slots, median of {rounds} rounds:")
    for name in names[1:]:
        pairs = list(zip(taken[name], taken["bare"], strict=True))
        ratio = statistics.median(seconds / alone for seconds, alone in pairs)
        longer = [(seconds - alone) * SLOTS / trials for seconds, alone in pairs]
        print(
            f"{name}: each trial occupies its slot {statistics.median(longer):.2f} s"
            f" longer (min {min(longer):.2f}, max {max(longer):.2f});"
            f" {name} / bare = {ratio:.2f}"
        )
    print(machine_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=12, help="seeds of each cell")
    given = parser.parse_args()
    main(given.rounds, given.seeds)
