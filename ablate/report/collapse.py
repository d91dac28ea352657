"""Trainings that collapsed: completed, but near chance while most others are not.

A mean over the other seeds would be one of survivors, so collapsed seeds stay in the
mean and in the verdict. Tables show them as an outcome of their own, and the difference
without them beside the one with them.
"""

from __future__ import annotations

import statistics

from ablate.records import StudyResults

# Near chance is below twice the chance, or below this share of the way from chance to
# 100 %, whichever is less: with two classes, twice the chance is 100 %.
TIMES, SHARE = 2.0, 0.1


def near_chance(chance: float) -> float:
    """Returns the value below which a network has learnt next to nothing, in %."""
    return min(TIMES * chance, chance + SHARE * (100 - chance))


def is_near_chance(results: StudyResults) -> bool:
    """Whether no training of a study has learnt more than chance gives."""
    values = [value for cell in results.cells for value in cell.values.values()]
    if results.chance is None or not values:
        return False
    return max(values) < near_chance(results.chance)


def collapsed_seeds(results: StudyResults) -> dict[int, list[int]]:
    """Returns the collapsed seeds of each row that has some.

    Empty if the chance is unknown, or if the median of all trainings is not at least as
    far above `near_chance` as that is above the chance.
    """
    chance = results.chance
    if chance is None:
        return {}
    every: list[float] = []
    for cell in results.cells:
        every += cell.values.values()
    limit = near_chance(chance)
    if not every or statistics.median(every) < limit + (limit - chance):
        return {}
    epochs: dict[int, list[int]] = {}
    for cell in results.cells:
        seeds = [seed for seed, value in cell.values.items() if value < limit]
        if seeds:
            epochs[cell.index] = seeds
    return epochs
