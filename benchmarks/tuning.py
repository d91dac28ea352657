"""What rows at their own best settings show: `make bench-tuning`.

No row differs from row 0 at its best setting. A verdict is thus false for somebody who
asks which row is best at its best setting. Four ways to choose settings are compared:
one setting for all rows, that of row 0; an own setting of each row; the same with three
trials of each setting; and an own setting of each seed of the table (`repeat: true`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from machine import machine_text
from made_up import MARGIN, NOISE, SAID, SEED_SD, Proof, Vector, made, names

from ablate.report.effects import effects
from ablate.report.tuning import NEAR
from ablate.report.verdicts import Verdict

ROWS, SEEDS = 5, 5
SETTINGS = (4, 8, 32)
# What the metric loses from the best setting to the ends of the range, in standard
# deviations of a training.
LOSSES = (0, 3, 10, 30)
WAYS = ("row 0", "own", "own, 3 trials", "repeat")
# Where the best setting of a row lies in the range, from 0 to 1.
SAME, OWN = "equal curves", "own best settings"


def chosen(scores: Vector) -> Vector:
    """The best setting of each row, from scores of rows by settings."""
    best: Vector = scores.argmax(axis=1)
    return best


def study(
    generator: np.random.Generator, settings: int, loss: float, curves: str, way: str
) -> Vector:
    """Values of rows by seeds, each at the setting that its trials have chosen."""
    points = generator.random(settings)
    best = np.full(ROWS, 0.5)
    if curves == OWN:
        best = generator.uniform(0.3, 0.7, ROWS)
    # Rows by settings.
    means = -loss * NOISE * ((points[None, :] - best[:, None]) / 0.5) ** 2

    def scores(trials: int) -> Vector:
        noise: Vector = generator.normal(0, NOISE, (trials, ROWS, settings))
        return means + noise.mean(axis=0)

    if way == "repeat":
        choices = np.stack([chosen(scores(1)) for _ in range(SEEDS)], axis=1)
    else:
        once = chosen(scores(3 if way == "own, 3 trials" else 1))
        if way == "row 0":
            once = np.full(ROWS, once[0])
        choices = np.repeat(once[:, None], SEEDS, axis=1)
    at_choice = np.take_along_axis(means, choices, axis=1)
    seeds = generator.normal(0, SEED_SD, (1, SEEDS))
    return 75 + at_choice + seeds + generator.normal(0, NOISE, (ROWS, SEEDS))


def with_verdict(
    count: int, settings: int, loss: float, curves: str, way: str
) -> float:
    """The share of studies in which a row has the verdict helps or hurts."""
    generator = np.random.default_rng([settings, loss, WAYS.index(way)])
    wrong = 0
    for _ in range(count):
        values = study(generator, settings, loss, curves, way)
        by_row = effects(made(values, names(ROWS)), MARGIN)
        wrong += any(effect.verdict in SAID for effect in by_row)
    return wrong / count


# Settings near the best one: see `ablate.report.tuning.NEAR`.
SHARP, FLAT = 30, 3
MORE_SETTINGS = (8, 32, 100)


def sharper(count: int, settings: int, hyperparameters: int) -> tuple[float, float]:
    """One row whose response is sharper than that of row 0, with an equal best value.

    Returns:
        how often the row *hurts*, and in how many of these studies `ablate review`
        objects to few settings.
    """
    generator = np.random.default_rng([settings, hyperparameters])
    hurts = objected = 0
    for _ in range(count):
        points = generator.random((settings, hyperparameters))
        best = generator.uniform(0.3, 0.7, (2, 1, hyperparameters))
        distance = (((points[None] - best) / 0.5) ** 2).sum(axis=2)
        means = -NOISE * np.array([[FLAT], [SHARP]]) * distance
        scores = means + generator.normal(0, NOISE, means.shape)
        near = scores >= scores.max(axis=1, keepdims=True) - NEAR * NOISE
        at_choice = means[np.arange(2), chosen(scores)]
        values = 75 + at_choice[:, None] + generator.normal(0, NOISE, (2, SEEDS))
        (effect,) = effects(made(values, names(2)), MARGIN)
        if effect.verdict is Verdict.HURTS:
            hurts += 1
            objected += bool((near.sum(axis=1) <= hyperparameters).any())
    return hurts / count, objected / max(1, hurts)


def lines_of_sharper(count: int) -> Sequence[str]:
    """The table of a row whose response is sharper."""
    texts = [
        "| settings | 1 hyperparameter | 2 | 3 |",
        "|---:| ---: | ---: | ---: |",
    ]
    for settings in MORE_SETTINGS:
        pairs = [sharper(count, settings, number) for number in (1, 2, 3)]
        cells = " | ".join(f"{100 * a:.0f} % ({100 * b:.0f} %)" for a, b in pairs)
        texts.append(f"| {settings} | {cells} |")
    return texts


def proofs(count: int) -> list[Proof]:
    """That the verdicts of the whole procedure hold 5 % for equal response curves."""
    return [
        Proof(
            "studies of rows with equal response curves that have a verdict *helps* or"
            " *hurts*, with `repeat: true`: at most 5 %",
            f"{ROWS} rows, {SEEDS} seeds, {settings} settings, {loss} sd lost at the ends"
            " of the range",
            with_verdict(count, settings, loss, SAME, "repeat"),
            0.0,
            0.05,
            count,
        )
        for settings in SETTINGS
        for loss in LOSSES
    ]


def lines(count: int, curves: str) -> Sequence[str]:
    """The table for one kind of response curves."""
    texts = [
        "| settings | lost at the ends | " + " | ".join(WAYS) + " |",
        "|---:| ---: |" + " ---: |" * len(WAYS),
    ]
    for settings in SETTINGS:
        for loss in LOSSES:
            shares = (
                f"{100 * with_verdict(count, settings, loss, curves, way):.1f} %"
                for way in WAYS
            )
            texts.append(f"| {settings} | {loss} sd | {' | '.join(shares)} |")
    return texts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000, help="studies")
    parser.add_argument("--sharper", action="store_true", help="only a sharper row")
    asked = parser.parse_args()
    count = asked.count
    for line in lines_of_sharper(count):
        print(line, flush=True)
    for curves in () if asked.sharper else (SAME, OWN):
        print(f"\n{curves}\n")
        for line in lines(count, curves):
            print(line, flush=True)
    print(
        f"\nCommand: `make bench-tuning`, {count:,} studies per entry, {machine_text()}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
