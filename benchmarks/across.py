"""What the verdicts along sizes are worth: `make bench-across`.

Ladders with planted laws: how the effect of a row depends on the size. Counted are false
statements (a verdict at a size, *at every size*, and the sign of the trend), intervals
that miss an effect, and how often a statement finds what is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from machine import machine_text
from made_up import MARGIN, NOISE, SEED_SD, Proof, Vector, made, names

from ablate.records import Across
from ablate.report.across import (
    RowAcross,
    Size,
    family_of_sizes,
    rows_across,
    slope_weights,
)
from ablate.report.predict import last_weights, line_weights, predicted
from ablate.report.verdicts import Verdict

ROWS = 5
# Sizes and seeds.
SHAPES = ((3, 3), (3, 5), (4, 5), (4, 10), (5, 5))
# Seeds of each size, from the smallest one.
OWN_SEEDS = ((10, 8, 5, 3), (3, 5, 8, 10), (20, 5, 3, 3))
SIGN = {Verdict.HELPS: 1, Verdict.HURTS: -1}
# A size has four times the compute of the one before it.
DOUBLINGS = 2.0

# The effect of a row at a share of the way from the smallest size to the largest one.
LAWS: dict[str, Callable[[Vector], Vector]] = {
    "none": np.zeros_like,
    "constant": lambda way: np.full_like(way, 3 * NOISE),
    "shrinking": lambda way: 3 * NOISE * (1 - way) + 0.4 * MARGIN * way,
    "crossing": lambda way: 3 * NOISE * (1 - 2 * way),
    "growing": lambda way: 4 * NOISE * way,
    "margin": lambda way: np.full_like(way, MARGIN),
}
# Ladders whose rows have laws of their own.
MIXED, ZERO_ONCE = "one of each", "none at one size, large at the others"


def multiples(noise: str, sizes: int) -> Vector:
    """Standard deviations of a training, as multiples of `NOISE`: cells by sizes."""
    cells = np.ones((ROWS + 1, sizes))
    if noise == "falling":
        return np.asarray(cells * 0.7 ** np.arange(sizes))
    if noise == "row 0 noisier":
        cells[0] = 5**0.5
    elif noise == "one row noisier":
        cells[1] = 5.0
    elif noise == "noisier at one size":
        cells[1, 0] = 5.0
    elif noise == "like a chessboard":
        # Every second row and size has nine times the variance of the others.
        rows, columns = np.indices((ROWS, sizes))
        cells[1:] = np.where((rows + columns) % 2, 1.0, 3.0)
    elif noise == "its own in each cell":
        generator = np.random.default_rng(0)
        return np.exp(generator.uniform(0, np.log(5), cells.shape))
    return cells


NOISES = (
    "equal",
    "falling",
    "row 0 noisier",
    "one row noisier",
    "noisier at one size",
    "like a chessboard",
    "its own in each cell",
)


def planted(law: str, sizes: int) -> Vector:
    """The true effects: rows by sizes."""
    way = np.linspace(0, 1, sizes)
    if law == MIXED:
        laws = ("none", "constant", "shrinking", "crossing", "growing")
        return np.array([LAWS[each](way) for each in laws])
    if law == ZERO_ONCE:
        effects = np.full((ROWS, sizes), 6 * NOISE)
        for row in range(ROWS):
            effects[row, row % sizes] = 0
        return effects
    return np.array([LAWS[law](way)] * ROWS)


@dataclass
class Counted:
    """Shares of ladders, and of rows."""

    false: float = 0.0
    false_same: float = 0.0
    missed: float = 0.0
    at_size: float = 0.0
    every: float = 0.0
    trend: float = 0.0


def ladder(
    generator: np.random.Generator,
    effects: Vector,
    seeds: int | Sequence[int],
    sds: Vector,
) -> list[Size]:
    """A ladder of made-up studies.

    Args:
        seeds: their number, or that of each size.
    """
    sizes = effects.shape[1]
    of_size = [seeds] * sizes if isinstance(seeds, int) else list(seeds)
    seeds = max(of_size)
    across = Across(
        ladder="made-up",
        axis="size.width",
        sizes=tuple(range(sizes)),
        number=0,
        per="number",
    )
    shared = generator.normal(0, SEED_SD, (sizes, 1, seeds))
    noise = generator.normal(0, NOISE, (sizes, ROWS + 1, seeds)) * sds.T[:, :, None]
    means = np.concatenate([np.zeros((1, sizes)), effects]).T
    values = 75 + means[:, :, None] + shared + noise
    return [
        Size(
            across=replace(across, number=number),
            results=made(values[number, :, : of_size[number]], names(ROWS + 1)),
            position=2.0 ** (DOUBLINGS * number),
            margin=MARGIN,
        )
        for number in range(sizes)
    ]


def measured(
    law: str, sizes: int, seeds: int | Sequence[int], noise: str, count: int
) -> Counted:
    """What the statements about ladders of one kind are worth."""
    effects = planted(law, sizes)
    weights = slope_weights(DOUBLINGS * np.arange(sizes))
    slopes = np.round(effects @ weights, 9)
    generator = np.random.default_rng(
        [sizes, *([seeds] if isinstance(seeds, int) else seeds)]
    )
    sds = multiples(noise, sizes)
    counted = Counted()
    for _ in range(count):
        rows = rows_across(ladder(generator, effects, seeds, sds), MARGIN)
        false = false_same = missed = False
        for row, truth, slope in zip(rows, effects, slopes, strict=True):
            false |= _is_false(row, truth, slope)
            false_same |= any(
                at.verdict is Verdict.SAME and abs(effect) >= MARGIN
                for at, effect in zip(row.at, truth, strict=True)
            )
            missed |= any(
                at.estimate is not None
                and not at.estimate.low <= effect <= at.estimate.high
                for at, effect in zip(row.at, truth, strict=True)
            )
            counted.at_size += sum(at.verdict in SIGN for at in row.at) / sizes / ROWS
            counted.every += (row.every in SIGN) / ROWS
            counted.trend += row.has_trend / ROWS
        counted.false += false
        counted.false_same += false_same
        counted.missed += missed
    return Counted(*(value / count for value in vars(counted).values()))


def _is_false(row: RowAcross, truth: Vector, slope: float) -> bool:
    """Whether a statement that a row differs, or has a trend, is not true."""
    if any(
        SIGN[at.verdict] != np.sign(effect)
        for at, effect in zip(row.at, truth, strict=True)
        if at.verdict in SIGN
    ):
        return True
    if row.every in SIGN and any(np.sign(truth) != SIGN[row.every]):
        return True
    return bool(
        row.has_trend
        and row.trend is not None
        and np.sign(row.trend.value) != np.sign(slope)
    )


# The effect of a row by doublings from the smallest size, in points. The first two are
# the rules that a prediction is made of, the next two lie between them.
AHEAD: dict[str, Callable[[Vector], Vector]] = {
    "stays": lambda x: np.full_like(x, 3 * NOISE),
    "falls along a line": lambda x: 3 * NOISE - 0.4 * x,
    "fades": lambda x: 3 * NOISE * np.exp(-x),
    "fades to a half": lambda x: 1.5 * NOISE * (1 + np.exp(-x)),
    "turns": lambda x: 0.3 * (x - 2) ** 2,
    "grows ever faster": lambda x: 0.1 * 2.0**x,
    # Losses are power laws with the exponents 0.30 and 0.35; 50 points are a loss of 1.
    "another exponent": lambda x: 50 * (2.0 ** (-0.30 * x) - 2.0 ** (-0.35 * x)),
}
IN_CLASS = tuple(AHEAD)[:4]
RULES = ("both", "stays", "line")


@dataclass
class Ahead:
    """Of rows: the share that an interval covers, its half width, and the error."""

    covered: float = 0.0
    half: float = 0.0
    error: float = 0.0


def ahead(
    law: str,
    sizes: int,
    seeds: int,
    noise: float,
    count: int,
    beyond: float = 2.0,
    step: float = 1.0,
    scale: float = 1.0,
) -> dict[str, Ahead]:
    """What predictions beyond a ladder are worth, by rule.

    Args:
        beyond: how many doublings.
        step: from one size to the next, in doublings.
        noise: the standard deviation of a training at a size, as a multiple of that at
            the size before.
        scale: of all effects.
    """
    doublings = np.arange(sizes) * step
    there = doublings[-1] + beyond
    effects = scale * np.array([AHEAD[law](doublings)] * ROWS)
    truth = scale * float(AHEAD[law](np.array([there]))[0])
    generator = np.random.default_rng([sizes, seeds])
    sds = np.ones((ROWS + 1, sizes)) * noise ** np.arange(sizes)
    weights = {
        "stays": last_weights(doublings),
        "line": line_weights(doublings, there),
    }
    found = {rule: Ahead() for rule in RULES}
    for _ in range(count):
        made_up = [
            replace(size, position=2.0 ** (step * number))
            for number, size in enumerate(ladder(generator, effects, seeds, sds))
        ]
        rows, family = family_of_sizes(made_up)
        assert family is not None, "there is noise"
        spread = NOISE * noise ** (sizes - 1 + beyond)
        new = generator.normal(0, spread, (ROWS + 1, seeds)).mean(axis=1)
        for number in range(len(rows)):
            measured = truth + new[number + 1] - new[0]
            intervals = {}
            for rule, of_rule in weights.items():
                each = predicted(
                    of_rule,
                    family.mean[number],
                    family.error[number],
                    family.freedom[number],
                )
                intervals[rule] = (each.low, each.value, each.high)
            stays, line = intervals["stays"], intervals["line"]
            intervals["both"] = (
                min(stays[0], line[0]),
                (stays[1] + line[1]) / 2,
                max(stays[2], line[2]),
            )
            for rule, (low, value, high) in intervals.items():
                found[rule].covered += low <= measured <= high
                found[rule].half += (high - low) / 2
                found[rule].error += (value - truth) ** 2
    trials = count * ROWS
    return {
        rule: Ahead(
            each.covered / trials, each.half / trials, (each.error / trials) ** 0.5
        )
        for rule, each in found.items()
    }


def lines_ahead(count: int) -> Iterator[str]:
    """The table of predictions."""
    headings = "law noise sizes seeds".split()
    yield f"| {' | '.join([*headings, *RULES])} |"
    yield "| --- |---:|---:|---:| ---: | ---: | ---: |"
    for law in AHEAD:
        for noise in (1.0, 0.8):
            for sizes, seeds in ((3, 3), (4, 5), (5, 5)):
                by_rule = ahead(law, sizes, seeds, noise, count)
                texts = [
                    f"{100 * each.covered:.0f} % ±{each.half:.1f} ({each.error:.1f})"
                    for each in (by_rule[rule] for rule in RULES)
                ]
                yield f"| {law} | {noise} | {sizes} | {seeds} | {' | '.join(texts)} |"


# Losses of row 0 by doublings of compute, in points of which 50 are a loss of 1.
LOSSES: dict[str, Callable[[Vector], Vector]] = {
    "2.5 + C^-0.3": lambda x: 50 * (2.5 + 2.0 ** (-0.3 * x)),
    "3 C^-0.1": lambda x: 50 * 3 * 2.0 ** (-0.1 * x),
    "1 + 3 C^-0.5": lambda x: 50 * (1 + 3 * 2.0 ** (-0.5 * x)),
    "1 + C^-0.7": lambda x: 50 * (1 + 2.0 ** (-0.7 * x)),
    "a line over log C": lambda x: 50 * (3 - 0.2 * x),
    "a curve over log C": lambda x: 50 * (3 - 0.3 * x + 0.015 * x**2),
    "an S over log C": lambda x: 150 / (1 + np.exp((x - 3) / 1.2)),
}
POWER_LAWS = tuple(LOSSES)[:4]
# By how much less compute a row needs, and the standard deviation of a training.
GAIN, SDS = 1.5, (0.5, 0.15)


def worth(
    law: str, step: float, sd: float, seeds: int, count: int
) -> tuple[float, float]:
    """How often the interval of an equal compute has the true one, and its mean width.

    A ladder has four sizes, so many doublings of compute apart; the rows are at the first
    three of them, and their intervals count where both ends are known.
    """
    generator = np.random.default_rng([int(10 * step), int(100 * sd), seeds])
    doublings = step * np.arange(4)
    losses = LOSSES[law](doublings)
    better = LOSSES[law](doublings + np.log2(GAIN))
    across = Across(
        ladder="made-up", axis="size.width", sizes=(0, 1, 2, 3), number=0, per="number"
    )
    inside = known = 0
    widths = []
    for _ in range(count):
        noise = generator.normal(0, sd, (2, 4, seeds))
        sizes = [
            Size(
                across=replace(across, number=number),
                results=replace(
                    made(
                        np.array([losses[number], better[number]])[:, None]
                        + noise[:, number],
                        names(2),
                    ),
                    direction="min",
                ),
                position=2.0 ** float(doublings[number]),
                margin=MARGIN,
            )
            for number in range(4)
        ]
        (row,) = rows_across(sizes, MARGIN)
        for at in row.at[:3]:
            if at.equal is None or at.equal.low is None or at.equal.high is None:
                continue
            known += 1
            inside += at.equal.low <= GAIN <= at.equal.high
            widths.append(at.equal.high / at.equal.low)
    return inside / max(1, known), float(np.mean(widths)) if widths else float("nan")


WORTH = [(step, sd, seeds) for step in (1.0, 2.0) for sd in SDS for seeds in (5, 10)]


def lines_of_worth(count: int) -> Iterator[str]:
    """The table of what a row is worth."""
    headings = [
        f"x{2**step:g}, sd {sd / 50:g}, {seeds} seeds" for step, sd, seeds in WORTH
    ]
    yield f"| loss of row 0 | {' | '.join(headings)} |"
    yield f"| --- |{' ---: |' * len(headings)}"
    for law in LOSSES:
        each = [worth(law, *shape, count) for shape in WORTH]
        texts = [f"{100 * share:.0f} % ({width:.2f})" for share, width in each]
        yield f"| {law} | {' | '.join(texts)} |"


def lines_of_exponents(count: int) -> Iterator[str]:
    """The table of predictions where two power laws have other exponents."""
    yield "| sizes of a ladder | sd | 2 doublings ahead | 4 doublings ahead |"
    yield "| --- | ---: | ---: | ---: |"
    for step in (1.0, 2.0):
        for sd in SDS:
            # The sd of a training is NOISE: a smaller one is a larger effect.
            scale = NOISE / sd
            shares = [
                ahead("another exponent", 4, 5, 1.0, count, beyond, step, scale)
                for beyond in (2.0, 4.0)
            ]
            texts = " | ".join(
                f"{100 * share['both'].covered:.0f} %" for share in shares
            )
            yield f"| four, x{2**step:g} of compute | {sd / 50:g} | {texts} |"


def proofs(count: int) -> Iterator[Proof]:
    """That statements hold 5 %, and intervals 95 %; predictions 90 %."""
    for law in POWER_LAWS:
        for step, sd, seeds in WORTH[::3]:
            yield Proof(
                "intervals of an equal compute that contain it: at least 93 %",
                f"four sizes x{2**step:g}, loss {law}, sd {sd / 50:g}, {seeds} seeds",
                worth(law, step, sd, seeds, count)[0],
                0.93,
                1.0,
                count,
            )
    for law in IN_CLASS:
        for noise, (sizes, seeds) in ((1.0, (3, 3)), (0.8, (4, 5))):
            yield Proof(
                "effects two doublings beyond the ladder that the prediction covers: at"
                " least 90 %",
                f"{ROWS} rows, {sizes} sizes, {seeds} seeds, effect {law}, noise times"
                f" {noise} at each size",
                ahead(law, sizes, seeds, noise, count)["both"].covered,
                0.9,
                1.0,
                count,
            )
    for noise, law in (
        *((noise, "none") for noise in NOISES),
        ("equal", "margin"),
        ("equal", ZERO_ONCE),
        ("noisier at one size", ZERO_ONCE),
        ("equal", MIXED),
    ):
        shapes: tuple[tuple[int, int | Sequence[int]], ...] = (
            (3, 3),
            (4, 5),
            (4, OWN_SEEDS[0]),
        )
        for sizes, seeds in shapes:
            counted = measured(law, sizes, seeds, noise, count)
            setting = f"{ROWS} rows, {sizes} sizes, {seeds} seeds, {law}, noise {noise}"
            for promise, share in (
                ("ladders with a false statement: at most 5 %", counted.false),
                (
                    "ladders with a false *no difference*: at most 5 %",
                    counted.false_same,
                ),
                ("ladders with an interval that misses: at most 5 %", counted.missed),
            ):
                yield Proof(promise, setting, share, 0.0, 0.05, count)


def lines_of_own_seeds(count: int) -> Iterator[str]:
    """The table of ladders whose sizes have their own numbers of seeds."""
    headings = [", ".join(map(str, seeds)) + " seeds" for seeds in OWN_SEEDS]
    yield f"| noise | law | {' | '.join(headings)} |"
    yield f"| --- | --- |{' ---: |' * len(OWN_SEEDS)}"
    for noise in NOISES:
        for law in ("none", ZERO_ONCE):
            each = [measured(law, len(s), s, noise, count) for s in OWN_SEEDS]
            shares = (f"{100 * c.false:.1f}, {100 * c.missed:.1f}" for c in each)
            yield f"| {noise} | {law} | {' | '.join(shares)} |"


def lines(count: int) -> Iterator[str]:
    """Two tables: false statements with intervals that miss, and what is found."""
    headings = [f"{sizes} sizes, {seeds} seeds" for sizes, seeds in SHAPES]
    kinds = [("equal", law) for law in (*LAWS, MIXED, ZERO_ONCE)]
    kinds += [(noise, law) for noise in NOISES[1:] for law in ("none", ZERO_ONCE)]
    yield f"| noise | law | {' | '.join(headings)} |"
    yield f"| --- | --- |{' ---: |' * len(SHAPES)}"
    found = []
    for noise, law in kinds:
        each = [measured(law, *shape, noise, count) for shape in SHAPES]
        shares = (f"{100 * c.false:.1f}, {100 * c.missed:.1f}" for c in each)
        yield f"| {noise} | {law} | {' | '.join(shares)} |"
        if noise == "equal":
            shares = (
                f"{100 * c.at_size:.0f}, {100 * c.every:.0f}, {100 * c.trend:.0f}"
                for c in each
            )
            found.append(f"| {law} | {' | '.join(shares)} |")
    yield ""
    yield f"| law | {' | '.join(headings)} |"
    yield f"| --- |{' ---: |' * len(SHAPES)}"
    yield from found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000, help="ladders per entry")
    parser.add_argument("--worth", action="store_true", help="only what rows are worth")
    asked = parser.parse_args(arguments)
    count = asked.count
    if asked.worth:
        for line in (*lines_of_worth(count), "", *lines_of_exponents(count)):
            print(line, flush=True)
        print(f"\n{machine_text()}")
        return 0
    for line in lines(count):
        print(line, flush=True)
    print()
    for line in lines_of_own_seeds(count):
        print(line, flush=True)
    print()
    for line in lines_ahead(count):
        print(line, flush=True)
    print(
        f"\nCommand: `make bench-across`, {count:,} ladders per entry, {machine_text()}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
