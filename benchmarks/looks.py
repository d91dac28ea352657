"""Rules that add seeds to one row, compared: `make bench-looks`.

A row is compared with row 0 by Student's paired t while seeds are added, up to twelve.
Each rule has the same level. The table has how often a rule finds a difference, and how
many seeds it uses. Differences are in standard deviations of a training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from machine import machine_text
from scipy import optimize, stats

from ablate.records import FIRST_LEVEL, Looks
from ablate.report.verdicts import level_of_look

LOOKS = Looks(first=3, most=12, step=3)
EVERY = tuple(range(2, LOOKS.most + 1))
SIZES = (0, 1, 2, 3)
# The variance of the effect, in variances of a difference, that an e-value is best for.
PRIORS = (0.5, 2.0, 8.0)
Vector = np.ndarray


@dataclass(frozen=True)
class Rule:
    """When a rule looks, and when it decides.

    Attributes:
        at: the numbers of seeds at which it looks.
        decides: whether a t value decides, from the look, the seeds and t.
    """

    name: str
    at: Sequence[int]
    decides: Callable[[int, int, Vector], Vector]


def t_values(differences: Vector, seeds: int) -> Vector:
    used = differences[:, :seeds]
    error = used.std(axis=1, ddof=1) / np.sqrt(seeds)
    values: Vector = np.abs(used.mean(axis=1)) / error
    return values


def by_levels(levels: Sequence[float]) -> Callable[[int, int, Vector], Vector]:
    """Decides when the p value of a look is below its level."""

    def decides(look: int, seeds: int, t: Vector) -> Vector:
        return 2 * stats.t.sf(t, seeds - 1) < levels[look]

    return decides


def spent(at: Sequence[int], shape: float, differences: Vector) -> list[float]:
    """Returns the levels of looks that together use the level exactly.

    They are proportional to a power of the share of the seeds: 0 is Pocock's rule, a
    large number that of O'Brien and Fleming.
    """
    p = np.array(
        [2 * stats.t.sf(t_values(differences, seeds), seeds - 1) for seeds in at]
    )
    weights = np.array([(seeds / at[-1]) ** shape for seeds in at])

    def beyond(scale: float) -> float:
        return float((p < scale * weights[:, None]).any(axis=0).mean()) - FIRST_LEVEL

    scale = optimize.brentq(beyond, FIRST_LEVEL / 100, FIRST_LEVEL * 2)
    return [float(scale * weight) for weight in weights]


def by_e_value(prior: float) -> Callable[[int, int, Vector], Vector]:
    """Decides when a Bayes factor of t is 1 / level or more.

    It may be looked at after every seed (Hendriksen, de Heide and Grünwald 2021). Its
    effect size is normal with this variance (Gönen and others 2005).
    """

    def decides(look: int, seeds: int, t: Vector) -> Vector:
        freedom, more = seeds - 1, 1 + seeds * prior
        ratio = (1 + t**2 / freedom) / (1 + t**2 / (freedom * more))
        return ratio ** (seeds / 2) / np.sqrt(more) >= 1 / FIRST_LEVEL

    return decides


def rules(null: Vector) -> list[Rule]:
    now = [level_of_look(LOOKS, look, FIRST_LEVEL) for look in range(LOOKS.number)]
    return [
        Rule("twelve seeds at once", (LOOKS.most,), by_levels([FIRST_LEVEL])),
        Rule("`until_decided`", LOOKS.at, by_levels(now)),
        Rule("Pocock", LOOKS.at, by_levels(spent(LOOKS.at, 0, null))),
        Rule("O'Brien and Fleming", LOOKS.at, by_levels(spent(LOOKS.at, 3, null))),
        *(
            Rule(f"e-value, variance {prior:g}", EVERY, by_e_value(prior))
            for prior in PRIORS
        ),
    ]


def measured(rule: Rule, differences: Vector) -> tuple[float, float]:
    """Returns how often a rule decides, and how many seeds it uses."""
    open_ = np.ones(len(differences), dtype=bool)
    used = np.full(len(differences), float(LOOKS.most))
    for look, seeds in enumerate(rule.at):
        now = open_ & rule.decides(look, seeds, t_values(differences, seeds))
        used[now] = seeds
        open_ &= ~now
    return 1 - float(open_.mean()), float(used.mean())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="studies")
    count = parser.parse_args().count
    generator = np.random.default_rng(0)
    null = np.sqrt(2) * generator.standard_normal((count, LOOKS.most))
    drawn = np.sqrt(2) * generator.standard_normal((count, LOOKS.most))
    sizes = " | ".join(f"{size} sd" if size else "none" for size in SIZES)
    print(f"| rule | {sizes} |")
    print("| --- |" + " ---: |" * len(SIZES))
    for rule in rules(null):
        cells = []
        for size in SIZES:
            share, seeds = measured(rule, drawn + size)
            cells.append(f"{100 * share:.1f} %, {seeds:.1f}")
        print(f"| {rule.name} | {' | '.join(cells)} |")
    print(
        f"\nCommand: `make bench-looks`, {count:,} studies per entry, {machine_text()}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
