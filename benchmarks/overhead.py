"""What the Ray path costs a trial: a study of short trials against the same training in
bare processes.

    make bench-overhead
    make bench-overhead SEEDS=36

Per-trial overhead = (wall seconds of `ablate run` - wall seconds of the bare processes)
* slots / trials. Both include every start-up, import and shutdown; both train the same
trials to the same last bit. Rounds alternate, and the median is printed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
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


def study(folder: Path) -> float:
    """Wall seconds of the study through Ray."""
    start = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "ablate",
        "run",
        "space.yaml",
        "--cpus",
        str(SLOTS),
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
    """Alternates both and prints each round and the medians."""
    trials = len(LEVELS) * seeds
    text = SPACE.format(levels=", ".join(LEVELS), seeds=seeds)
    pairs = []
    for number in range(rounds):
        with (
            tempfile.TemporaryDirectory() as one,
            tempfile.TemporaryDirectory() as other,
        ):
            for folder in (one, other):
                Path(folder, "space.yaml").write_text(text)
            pairs.append((study(Path(one)), bare(Path(other))))
        print(
            f"round {number + 1}: ray {pairs[-1][0]:.1f} s, bare {pairs[-1][1]:.1f} s",
            flush=True,
        )
    overheads = [(ray - bare_) * SLOTS / trials for ray, bare_ in pairs]
    ratios = [ray / bare_ for ray, bare_ in pairs]
    ratio = statistics.median(ratios)
    median, least, most = statistics.median(overheads), min(overheads), max(overheads)
    print(f"{trials} trials on {SLOTS} slots, median of {rounds} rounds:")
    print(
        f"each trial occupies its slot {median:.2f} s longer (min {least:.2f}, max"
        f" {most:.2f}); ray / bare = {ratio:.2f}"
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
