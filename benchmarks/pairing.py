"""What pairing by seed gains and costs: `make bench-pairing`.

One of the rows differs from row 0 by three standard deviations of a single training.
Prints how often it is found with pairing (seeds as blocks) and without (independent
cells), by the seed's share of the variance. Both use the variance pooled over all
cells, and Bonferroni's level for the number of rows.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from machine import machine_text
from scipy import stats

from ablate.report.verdicts import LEVEL

Array = np.ndarray[Any, Any]
SHARES = (0.0, 0.1, 0.5, 0.8)
SETTINGS = ((1, 3), (1, 5), (7, 3), (7, 5))
SIZE = 3.0


def studies(count: int, rows: int, seeds: int, share: float) -> Array:
    """Returns values of shape (studies, cells, seeds); row 1 has an effect."""
    generator = np.random.default_rng(1)
    common = generator.standard_normal((count, 1, seeds)) * np.sqrt(share)
    noise = generator.standard_normal((count, rows + 1, seeds)) * np.sqrt(1 - share)
    values = common + noise
    values[:, 1] += SIZE
    return values


def power(values: Array, *, paired: bool) -> float:
    """Returns the share of studies in which the difference of row 1 is found."""
    _, cells, seeds = values.shape
    centred = values - values.mean(axis=2, keepdims=True)
    freedom = cells * (seeds - 1)
    if paired:
        centred = centred - centred.mean(axis=1, keepdims=True)
        freedom = (cells - 1) * (seeds - 1)
    variance = (centred**2).sum(axis=(1, 2)) / freedom
    means = values.mean(axis=2)
    score = (means[:, 1] - means[:, 0]) / np.sqrt(2 * variance / seeds)
    limit = stats.t.ppf(1 - LEVEL / 2 / (cells - 1), freedom)
    return float((np.abs(score) > limit).mean())


def line(name: str, texts: list[str]) -> str:
    return f"| {name} | {' | '.join(texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="studies")
    count = parser.parse_args().count
    print(line("rows, seeds", [f"share {share:g}" for share in SHARES]))
    print(line("---", ["---:" for _ in SHARES]))
    for rows, seeds in SETTINGS:
        texts = []
        for share in SHARES:
            values = studies(count, rows, seeds, share)
            with_pairs = 100 * power(values, paired=True)
            without = 100 * power(values, paired=False)
            texts.append(f"{with_pairs:.0f} / {without:.0f}")
        print(line(f"{rows}, {seeds}", texts), flush=True)
    print(f"\n{count:,} studies per cell, {machine_text()}")


if __name__ == "__main__":
    main()
