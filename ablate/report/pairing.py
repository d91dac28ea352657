"""How much of the noise the rows of a study share, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ablate.records import CellResult, StudyResults
from ablate.statistics.numbers import scale_of

# Fewer rows or seeds say nothing of what seeds have in common.
FEWEST = 3


def seed_share(results: StudyResults) -> float | None:
    """Returns the seed's share of the variance of a training, from 0 to 1.

    It is the intraclass correlation of seeds across rows, from a two-way analysis of
    variance (McGraw and Wong 1996, ICC(C,1)): rows shift the values, seeds raise or
    lower all rows alike, and the rest is noise. Pairing by seed removes this share from
    differences. Only rows and seeds without gaps are used.

    None if fewer than three rows have three seeds in common.
    """
    cells = [
        cell for cell in results.cells if cell.same_as is None and len(cell.values) > 1
    ]
    if len(cells) < FEWEST:
        return None
    shared = set(cells[0].values)
    for cell in cells:
        shared &= set(cell.values)
    if len(shared) < FEWEST:
        return None
    seeds = sorted(shared)
    values = np.array([_values(cell, seeds) for cell in cells])
    values /= scale_of(values.flat)
    rows, count = values.shape
    centred = values - values.mean(axis=1, keepdims=True)
    common = centred.mean(axis=0)
    between = rows * (common**2).sum() / (count - 1)
    noise = ((centred - common) ** 2).sum() / ((rows - 1) * (count - 1))
    if between + noise == 0:
        return None
    share = (between - noise) / (between + (rows - 1) * noise)
    return float(np.clip(share, 0.0, 1.0))


def _values(cell: CellResult, seeds: Sequence[int]) -> list[float]:
    return [cell.values[seed] for seed in seeds]
