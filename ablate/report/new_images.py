"""Differences on new images: intervals over seeds and images.

An interval over seeds says what other seeds would give on the same test images. The
images are a sample too: on a small test set, the difference on new images can be
elsewhere. The store has one bit per trial and test image, so both can be told apart.

A difference D of two trials with one seed is 1, 0 or -1 for each image. Seeds and
images are crossed random effects: D = mean + seed + image + rest. Their mean squares
from the two-way analysis of variance give the variance of the mean difference
(Brennan, Generalizability Theory, 2001, chapter 6), with Satterthwaite's degrees of
freedom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.records import CorrectImages, Level, StudyResults
from ablate.report.effect import Effect
from ablate.report.verdicts import Estimate
from ablate.statistics import student

Array = np.ndarray[Any, Any]
# Differences are in points.
POINTS = 100.0
# What the store has: the images of a trial, by the row of its cell and its seed.
Images = Mapping[tuple[int, int], CorrectImages]


@dataclass(frozen=True)
class ImageEffect:
    """The top-1 difference of a row from row 0, with its images.

    Attributes:
        seeds: the seeds that both rows have.
        images: the number of test images.
        mean: the difference in points.
        over_seeds: its estimate on these images; None if all seeds have the same.
        over_both: its estimate on new images; None if there is no spread at all.
        better: the probability that one more training of the row gets more images right
            than one of row 0 with the same seed, on as many new images.
        won: how many images the row gets right with more seeds than row 0.
        lost: how many it gets right with fewer seeds.
    """

    row: int
    changed: Mapping[str, Level | None]
    seeds: tuple[int, ...]
    images: int
    mean: float
    over_seeds: Estimate | None
    over_both: Estimate | None
    better: float | None
    won: int
    lost: int


def image_effects(
    results: StudyResults, effects: Sequence[Effect], images: Images
) -> list[ImageEffect]:
    """Returns what the images show of each effect, if they are stored.

    Rows are left out if fewer than two of their seeds have images, here and in row 0.
    """
    image_effects_by_row = []
    for effect in effects:
        pairs = [
            (
                seed,
                images[effect.row, seed].array(),
                images[effect.against, seed].array(),
            )
            for seed in effect.seeds
            if (effect.row, seed) in images and (effect.against, seed) in images
        ]
        # Seeds with other test sets, as after a change of `test_images`, have no images
        # in common that could be compared one by one.
        sizes = {len(bits) for _, *both in pairs for bits in both}
        if len(pairs) < 2 or len(sizes) != 1:
            continue
        differences = np.stack(
            [
                correct.astype(np.int8) - other.astype(np.int8)
                for _, correct, other in pairs
            ]
        )
        seeds = tuple(seed for seed, _, _ in pairs)
        image_effects_by_row.append(_image_effect(effect, seeds, differences))
    return image_effects_by_row


def _image_effect(
    effect: Effect, seeds: tuple[int, ...], differences: Array
) -> ImageEffect:
    squares = mean_squares(differences)
    by_image = differences.sum(axis=0)
    return ImageEffect(
        row=effect.row,
        changed=effect.changed,
        seeds=seeds,
        images=differences.shape[1],
        mean=squares.mean,
        over_seeds=squares.over_seeds(),
        over_both=squares.over_both(),
        better=squares.better(),
        won=int((by_image > 0).sum()),
        lost=int((by_image < 0).sum()),
    )


@dataclass(frozen=True)
class MeanSquares:
    """The two-way analysis of variance of differences, in points.

    Attributes:
        seeds, images: how many there are.
        mean: the mean difference.
        of_seeds, of_images, of_rest: mean squares.
    """

    seeds: int
    images: int
    mean: float
    of_seeds: float
    of_images: float
    of_rest: float

    @property
    def count(self) -> int:
        return self.seeds * self.images

    def over_seeds(self) -> Estimate | None:
        """Returns the difference on these images."""
        if not self.of_seeds:
            return None
        error = math.sqrt(self.of_seeds / self.count)
        return Estimate.of(self.mean, error, self.seeds - 1)

    def over_both(self) -> Estimate | None:
        """Returns the difference on new images.

        Its interval is at least as wide as that on these images. It could be narrower,
        because images have many more degrees of freedom than seeds.
        """
        variance = self._variance()
        if not variance:
            return None
        error = math.sqrt(variance / self.count)
        both = Estimate.of(self.mean, error, self._freedom())
        seeds = self.over_seeds()
        if seeds is not None and seeds.high > both.high:
            return seeds
        return both

    def better(self) -> float | None:
        """Returns the probability that the difference is positive once more.

        It is that of one more pair of trainings, on as many new images.
        """
        variance = self._variance()
        if not variance:
            return None
        # Of the mean difference of one more seed, and of the estimate of the mean.
        image = max(0.0, self.of_images - self.of_rest) / self.seeds
        once = (self.of_seeds + image) / self.images
        spread = math.sqrt(once + variance / self.count)
        return float(student.probability(self._freedom(), self.mean / spread))

    def _variance(self) -> float:
        """Returns the variance of the mean difference, times the number of values."""
        both = self.of_seeds + self.of_images - self.of_rest
        # Mean squares are noisy; with fewer sources the variance is no larger.
        return max(both, self.of_seeds, self.of_images)

    def _freedom(self) -> float:
        """Returns the degrees of freedom of the variance (Satterthwaite 1946)."""
        rest = (self.seeds - 1) * (self.images - 1)
        parts = (
            self.of_seeds**2 / (self.seeds - 1)
            + self.of_images**2 / (self.images - 1)
            + self.of_rest**2 / rest
        )
        return self._variance() ** 2 / parts


def mean_squares(differences: Array) -> MeanSquares:
    """Returns the analysis of variance of differences.

    Args:
        differences: shape (seeds, images), each 1, 0 or -1.
    """
    values = POINTS * differences.astype(np.float64)
    seeds, images = values.shape
    mean = values.mean()
    by_seed = values.mean(axis=1, keepdims=True) - mean
    by_image = values.mean(axis=0, keepdims=True) - mean
    rest = values - mean - by_seed - by_image
    return MeanSquares(
        seeds=seeds,
        images=images,
        mean=float(mean),
        of_seeds=float(images * (by_seed**2).sum() / (seeds - 1)),
        of_images=float(seeds * (by_image**2).sum() / max(images - 1, 1)),
        of_rest=float((rest**2).sum() / max((seeds - 1) * (images - 1), 1)),
    )


@dataclass(frozen=True)
class SeedNoise:
    """Why top-1 differs between seeds, pooled over rows, in points.

    Attributes:
        sd: the standard deviation over seeds.
        of_images: what it would be if each image were right or wrong by itself, with its
            own probability: the part that a larger test set makes smaller.
    """

    sd: float
    of_images: float


def seed_noise(images: Images) -> SeedNoise | None:
    """Returns how much of the spread over seeds is due to the number of test images.

    If an image is right with probability p over seeds, independently of the others, the
    variance of the share of n right images is the mean of p (1 - p), divided by n
    (Jordan, arXiv 2304.01910). With k seeds, k / (k - 1) times the product of the
    observed shares estimates p (1 - p) without bias.

    Returns None if no row has two seeds.
    """
    by_row: dict[int, list[Array]] = {}
    for (row, _), correct in images.items():
        by_row.setdefault(row, []).append(correct.array())
    total = of_images = 0.0
    freedom = 0
    for arrays in by_row.values():
        seeds = len(arrays)
        if seeds < 2:
            continue
        right = np.stack(arrays).astype(float)
        share = right.mean(axis=0)
        spread = (share * (1 - share)).mean() * seeds / (seeds - 1) / right.shape[1]
        total += (seeds - 1) * right.mean(axis=1).var(ddof=1)
        of_images += (seeds - 1) * spread
        freedom += seeds - 1
    if not freedom:
        return None
    return SeedNoise(
        sd=POINTS * math.sqrt(total / freedom),
        of_images=POINTS * math.sqrt(of_images / freedom),
    )
