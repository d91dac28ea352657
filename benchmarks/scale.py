"""100,000 planned trials on the simulated executor: milliseconds a trial, memory, and
how soon a resume starts its first trial.

    make bench-scale
    make bench-scale TRIALS=1000000 SEEDS=10 STOP=1000

Two processes: the first plans, asks for and stores half of the trials, and is stopped;
the second resumes, timed from the start of its process to its first trial, and to its
end. Epochs are made up, so what is measured is the harness itself.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START = time.monotonic()
SPACE = """
question: Does the harness keep up?
backbone: {{family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}}
factors:
  shortcuts.count: [0, 1]
  recipe.lr: {lr}
  recipe.weight_decay: {decay}
seeds: {seeds}
data: {{name: digits, train_images: 200, test_images: 50}}
recipe: {{epochs: 1, batch_size: 50, warmup_epochs: 0}}
"""


def space_text(trials: int, seeds: int) -> str:
    """A grid of about `trials` / `seeds` cells, in two architectures."""
    side = int((trials / seeds / 2) ** 0.5)
    return SPACE.format(
        seeds=seeds,
        lr=[round(1e-4 * 1.05**i, 9) for i in range(side)],
        decay=[round(0.001 * i, 6) for i in range(side)],
    )


def drive(folder: Path, stop_after: int | None) -> dict[str, float]:
    """Runs or resumes the study in this process; what it took."""
    from ablate import pipeline, space
    from ablate.execution.simulated import SimulatedExecutor
    from ablate.pipeline import Hooks, Options
    from ablate.records import Ended, Event, Status

    ended, first = 0, 0.0

    def event(happened: Event) -> None:
        nonlocal ended, first
        first = first or time.monotonic()
        # A stop also ends the trials in progress; they are trained again later.
        if isinstance(happened, Ended) and happened.status == Status.COMPLETED:
            ended += 1

    hooks = Hooks(
        event=event, stop=lambda: stop_after is not None and ended >= stop_after
    )
    declared = space.read(folder / "scale.yaml")
    begun = time.monotonic()
    pipeline.run(
        declared,
        str(folder / "scale.yaml"),
        Options(runs=folder, cpus=16),
        hooks,
        SimulatedExecutor(),
    )
    return {
        "first_trial_s": first - START,
        "planned_s": first - begun,
        "trials": ended,
        "all_s": time.monotonic() - begun,
        "memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--child", metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--stop-after", type=int, help="trials to train in each process, if not half"
    )
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(drive(Path(arguments.child), arguments.stop_after)))
        return
    with tempfile.TemporaryDirectory() as name:
        text = space_text(arguments.trials, arguments.seeds)
        (Path(name) / "scale.yaml").write_text(text)
        command = [sys.executable, __file__, "--child", name]
        if arguments.stop_after:
            some = ["--stop-after", str(arguments.stop_after)]
            parts = (("from nothing", some), ("resumed", some))
        else:
            half = ["--stop-after", str(arguments.trials // 2)]
            parts = (
                ("half of them, from nothing", half),
                ("resumed, the other half", []),
            )
        for words, extra in parts:
            found = json.loads(
                subprocess.run(
                    [*command, *extra], check=True, capture_output=True, text=True
                ).stdout
            )
            each = 1000 * found["all_s"] / found["trials"]
            print(
                f"{words}: {found['trials']:.0f} trials, {each:.2f} ms a trial in all"
                f" (planning {found['planned_s']:.1f} s), first trial"
                f" {found['first_trial_s']:.1f} s after the start,"
                f" {found['memory_gb']:.2f} GB"
            )


if __name__ == "__main__":
    main()
