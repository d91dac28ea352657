"""Intervals on new images, tested on made-up networks: a part of `make trust`.

A network gets an image right if a sum of normal variables is positive: what its row is
worth, how easy the image is (for all rows, and for this row), what the seed is worth
(for all rows, and for this row), and chance. The share of right images of a row over
all seeds and images is then known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from made_up import Proof
from scipy import stats

from ablate.report.new_images import mean_squares

Array = np.ndarray[Any, Any]
# Standard deviations: how easy an image is, for all rows and beyond that for one; how
# good a seed is, for all rows and beyond that for one; and chance.
IMAGE, IMAGE_OF_ROW, SEED, SEED_OF_ROW, CHANCE = 1.0, 0.5, 0.05, 0.05, 0.7
# What row 0 and the other row are worth.
WORTH = (1.2, 1.3)
SETTINGS = ((3, 200), (3, 1000), (5, 1000), (10, 1000))


def truth() -> float:
    """The difference of the two rows on new seeds and images, in points."""
    spread = math.hypot(IMAGE, IMAGE_OF_ROW, SEED, SEED_OF_ROW, CHANCE)
    first, second = (stats.norm.cdf(worth / spread) for worth in WORTH)
    return 100 * float(second - first)


def drawn(
    generator: np.random.Generator,
    seeds: int,
    images: int,
    worths: tuple[float, float] = WORTH,
) -> Array:
    """Differences of shape (seeds, images), each 1, 0 or -1."""
    easy = generator.normal(0, IMAGE, (1, images))
    good = generator.normal(0, SEED, (seeds, 1))
    right = []
    for worth in worths:
        score = worth + easy + good
        score = score + generator.normal(0, IMAGE_OF_ROW, (1, images))
        score = score + generator.normal(0, SEED_OF_ROW, (seeds, 1))
        score = score + generator.normal(0, CHANCE, (seeds, images))
        right.append((score > 0).astype(np.int8))
    return right[1] - right[0]


def coverage(count: int, seeds: int, images: int) -> tuple[float, float]:
    """The shares of 95 % intervals that contain the true difference on new images:
    those over seeds, and those over seeds and images.
    """
    generator = np.random.default_rng(seeds * 10_000 + images)
    true = truth()
    over_seeds = over_both = 0
    for _ in range(count):
        squares = mean_squares(drawn(generator, seeds, images))
        alone, both = squares.over_seeds(), squares.over_both()
        # Equal differences of all seeds have no interval.
        over_seeds += alone is not None and alone.low <= true <= alone.high
        over_both += both is not None and both.low <= true <= both.high
    return over_seeds / count, over_both / count


def better_again(count: int, seeds: int, images: int) -> tuple[float, float]:
    """How often one more pair of trainings is better on as many new images, in studies
    of effects of any size where this is predicted with a probability of 0.6 to 0.9, and
    the mean of these probabilities.
    """
    generator = np.random.default_rng(7)
    predicted: list[float] = []
    better = 0
    for _ in range(count):
        worths = (WORTH[0], WORTH[0] + generator.normal(0, 0.3))
        studied = drawn(generator, seeds, images, worths)
        probability = mean_squares(studied).better()
        if probability is None or not 0.6 < probability < 0.9:
            continue
        predicted.append(probability)
        better += drawn(generator, 1, images, worths).sum() > 0
    return better / len(predicted), float(np.mean(predicted))


def image_proofs(count: int) -> Iterator[Proof]:
    """What the intervals promise."""
    for seeds, images in SETTINGS:
        yield Proof(
            "95 % intervals over seeds and images that contain the difference on new"
            " images: 93 % or more",
            f"{seeds} seeds, {images:,} images",
            coverage(count, seeds, images)[1],
            0.93,
            1.0,
            count,
        )


def image_lines(count: int) -> list[str]:
    """Returns how often intervals over seeds alone contain that difference."""
    shares = [
        f"{100 * coverage(count, seeds, images)[0]:.0f} % ({seeds} seeds, {images:,}"
        " images)"
        for seeds, images in SETTINGS
    ]
    again, predicted = better_again(count, 5, 1000)
    return [
        (
            "Intervals over seeds alone contain the difference on new images in"
            f" {', '.join(shares[:-1])} and {shares[-1]} of studies. `ablate effects --of"
            " images` prints both kinds of intervals: over seeds alone, and over seeds and images."
            " For each row, it also prints P(better): the probability that one more"
            " training of the row classifies more new images correctly than one more"
            " training of row 0. Among the simulated comparisons with a"
            " P(better) between 0.6 and 0.9, the mean of P(better) is"
            f" {100 * predicted:.0f} %. In {100 * again:.0f} % of these comparisons, the"
            " new training of the row classifies more new images correctly than the new"
            " training of row 0 (5 seeds, 1,000 images)."
        ),
        "",
    ]
