"""The effect of a row at a size beyond a ladder, before that size is trained.

Two rules are simple, and each fails where the other holds: the effect stays what it is at
the largest size, or it goes on along its line over the logarithm of the axis. The
prediction is the mean of both, and its interval spans the prediction intervals of both.
So it covers effects that stay, effects that go on, and what lies between, such as an
effect that fades ever more slowly (`make bench-across`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ablate.records import LEVEL, Prediction, Status, StudyResults
from ablate.report.across import Array, Size, family_of_sizes
from ablate.report.verdicts import Estimate


def last_weights(doublings: Array) -> Array:
    """Returns the weights of the effects if the effect stays as at the largest size."""
    weights = np.zeros(len(doublings))
    weights[-1] = 1.0
    return weights


def line_weights(doublings: Array, ahead: float) -> Array:
    """Returns the weights of the effects if the effect goes on along its line.

    Args:
        doublings: where the sizes are.
        ahead: where the predicted size is.
    """
    centred = doublings - doublings.mean()
    weights: Array = 1 / len(doublings) + (
        (ahead - doublings.mean()) * centred / (centred**2).sum()
    )
    return weights


def predict(sizes: Sequence[Size], ahead: float, seeds: int) -> list[Prediction]:
    """Returns the predicted effect of each row that has noise to measure at each size.

    Args:
        sizes: all sizes of a ladder.
        ahead: where the predicted size lies, in doublings.
        seeds: the number of its seeds.
    """
    ordered = sorted(sizes, key=lambda size: size.position)
    rows, family = family_of_sizes(ordered)
    if family is None:
        return []
    # A mean over the other seeds would be one of survivors.
    complete = [
        row
        for row in rows
        if all(
            _is_complete(size.results, cell) for size in ordered for cell in (0, row)
        )
    ]
    doublings = np.array([size.doublings for size in ordered])
    both = (last_weights(doublings), line_weights(doublings, ahead))
    predictions = []
    for number, row in enumerate(rows):
        if row not in complete:
            continue
        estimates = [
            predicted(
                weights,
                family.mean[number],
                family.error[number],
                family.freedom[number],
                _seeds_of(ordered[-1], row) / seeds,
            )
            for weights in both
        ]
        predictions.append(
            Prediction(
                row=row,
                value=sum(estimate.value for estimate in estimates) / 2,
                low=min(estimate.low for estimate in estimates),
                high=max(estimate.high for estimate in estimates),
            )
        )
    return predictions


def _is_complete(results: StudyResults, row: int) -> bool:
    return results.cells[row].outcomes == {Status.COMPLETED}


def _seeds_of(size: Size, row: int) -> int:
    cells = size.results.cells
    return len(cells[row].values.keys() & cells[0].values.keys())


def predicted(
    weights: Array, mean: Array, error: Array, freedom: Array, ratio: float = 1.0
) -> Estimate:
    """Returns a weighted sum of effects with the interval of a new mean difference.

    The differences of the new one are taken to have the variance of the largest size.

    Args:
        ratio: the seeds of the largest size, by those of the new one.
        weights: those of the effects at the sizes, by position.
        mean, error, freedom: the effects of a row, with their standard errors and
            degrees of freedom.
    """
    parts = np.append((weights * error) ** 2, error[-1] ** 2 * ratio)
    of_parts = np.append(freedom, freedom[-1])
    # Satterthwaite (1946).
    combined = parts.sum() ** 2 / (parts**2 / of_parts).sum()
    return Estimate.of(
        float(weights @ mean), float(np.sqrt(parts.sum())), float(combined)
    ).at(LEVEL)
