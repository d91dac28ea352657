"""The linear model behind effects of factors: the mean of each cell, and seeds as
blocks.

In complete blocks (each cell has each seed) the estimates of differences between cells
are those of the mixed model with seed as a random block, whatever its variance, and
Student's t on the residual degrees of freedom is exact (Montgomery, Design and Analysis
of Experiments, 4.1); where seeds are missing, what whole blocks could tell beside is
not used. Seeds are therefore fitted as fixed blocks, by ordinary least squares.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import statsmodels.api as sm

from ablate.errors import AblateError
from ablate.records import CellResult, StudyResults
from ablate.report.verdicts import Estimate

# Means that are fitted at once.
MOST_CELLS = 300
# Relative spread that is rounding.
TINY = 1e-9
Vector = np.ndarray[Any, Any]


class Blocks:
    """A fitted study.

    Args:
        describe: the columns of a cell in the model; by default each cell has a mean of
            its own.

    Raises:
        AblateError: fewer than two cells share two seeds, so there is no spread to
            measure.
    """

    def __init__(
        self,
        results: StudyResults,
        describe: Callable[[CellResult], Vector] | None = None,
    ) -> None:
        self.cells = [cell for cell in results.cells if is_observed(cell)]
        seeds = sorted({seed for cell in self.cells for seed in cell.values})
        place = {cell.index: number for number, cell in enumerate(self.cells)}
        own = np.eye(len(self.cells))
        self._describe = describe or (lambda cell: own[place[cell.index]])
        rows = []
        values = []
        for cell in self.cells:
            for seed, value in sorted(cell.values.items()):
                # The first seed is the one that the others are told from.
                block = np.array(seeds[1:]) == seed
                rows.append(np.concatenate([block, self._describe(cell)]))
                values.append(value)
        self._seeds = len(seeds) - 1
        if len(seeds) < 2 or len(self.cells) < 2:
            raise AblateError(
                f"{results.name}: there is no spread to measure with {len(seeds)} seeds"
                f" in {len(self.cells)} completed cells; two of each are the least,"
                " three seeds a start"
            )
        self._x = np.array(rows)
        with warnings.catch_warnings():
            # Fractional designs are: what they cannot tell apart, `contrast` refuses.
            warnings.filterwarnings("ignore", "The design matrix is rank-deficient")
            self._fit: Any = sm.OLS(np.array(values), self._x).fit()
        if self._fit.df_resid < 1:
            raise AblateError(
                f"{results.name}: its values are as many as its means and seeds, so"
                " there is no spread to measure; add a seed"
            )
        if np.sqrt(self._fit.scale) <= TINY * max(1.0, float(np.abs(values).max())):
            raise AblateError(
                f"{results.name}: all trainings of a cell came to the same, which says"
                " nothing of noise"
            )
        self._span = np.linalg.pinv(self._x) @ self._x

    @property
    def sd(self) -> float:
        """Standard deviation of a single training around its cell's and its seed's
        mean.
        """
        return float(np.sqrt(self._fit.scale))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of `sd`."""
        return float(self._fit.df_resid)

    def contrast(self, weights: Sequence[tuple[float, CellResult]]) -> Estimate | None:
        """A sum of cells by weights that add up to 0, as the model has them; None where
        the data cannot tell it.
        """
        vector = np.concatenate(
            [
                np.zeros(self._seeds),
                sum((w * self._describe(cell) for w, cell in weights), np.zeros(1)),
            ]
        )
        if not np.any(np.abs(vector) > 1e-12) or not np.allclose(
            vector @ self._span, vector, atol=1e-8
        ):
            return None
        test: Any = self._fit.t_test(vector)
        return Estimate.of(
            float(np.ravel(test.effect)[0]), float(np.ravel(test.sd)[0]), self.freedom
        )


def pooled_spread(results: StudyResults) -> tuple[float, float]:
    """Standard deviation of a single training around its cell's and its seed's mean,
    and its degrees of freedom.

    Beyond `MOST_CELLS` seeds are not fitted as blocks: the spread within cells, which
    holds that of seeds too.

    Raises:
        AblateError: there is none to measure.
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
    """Whether a cell has values of its own and is part of the space: no repetition, no
    control.
    """
    return bool(cell.values) and cell.same_as is None and cell.role != "control"


def representatives(
    results: StudyResults, names: Sequence[str]
) -> Mapping[tuple[Any, ...], CellResult]:
    """By its levels of these factors, the cell in which what a cell trains was trained."""
    by_index = {cell.index: cell for cell in results.cells}
    found = {}
    for cell in results.cells:
        if cell.role != "control":
            key = tuple(cell.levels.get(name) for name in names)
            found[key] = cell if cell.same_as is None else by_index[cell.same_as]
    return found
