"""The linear model behind effects of factors: a mean per cell, with seeds as blocks.

Seeds are fitted as fixed blocks by ordinary least squares. In complete blocks (each
cell has each seed), the estimated differences between cells are those of the mixed
model with seed as a random block, whatever its variance, and Student's t on the
residual degrees of freedom is exact (Montgomery, Design and Analysis of Experiments,
4.1). If seeds are missing, fixed blocks ignore the information that comparing whole
blocks would add.

The pooled residual assumes that an effect is the same for every seed. From `BY_SEED`
seeds on, a contrast in complete blocks does not rely on it: it is computed seed by
seed, and Student's t over the seeds gives its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ablate.errors import AblateError
from ablate.records import CellResult, StudyResults
from ablate.report.verdicts import Estimate
from ablate.statistics.numbers import scale_of

# The largest number of cells whose means are fitted in one model.
MOST_CELLS = 300
# From this number of seeds on, contrasts are computed seed by seed.
BY_SEED = 5
# A relative spread below this is rounding error.
TINY = 1e-9
Vector = np.ndarray[Any, Any]


@lru_cache(maxsize=8)
def _solved(design: bytes, columns: int) -> tuple[Vector, int]:
    """Returns the pseudo-inverse and the rank of a design, from one decomposition.

    Several tables and figures of a report fit the same design.

    Args:
        design: its float64 numbers, row by row.
        columns: their number.
    """
    x = np.frombuffer(design, dtype=np.float64).reshape(-1, columns)
    left, singular, right = np.linalg.svd(x, full_matrices=False)
    # The limits are those of `numpy.linalg.pinv` and `matrix_rank`.
    largest = singular.max(initial=0.0)
    rank = int((singular > largest * max(x.shape) * np.finfo(x.dtype).eps).sum())
    inverse = np.zeros_like(singular)
    large = singular > 1e-15 * largest
    inverse[large] = 1 / singular[large]
    return right.T @ (inverse[:, None] * left.T), rank


class Blocks:
    """A fitted study.

    Args:
        describe: returns the columns of a cell in the model; by default each cell has
            its own mean.

    Raises:
        AblateError: there is no spread to measure, as fewer than two cells share two
            seeds.
    """

    def __init__(
        self,
        results: StudyResults,
        describe: Callable[[CellResult], Vector] | None = None,
    ) -> None:
        self.cells = [cell for cell in results.cells if is_observed(cell)]
        seeds = sorted({seed for cell in self.cells for seed in cell.values})
        position = {cell.index: number for number, cell in enumerate(self.cells)}
        identity = np.eye(len(self.cells))
        self._describe = describe or (lambda cell: identity[position[cell.index]])
        rows = []
        values = []
        for cell in self.cells:
            for seed, value in sorted(cell.values.items()):
                # The first seed is the reference level of the seed columns.
                block = np.array(seeds[1:]) == seed
                rows.append(np.concatenate([block, self._describe(cell)]))
                values.append(value)
        if scale_of(values) != 1:
            raise AblateError(
                f"{results.name}: the result {max(values, key=abs):.6g} is too large: its"
                " square, which measures the spread, is beyond what a float can hold"
            )
        self._seeds = len(seeds) - 1
        if len(seeds) < 2 or len(self.cells) < 2:
            raise AblateError(
                f"{results.name}: the spread cannot be measured with {len(seeds)}"
                f" seeds in {len(self.cells)} completed cells; train at least two"
                " cells with at least two seeds each; three seeds are better"
            )
        self._x = np.array(rows)
        self._values = np.array(values)
        self._count = len(seeds)
        self._complete = len(rows) == len(seeds) * len(self.cells)
        # Fractional designs are rank-deficient, and the pseudo-inverse gives the shortest
        # solution. `contrast` refuses the effects that such a design cannot separate.
        self._solve, rank = _solved(self._x.tobytes(), self._x.shape[1])
        self._freedom = len(values) - rank
        if self._freedom < 1:
            raise AblateError(
                f"{results.name}: there are too few results to estimate the spread,"
                " because the means of cells and seeds leave no degree of freedom; add"
                " a seed"
            )
        residuals = self._values - self._x @ (self._solve @ self._values)
        self._variance = float(residuals @ residuals) / self._freedom
        if self.sd <= TINY * max(1.0, float(np.abs(values).max())):
            raise AblateError(
                f"{results.name}: the differences between cells are the same for all"
                " seeds, which contains no information about noise"
            )
        # The projection onto the row space of X: a contrast is estimable if and only if
        # it lies in there.
        self._span = self._solve @ self._x

    @property
    def sd(self) -> float:
        """Standard deviation of a single training around its cell's and seed's mean."""
        return math.sqrt(self._variance)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of `sd`."""
        return float(self._freedom)

    @property
    def by_seed(self) -> bool:
        """Whether contrasts are computed seed by seed."""
        return self._complete and self._count >= BY_SEED

    @property
    def values(self) -> Vector:
        """All results, cell by cell in the order of their seeds."""
        return self._values

    def row_of_mean(self, cell: CellResult) -> Vector:
        """Returns the weights of all results in the mean of a cell.

        The mean is that of the first seed, so only differences between cells count.
        """
        columns = np.concatenate([np.zeros(self._seeds), self._describe(cell)])
        weights: Vector = columns @ self._solve
        return weights

    def contrast(self, weights: Sequence[tuple[float, CellResult]]) -> Estimate | None:
        """Estimates a weighted sum of cells, with weights that add up to 0.

        Returns None if the data do not determine it.
        """
        vector = np.concatenate(
            [
                # The weights add up to 0, so the seed columns cancel.
                np.zeros(self._seeds),
                sum((w * self._describe(cell) for w, cell in weights), np.zeros(1)),
            ]
        )
        if not np.any(np.abs(vector) > 1e-12) or not np.allclose(
            vector @ self._span, vector, atol=1e-8
        ):
            return None
        if self.by_seed:
            estimate = self._over_seeds(vector)
            if estimate is not None:
                return estimate
        of_results = vector @ self._solve
        value = float(of_results @ self._values)
        error = self.sd * float(np.linalg.norm(of_results))
        return Estimate.of(value, error, self.freedom)

    def _over_seeds(self, vector: Vector) -> Estimate | None:
        """Estimates a contrast seed by seed; None if all seeds give the same value."""
        # The weight of each result. Cells follow each other, and each has every seed.
        weights = (vector @ self._solve).reshape(-1, self._count)
        values = self._values.reshape(-1, self._count)
        each = self._count * (weights * values).sum(axis=0)
        error = each.std(ddof=1) / np.sqrt(self._count)
        if error <= TINY * max(1.0, float(np.abs(self._values).max())):
            return None
        return Estimate.of(float(each.mean()), float(error), self._count - 1)


def pooled_spread(results: StudyResults) -> tuple[float, float]:
    """Returns the standard deviation of a single training, and its degrees of freedom.

    It is taken around the mean of the cell and of the seed. With more than `MOST_CELLS`
    cells, seeds are not fitted as blocks; the result is then the spread within cells,
    which includes that between seeds.

    Raises:
        AblateError: there is no spread to measure.
    """
    cells = [cell for cell in results.cells if is_observed(cell)]
    if len(cells) <= MOST_CELLS:
        blocks = Blocks(results)
        return blocks.sd, blocks.freedom
    repeated = [list(cell.values.values()) for cell in cells if len(cell.values) > 1]
    freedom = sum(len(values) - 1 for values in repeated)
    if not freedom:
        raise AblateError(
            f"{results.name}: no cell has two seeds, so there is no spread to measure"
        )
    return float(
        np.sqrt(
            sum((len(values) - 1) * np.var(values, ddof=1) for values in repeated)
            / freedom
        )
    ), float(freedom)


def is_observed(cell: CellResult) -> bool:
    """Whether a cell has values of its own and is part of the space.

    Folded cells and controls are not.
    """
    return bool(cell.values) and cell.same_as is None and cell.role != "control"


def representatives(
    results: StudyResults, names: Sequence[str]
) -> Mapping[tuple[Any, ...], CellResult]:
    """Returns, by levels of these factors, the cell that was trained for them.

    For a folded cell that is the cell that it repeats.
    """
    by_index = {cell.index: cell for cell in results.cells}
    cells = {}
    for cell in results.cells:
        if cell.role != "control":
            key = tuple(cell.levels.get(name) for name in names)
            cells[key] = cell if cell.same_as is None else by_index[cell.same_as]
    return cells
