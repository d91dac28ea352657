"""What the verdicts on runs without common seeds are worth: `make bench-elsewhere`.

Studies without any effect, whose rows have runs of their own: how many have a false
verdict. And how often a difference is found, beside the test of paired runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from machine import machine_text
from made_up import MARGIN, NOISE, NOISES, SAID, Noise, Proof, made, names, normal

from ablate.records import LEVEL, Before, Reported, StudyResults
from ablate.report.effects import effects
from ablate.report.target_table import target_tests

# Runs of row 0, and of each other row.
SHAPES = ((3, 3), (5, 5), (10, 3), (3, 10))
ROWS = (1, 7)


def unpaired(
    generator: np.random.Generator,
    rows: int,
    runs: tuple[int, int],
    noise: Noise,
    effect: float = 0.0,
) -> StudyResults:
    """A made-up study whose rows have no seeds in common; the first row has an effect."""
    values = noise(generator, (rows + 1, max(runs)))
    values[1] += effect
    study = made(values, names(rows + 1))
    row_0, *others = study.cells
    cells = (
        row_0.with_seeds(range(runs[0])),
        *(cell.with_seeds(range(runs[1])) for cell in others),
    )
    return replace(
        study,
        cells=cells,
        reported=Reported(file="", is_paired=False),
        before=Before(is_whole=True),
    )


def false_verdicts(rows: int, runs: tuple[int, int], noise: Noise, count: int) -> float:
    """The share of studies without an effect that have a verdict of a difference."""
    generator = np.random.default_rng([rows, *runs])
    wrong = 0
    for _ in range(count):
        study = unpaired(generator, rows, runs, noise)
        verdicts = [effect.verdict for effect in effects(study, MARGIN)]
        wrong += any(verdict in SAID for verdict in verdicts)
    return wrong / count


def found(rows: int, runs: tuple[int, int], count: int, *, is_paired: bool) -> float:
    """How often the row is found that differs by three standard deviations."""
    generator = np.random.default_rng([rows, *runs])
    right = 0
    for _ in range(count):
        study = unpaired(generator, rows, runs, normal, effect=3 * NOISE)
        study = replace(study, reported=Reported(file="", is_paired=is_paired))
        right += effects(study, MARGIN)[0].verdict in SAID
    return right / count


def proofs(count: int) -> Iterator[Proof]:
    """That at most 5 % of studies have a false verdict, whatever the noise is."""
    for rows in ROWS:
        for runs in SHAPES:
            for name, noise in NOISES.items():
                yield Proof(
                    "unpaired studies with a false verdict: at most 5 %",
                    f"{rows} rows, {runs[0]} runs of row 0, {runs[1]} of the others,"
                    f" {name}",
                    false_verdicts(rows, runs, noise, count),
                    0.0,
                    0.05,
                    count,
                )


def skewed(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Lognormal losses; their mean is exp(1/2), and their median 1."""
    return generator.lognormal(0, 1, shape)


def exponential(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return generator.exponential(1, shape)


def rare(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """One run in ten is worse by 20 standard deviations."""
    return generator.normal(0, 1, shape) + 20 * (generator.random(shape) < 0.1)


def gaussian(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return generator.normal(0, 1, shape)


# Losses, with their means and medians.
LOSSES = {
    "normal": (gaussian, 0.0, 0.0),
    "lognormal": (skewed, np.exp(0.5), 1.0),
    "exponential": (exponential, 1.0, np.log(2)),
    "one run in ten is 20 sd worse": (rare, 2.0, 0.1397),
}
TARGET_RUNS = (3, 5, 10, 20)


def false_targets(name: str, runs: int, count: int) -> tuple[float, float]:
    """How often each test says that a target is reached: the sign test where the target
    is the median, the t test where it is the mean.
    """
    draw, mean, median = LOSSES[name]
    generator = np.random.default_rng([runs, len(name)])
    wrong = np.zeros(2)
    for _ in range(count):
        study = made(draw(generator, (1, runs)), names(1))
        study = replace(study, direction="min")
        (by_median,) = target_tests(study, median, LEVEL)
        (by_mean,) = target_tests(study, mean, LEVEL)
        wrong[0] += by_median.reaches
        wrong[1] += by_mean.p_mean is not None and by_mean.p_mean < LEVEL
    return float(wrong[0] / count), float(wrong[1] / count)


def target_proofs(count: int) -> Iterator[Proof]:
    """That the sign test holds for any noise."""
    for name in LOSSES:
        for runs in TARGET_RUNS:
            share, _ = false_targets(name, runs, count)
            yield Proof(
                "targets that are wrongly said to be reached: at most 5 %",
                f"{runs} runs, {name}",
                share,
                0.0,
                0.05,
                count,
            )


def target_lines(count: int) -> Iterator[str]:
    """A table: how often each test is wrong."""
    yield f"| losses | {' | '.join(f'{runs} runs' for runs in TARGET_RUNS)} |"
    yield f"| --- |{' ---: |' * len(TARGET_RUNS)}"
    for name in LOSSES:
        pairs = [false_targets(name, runs, count) for runs in TARGET_RUNS]
        cells = " | ".join(f"{100 * a:.1f} / {100 * b:.1f}" for a, b in pairs)
        yield f"| {name} | {cells} |"


def lines(count: int) -> Iterator[str]:
    """Two tables: false verdicts by noise, and what is found."""
    shapes = [(rows, runs) for rows in ROWS for runs in SHAPES]
    headings = [f"{rows} rows, {a} and {b} runs" for rows, (a, b) in shapes]
    yield f"| noise | {' | '.join(headings)} |"
    yield f"| --- |{' ---: |' * len(shapes)}"
    for name, noise in NOISES.items():
        shares = [false_verdicts(rows, runs, noise, count) for rows, runs in shapes]
        yield f"| {name} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |"
    yield ""
    yield "| rows | runs of each row | unpaired | the same runs, paired |"
    yield "| ---: | ---: | ---: | ---: |"
    for rows in ROWS:
        for runs in (3, 5, 10):
            shares = [
                found(rows, (runs, runs), count, is_paired=is_paired)
                for is_paired in (False, True)
            ]
            texts = " | ".join(f"{100 * share:.0f}" for share in shares)
            yield f"| {rows} | {runs} | {texts} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000, help="studies per entry")
    parser.add_argument("--targets", action="store_true", help="only those")
    asked = parser.parse_args(arguments)
    count = asked.count
    for line in target_lines(count) if asked.targets else lines(count):
        print(line, flush=True)
    print(
        f"\nCommand: `make bench-elsewhere`, {count:,} studies per entry,"
        f" {machine_text()}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
