"""What the noise of earlier studies would add to a comparison: `make bench-prior`.

One row is compared with row 0, paired by seed. Earlier studies are assumed to tell the
noise exactly: the most that they can. Three rules use it:

- no earlier noise: Student's paired t, as `ablate` does;
- weight w: the variance is the larger one of s² and w times the known plus 1 - w times
  s², where s² is the row's own;
- unless noisier: a row differs in two cases: its paired t is large; or its s² is at
  most the known variance and its difference is more than so many known standard errors.

The threshold of t is chosen so that each rule has the level of a declared study when
the row's noise is as in earlier studies. Prints how often a difference of three
standard deviations of a single training is found then, and how often a row without a
difference is said to differ when its variance is as before, or 5 or 25 times as large.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from machine import machine_text
from scipy import optimize, stats

from ablate.records import LEVEL

Array = np.ndarray[Any, Any]
# Says which studies differ, from their standardised mean differences and variances.
Rule = Callable[[Array, Array], Array]
ALLOWED = LEVEL
# The difference in units of the noise of a paired difference.
SIZE = 3.0 / np.sqrt(2)


def drawn(count: int, seeds: int, variance: float, size: float) -> tuple[Array, Array]:
    """Returns mean differences over their known standard error, and variances.

    Args:
        variance: that of the row over the known one.
        size: the true difference.
    """
    generator = np.random.default_rng(1)
    noise = generator.standard_normal((count, seeds)) * np.sqrt(variance)
    means = (noise.mean(axis=1) + size) * np.sqrt(seeds)
    return means, noise.var(axis=1, ddof=1)


def weighted(count: int, seeds: int, weight: float) -> Rule:
    """Returns the rule that mixes the known variance with the row's own."""

    def scores(means: Array, variances: Array) -> Array:
        mixed = np.maximum(variances, weight + (1 - weight) * variances)
        return np.abs(means) / np.sqrt(mixed)

    if weight == 0:
        limit = float(stats.t.ppf(1 - ALLOWED / 2, seeds - 1))
    else:
        limit = float(np.quantile(scores(*drawn(count, seeds, 1, 0)), 1 - ALLOWED))
    return lambda means, variances: scores(means, variances) > limit


def unless_noisier(count: int, seeds: int, errors: float) -> Rule:
    """Returns the rule that uses the known variance if the row's own is not larger."""

    def differs(means: Array, variances: Array, limit: float) -> Array:
        alone = np.abs(means) > limit * np.sqrt(variances)
        return alone | ((variances <= 1) & (np.abs(means) > errors))

    means, variances = drawn(count, seeds, 1, 0)

    def too_often(limit: float) -> float:
        return float(differs(means, variances, limit).mean()) - ALLOWED

    limit = optimize.brentq(too_often, 1.0, 100.0)
    return lambda means, variances: differs(means, variances, limit)


def line(name: str, texts: list[str]) -> str:
    return f"| {name} | {' | '.join(texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=400_000, help="studies")
    count = parser.parse_args().count
    heads = ["found", "false: as before", "5 times the variance", "25 times"]
    print(line("seeds, rule", heads))
    print(line("---", ["---:" for _ in heads]))
    for seeds in (3, 5):
        rules = {
            "no earlier noise": weighted(count, seeds, 0),
            "weight 0.1": weighted(count, seeds, 0.1),
            "weight 0.5": weighted(count, seeds, 0.5),
            "unless noisier, 2.5 errors": unless_noisier(count, seeds, 2.5),
            "unless noisier, 3 errors": unless_noisier(count, seeds, 3.0),
        }
        for name, rule in rules.items():
            shares = [rule(*drawn(count, seeds, 1, SIZE)).mean()]
            shares += [rule(*drawn(count, seeds, v, 0)).mean() for v in (1, 5, 25)]
            texts = [f"{100 * share:.1f} %" for share in shares]
            print(line(f"{seeds}, {name}", texts), flush=True)
    print(f"\n{count:,} studies per entry, {machine_text()}")


if __name__ == "__main__":
    main()
