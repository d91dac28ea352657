"""What strategies and schedulers are worth, on a made-up space with a known optimum:
`make bench-search`.

Everything is real but the training: spaces are read, proposed, stored; the simulated
executor gives each cell the value of a paraboloid over the levels. Each strategy is
held against `random` (which never repeats a cell) with as many cells, on 30 pairs of
seeds: the mean difference of the best value found, with its 95 % interval (Student's
t). ASHA is held against the grid.

Writes docs/results/search.md with --write.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
from scipy import stats

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Recipe, StudyResults, Trial
from ablate.results.study import Study

REPEATS = 30
LEVELS: dict[str, list[float]] = {
    "lr": [round(1e-4 * 1.6**i, 8) for i in range(12)],
    "weight_decay": [round(0.01 * i, 3) for i in range(12)],
    "label_smoothing": [round(0.03 * i, 3) for i in range(8)],
    "clip_grad": [round(0.5 * i, 2) for i in range(8)],
    "random_erasing": [round(0.05 * i, 3) for i in range(8)],
}
OPTIMUM = {
    "lr": 8,
    "weight_decay": 3,
    "label_smoothing": 5,
    "clip_grad": 2,
    "random_erasing": 6,
}
BEST = 90.0
CELLS = {
    "quasi-random": 64,
    "tpe": 60,
    "gp": 40,
    "nsga2": 120,
    "nsga3": 120,
    "cmaes": 100,
}
DOCUMENT = """
question: Where is the optimum?
backbone: {{family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}}
factors:
{factors}
{cells}
seeds: 1
data: {{name: digits, train_images: 200, test_images: 50}}
recipe: {{epochs: {epochs}, batch_size: 50, warmup_epochs: 0}}
"""


def document(cells: str, names: list[str], epochs: int = 1) -> str:
    factors = "\n".join(f"  recipe.{name}: {LEVELS[name]}" for name in names)
    return DOCUMENT.format(factors=factors, cells=cells, epochs=epochs)


def value(recipe: Recipe, optimum: dict[str, int]) -> float:
    """90 at the optimum, less the sum of squared distances in levels."""
    return BEST - sum(
        (LEVELS[name].index(getattr(recipe, name)) - at) ** 2
        for name, at in optimum.items()
    )


def curve(trial: Trial, number: int) -> Epoch:
    """A curve that rises towards the cell's value as 1 - exp(-3 n / epochs)."""
    top1 = value(
        trial.recipe, {name: at for name, at in OPTIMUM.items() if name in VARIED}
    )
    top1 *= (1 - math.exp(-3 * number / trial.recipe.epochs)) / (1 - math.exp(-3))
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": 99.0},
        lr=trial.recipe.lr,
        seconds=1.0,
    )


VARIED = list(LEVELS)


def searched(
    text: str, curve: Callable[[Trial, int], Epoch] = curve, cpus: int = 2
) -> tuple[StudyResults, int]:
    """The results of a study, and how many epochs were trained."""
    with tempfile.TemporaryDirectory() as folder:
        options = Options(runs=Path(folder), cpus=cpus)
        pipeline.run(
            space.load(text, "search.yaml"),
            "search.yaml",
            options,
            executor=SimulatedExecutor(curve),
        )
        study = Study("search", options.url)
        _, rows = study.wide()
        return study.results(), sum(int(row[-3]) for row in rows)


def best(results: StudyResults) -> float:
    return max(found for cell in results.cells for found in cell.values.values())


def strategy(name: str, cells: int, seed: int) -> str:
    return f"strategy: {{name: {name}, cells: {cells}, seed: {seed}, parallel: 2}}"


def interval(differences: list[float]) -> tuple[float, float, float]:
    """The mean, and its 95 % interval."""
    mean, spread = (
        float(np.mean(differences)),
        float(np.std(differences, ddof=1)) / math.sqrt(len(differences)),
    )
    reach = float(stats.t.ppf(0.975, len(differences) - 1)) * spread
    return mean, mean - reach, mean + reach


def against_random(name: str, repeats: int) -> tuple[list[float], list[float]]:
    """Best found by the strategy and by random, over pairs of seeds."""
    mine, others = list[float](), list[float]()
    for seed in range(repeats):
        found = [
            searched(document(strategy(which, CELLS[name], seed), VARIED))[0]
            for which in (name, "random")
        ]
        # Where neither looks at results, one search is judged at every place where the
        # optimum could be.
        judge = anywhere if name == "quasi-random" else best
        mine.append(judge(found[0]))
        others.append(judge(found[1]))
    return mine, others


def row(name: str, repeats: int) -> str:
    mine, others = against_random(name, repeats)
    mean, low, high = interval([a - b for a, b in zip(mine, others, strict=True)])
    values = f"{float(np.mean(mine)):.2f} | {float(np.mean(others)):.2f}"
    return (
        f"| {name} | {CELLS[name]} | {values} | {mean:+.2f} ({low:+.2f} to"
        f" {high:+.2f}) |"
    )


def anywhere(results: StudyResults) -> float:
    """The mean over all combinations of what would be the best value found if the
    optimum were there.
    """
    tried = np.array(
        [
            [LEVELS[n].index(float(cell.levels[f"recipe.{n}"])) for n in VARIED]
            for cell in results.cells
            if cell.values
        ]
    )
    places = np.stack(
        np.meshgrid(*(np.arange(len(LEVELS[name])) for name in VARIED), indexing="ij"),
        -1,
    ).reshape(-1, len(VARIED))
    nearest = np.full(len(places), np.inf)
    for cell in tried:
        nearest = np.minimum(nearest, ((places - cell) ** 2).sum(1))
    return BEST - float(nearest.mean())


def brute_force(repeats: int) -> str:
    names = ["label_smoothing", "clip_grad"]
    optimum = {name: OPTIMUM[name] for name in names}

    def found(cells: str) -> int:
        def small(trial: Trial, number: int) -> Epoch:
            return Epoch(
                number=number,
                metrics={
                    "train_loss": 1.0,
                    "loss": 1.0,
                    "top1": value(trial.recipe, optimum),
                    "top5": 99.0,
                },
                lr=0.1,
                seconds=1.0,
            )

        return int(best(searched(document(cells, names), small)[0]) == BEST)

    whole = sum(
        found(f"strategy: {{name: brute-force, seed: {seed}}}")
        for seed in range(repeats)
    )
    half = sum(found(strategy("random", 32, seed)) for seed in range(repeats))
    return (
        "Brute force draws cells at random, without repetition, until no cell is left. On 8 x"
        f" 8 levels, brute force with all 64 cells found the optimum in {whole} of"
        f" {repeats} repeats, and random search with 32 cells in {half}. Random search"
        " does not repeat cells either, so with the same number of cells the two are"
        " equivalent."
    )


def asha() -> str:
    """ASHA on a grid of 144 cells and 27 epochs, against the whole grid; sixteen slots."""
    names = ["lr", "weight_decay"]

    def rising(trial: Trial, number: int) -> Epoch:
        top1 = value(trial.recipe, {name: OPTIMUM[name] for name in names}) * (
            1 - math.exp(-6 * number / trial.recipe.epochs)
        )
        return Epoch(
            number=number,
            metrics={"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": 99.0},
            lr=0.1,
            seconds=1.0,
        )

    lines = []
    grid, all_epochs = searched(document("design: grid", names, 27), rising, cpus=16)
    for rule in (
        "{name: asha, reduction: 3}",
        "{name: hyperband, reduction: 3}",
        "{name: median, grace_epochs: 2}",
    ):
        stopped, epochs = searched(
            document(f"design: grid\nscheduler: {rule}", names, 27), rising, cpus=16
        )
        reached = (
            "finds the best cell of the grid"
            if best(stopped) == best(grid)
            else f"finds {best(stopped):.2f}, the best of the grid is {best(grid):.2f}"
        )
        lines.append(
            f"- `scheduler: {rule}`: {reached}, with {100 * epochs / all_epochs:.0f} %"
            f" of the grid's {all_epochs:,} epochs."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--strategy", action="append", choices=list(CELLS))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    start = time.monotonic()
    lines = [
        "| strategy | cells | best found | random | difference (95 % interval) |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in arguments.strategy or CELLS:
        lines.append(row(name, arguments.repeats))
        print(lines[-1], flush=True)
    text = [
        "# What strategies and schedulers are worth",
        "",
        (
            f"Made by `make bench-search WRITE=1` on {date.today().isoformat()},"
            f" {arguments.repeats} repeats. Nothing was trained: a cell's"
        ),
        (
            f"value is {BEST:.0f} minus the squared distance (in levels) of the cell"
            " to the optimum of a space of"
            f" {' x '.join(str(len(LEVELS[name])) for name in VARIED)} combinations."
        ),
        "",
        *lines,
        "",
        (
            "`best found` is the best value after this number of cells, averaged over"
            " repeats. `random` is the same for random search with as many cells."
            " Quasi-random search trains the same cells wherever the optimum is. Each"
            " quasi-random search can therefore be evaluated for all positions of the"
            " optimum, and the line `quasi-random` has the mean over these positions. In"
            " the other lines, the optimum has one position. Compare values within a line only."
        ),
        "",
        brute_force(arguments.repeats),
        "",
        "A grid of 144 cells and 27 epochs, sixteen at a time:",
        "",
        asha(),
    ]
    print("\n".join(text[-6:]))
    print(f"{time.monotonic() - start:.0f} s")
    if arguments.write:
        Path("docs/results/search.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
