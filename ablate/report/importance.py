"""The exact share of each factor in the variance of the metric, on a complete grid.

In a grid in which every combination of levels was trained, the variance of the cell
means divides into parts: one for each factor, and one for each group of factors that
act together (functional analysis of variance; Hoeffding 1948, Sobol 1993). Samplers'
importances estimate these shares from a model of the results; here they are sums.

The noise of training adds to every part. What it adds on average is known from the
seeds, and is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.report.factorial import Factorial

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Share:
    """The share of a factor in the variance of the cell means, between 0 and 1.

    Attributes:
        factor: its name.
        main: by its levels, averaged over all other factors.
        total: also by what it does together with others. The total shares add up to
            more than 1 if factors interact.
    """

    factor: str
    main: float
    total: float


def exact_shares(model: Factorial) -> list[Share] | None:
    """Returns the share of each factor, the largest first.

    Returns None if the study is not a complete grid, or if no variance is left after
    the noise is subtracted.
    """
    if not model.is_grid:
        return None
    means, noise, places = model.grid()
    every = np.eye(len(means))
    mean = np.full_like(every, 1 / len(means))
    total = _variance(every - mean, means, noise)
    if total <= 0:
        return None
    shares = []
    for axis, name in enumerate(model.names):
        others = np.delete(places, axis, axis=1)
        # The means over all other factors, around the mean of all cells.
        by_level = _averaging(places[:, [axis]]) - mean
        # The cells, around their means over the levels of this factor.
        around = every - _averaging(others)
        # The parts are estimates: less the noise, one can be larger than the whole.
        whole = min(1.0, _variance(around, means, noise) / total)
        main = min(whole, _variance(by_level, means, noise) / total)
        shares.append(Share(factor=name, main=main, total=whole))
    return sorted(shares, key=lambda share: -share.total)


def _averaging(places: Array) -> Array:
    """Returns the matrix that replaces each cell by the mean of its group.

    Args:
        places: shape (cells, axes). Cells with equal rows are a group.
    """
    same = (places[:, None, :] == places[None, :, :]).all(axis=2)
    matrix: Array = same / same.sum(axis=1, keepdims=True)
    return matrix


def _variance(part: Array, means: Array, noise: Array) -> float:
    """Returns the variance of a part of the cell means, without that of the noise.

    Args:
        part: a projection, shape (cells, cells).
        means: shape (cells,).
        noise: the covariance of the means from training, shape (cells, cells).
    """
    share = float(means @ part @ means) - float((part * noise).sum())
    return max(0.0, share / len(means))
