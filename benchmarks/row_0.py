"""What seeds of row 0 are worth: `make bench-row-0`.

One of seven rows differs from row 0. Designs with about 24, 36 and 60 trials are compared
by how often they find the difference, and with two tests that `ablate` does not use:
Dunnett's, which takes the noise of all cells to be equal, and one that knows the noise.
Differences are in standard deviations of a training, after the mean of each seed.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace

import numpy as np
from machine import machine_text
from made_up import MARGIN, NOISE, NOISES, SAID, Vector, drawn, made, names

from ablate.records import StudyResults
from ablate.report.effects import effects
from ablate.report.verdicts import Verdict

ROWS = 7
# That of the tests that `ablate` does not use.
LEVEL = 0.04
# Seeds of a row, and of row 0.
DESIGNS = ((3, 3), (3, 6), (2, 10), (4, 8), (5, 5), (4, 12), (7, 7), (7, 11), (6, 18))
# The seed's share of the variance of a training.
SHARES = (0.0, 0.5, 0.8)
SIZES = (2, 3)


def study(values: Vector, seeds: int) -> StudyResults:
    """A study whose row 0 has all columns, and whose rows have the first ones."""
    results = made(values, names(len(values)))
    row_0, *rows = results.cells
    extra = values.shape[1] > seeds
    return replace(
        results,
        cells=(row_0, *(row.with_seeds(range(seeds)) for row in rows)),
        baseline_seeds=values.shape[1] if extra else None,
    )


def seed_sd(share: float) -> float:
    """The standard deviation of what a seed does to all cells alike."""
    return NOISE * math.sqrt(share / (1 - share))


def power(
    count: int, seeds: int, row_0: int, share: float, size: float, noise: str
) -> float:
    """The share of studies that find the difference of one row."""
    generator = np.random.default_rng(5)
    means = [0.0, 0.0, size * NOISE, *[0.0] * (ROWS - 2)]
    hits = 0
    for _ in range(count):
        values = drawn(generator, means, row_0, NOISES[noise], seed_sd(share))
        by_row = effects(study(values, seeds), MARGIN)
        hits += by_row[1].verdict is Verdict.HELPS
    return hits / count


def false_verdicts(
    count: int, cells: int, seeds: int, row_0: int, share: float, noise: str
) -> float:
    """The share of studies without effects that have a verdict of a difference."""
    generator = np.random.default_rng(cells * 1000 + seeds)
    wrong = 0
    for _ in range(count):
        values = drawn(generator, [0.0] * cells, row_0, NOISES[noise], seed_sd(share))
        by_row = effects(study(values, seeds), MARGIN)
        wrong += any(effect.verdict in SAID for effect in by_row)
    return wrong / count


def other_tests(count: int, seeds: int, row_0: int, size: float) -> tuple[float, float]:
    """How often Dunnett's test and a test that knows the noise find the difference.

    Seeds shift nothing, and the noise is equal. Their limits are simulated.
    """
    generator = np.random.default_rng(6)
    null = generator.standard_normal((count, ROWS + 1, row_0))
    differing = generator.standard_normal((count, ROWS + 1, row_0))
    differing[:, 2] += size
    shares = []
    for known in (False, True):
        limit = np.quantile(_scores(null, seeds, known=known).max(axis=1), 1 - LEVEL)
        shares.append(
            float((_scores(differing, seeds, known=known)[:, 1] > limit).mean())
        )
    return shares[0], shares[1]


def _scores(values: Vector, seeds: int, *, known: bool) -> Vector:
    row_0, rows = values[:, 0], values[:, 1:, :seeds]
    difference = rows.mean(axis=2) - row_0.mean(axis=1, keepdims=True)
    variance = np.ones(len(values))
    if not known:
        squares = row_0.var(axis=1) * row_0.shape[1]
        squares += (rows.var(axis=2) * seeds).sum(axis=1)
        variance = squares / (row_0.shape[1] - 1 + ROWS * (seeds - 1))
    error = np.sqrt(variance * (1 / seeds + 1 / row_0.shape[1]))
    scores: Vector = np.abs(difference) / error[:, None]
    return scores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000, help="studies")
    count = parser.parse_args().count
    print(
        "| trials | seeds of a row, of row 0 | share 0 | share 0.5 | share 0.8 |"
        " row 0 has 5 times the variance | Dunnett | known noise |"
    )
    print("|---:| --- |" + " ---: |" * 6)
    for seeds, row_0 in DESIGNS:
        cells = []
        for share in SHARES:
            sizes = (
                power(count, seeds, row_0, share, size, "equal noise") for size in SIZES
            )
            cells.append(" / ".join(f"{100 * size:.0f}" for size in sizes))
        noisy = (
            power(count, seeds, row_0, 0.5, size, "row 0 with 5 times the variance")
            for size in SIZES
        )
        cells.append(" / ".join(f"{100 * size:.0f}" for size in noisy))
        others = [other_tests(20_000, seeds, row_0, size) for size in SIZES]
        for number in range(2):
            cells.append(" / ".join(f"{100 * both[number]:.0f}" for both in others))
        trials = ROWS * seeds + row_0
        print(f"| {trials} | {seeds}, {row_0} | {' | '.join(cells)} |", flush=True)
    print(
        f"\nCommand: `make bench-row-0`, {count:,} studies per entry, {machine_text()}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
