"""How much of the spread over seeds is due to the number of test images."""

from __future__ import annotations

import numpy as np
import pytest

from ablate.records import CorrectImages
from ablate.report.new_images import Images, seed_noise

IMAGES = 400


def drawn(
    generator: np.random.Generator, seeds: int, rows: int = 1, shift: float = 0.0
) -> Images:
    """Images that are right by themselves, each with its probability, plus a shift of
    all of them that differs by seed.
    """
    images = {}
    for row in range(rows):
        probability = generator.beta(2, 1, IMAGES)
        for seed in range(seeds):
            moved = np.clip(probability + generator.normal(0, shift), 0, 1)
            images[row, seed] = CorrectImages.of(generator.random(IMAGES) < moved)
    return images


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_independent_images_explain_all_of_it(seeds: int) -> None:
    """Both variances are estimated without bias."""
    generator = np.random.default_rng(seeds)
    noises = [seed_noise(drawn(generator, seeds, rows=3)) for _ in range(400)]
    total = np.mean([noise.sd**2 for noise in noises if noise])
    of_images = np.mean([noise.of_images**2 for noise in noises if noise])
    assert of_images == pytest.approx(total, rel=0.08)
    # The mean of p (1 - p) under Beta(2, 1) is 1/6.
    assert of_images == pytest.approx(1e4 / 6 / IMAGES, rel=0.02)


def test_what_moves_all_images_is_not_theirs() -> None:
    generator = np.random.default_rng(0)
    noises = [seed_noise(drawn(generator, 3, rows=3, shift=0.05)) for _ in range(200)]
    total = np.mean([noise.sd**2 for noise in noises if noise])
    of_images = np.mean([noise.of_images**2 for noise in noises if noise])
    assert 0.05 < of_images / total < 0.35


def test_one_seed_says_nothing() -> None:
    assert seed_noise(drawn(np.random.default_rng(0), 1, rows=3)) is None
    assert seed_noise({}) is None


def test_seeds_that_agree_have_no_noise() -> None:
    right = CorrectImages.of(np.array([True, False, True]))
    noise = seed_noise({(0, 0): right, (0, 1): right})
    assert noise is not None
    assert (noise.sd, noise.of_images) == (0.0, 0.0)
