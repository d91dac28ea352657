"""How long verbs take that read or plan, from the command to its last line.

    make bench-verbs

Each verb runs in a process of its own, in rounds that alternate, on the quickstart and on
a study of 416 rows with made-up results. The first time, the cache folder is empty;
`again` is the median of the later rounds. The ratio is to a process that only loads the
libraries that a reading verb needs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import machine_text

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.scheduling.options import Options

# 128 cells of a tiny network; and 416 rows, most of which differ in training only.
TINY = """
question: Which parts earn their cost?
backbone: {family: vit, patch_size: 4, depth: 2, heads: 2, mlp_ratio: 2}
design: grid
seeds: 3
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 2, batch_size: 50, warmup_epochs: 0}
"""
GRID = f"""{TINY}
fixed: {{size.width: 32}}
factors:
  shortcuts.count: [0, 1, 2, 3]
  ffn.kernel: [none, 3]
  ffn.agelu: [0, 2]
  value: [none, silu]
  layout: [serial, parallel]
  drop.path: [0.0, 0.1]
"""
ROWS = f"""{TINY}
factors:
  size.width: [8, 16]
  shortcuts.count: [0, 1, 2, 3]
  ffn.kernel: [none, 3]
  recipe.lr: [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 7e-3, 8e-3, 9e-3, 1e-2, 2e-2, 3e-2,
    4e-2]
  recipe.weight_decay: [0.01, 0.03]
"""
SPACE = Path(__file__).parents[1] / "search_spaces" / "quickstart.yaml"
LIBRARIES = [sys.executable, "-c", "import sqlalchemy, pydantic, rich.table, typer"]
VERBS = (
    "status",
    "status quickstart",
    "query SELECT|1",
    "table quickstart",
    "effects quickstart",
    "effects quickstart --of factors",
    "pareto quickstart",
    "review quickstart",
    "report quickstart",
    "report rows",
    "plan space.yaml",
    "plan grid.yaml",
    "cost space.yaml",
    "cost space.yaml --runs elsewhere",
)


def seconds(command: list[str], folder: Path) -> float:
    """Wall seconds of a command; a review may object with exit code 1."""
    environment = {**os.environ, "ABLATE_CACHE": str(folder / "cache")}
    start = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, check=False
    )
    took = time.perf_counter() - start
    if done.returncode not in (0, 1) or b"Traceback" in done.stderr:
        raise SystemExit(done.stderr.decode())
    return took


def words_of(verb: str) -> list[str]:
    words = [word.replace("|", " ") for word in verb.split()]
    return [sys.executable, "-m", "ablate", *words]


def main(rounds: int) -> None:
    """Measures all verbs and prints a table in Markdown."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "space.yaml").write_text(SPACE.read_text())
        declared = space.read(SPACE)
        options = Options(runs=folder / "runs")
        pipeline.run(declared, str(SPACE), options, executor=SimulatedExecutor())
        (folder / "grid.yaml").write_text(GRID)
        rows = space.load(ROWS, "rows.yaml")
        pipeline.run(rows, "rows.yaml", options, executor=SimulatedExecutor())
        # Compiles what is not compiled yet.
        seconds(LIBRARIES, folder)
        bare: list[float] = []
        took: dict[str, list[float]] = {verb: [] for verb in VERBS}
        for _ in range(1 + rounds):
            bare.append(seconds(LIBRARIES, folder))
            for verb in VERBS:
                took[verb].append(seconds(words_of(verb), folder))
    base = statistics.median(bare)
    print(f"libraries alone: {base:.2f} s\n")
    print("| verb | first, s | again, s | ratio |")
    print("|---|---|---|---|")
    for verb, times in took.items():
        first, *later = times
        again = statistics.median(later)
        shown = verb.replace("|", " ")
        print(f"| `{shown}` | {first:.2f} | {again:.2f} | {again / base:.1f} |")
    print(f"\n{rounds} rounds; {machine_text()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    main(parser.parse_args().rounds)
