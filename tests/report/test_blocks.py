"""Contrasts agree with those of statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.regression.linear_model import OLS

from ablate.report.blocks import Blocks
from tests.benchmarks import load


@pytest.mark.parametrize("seeds", [2, 3, 4])
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_contrasts_are_those_of_least_squares(seeds: int, missing: int) -> None:
    trust = load("trust")
    drawn = np.random.default_rng(seeds + 10 * missing).normal(size=(4, seeds))
    results = trust.made(drawn, trust.names(4))
    for number in range(missing):
        del results.cells[number + 1].values[number]
    blocks = Blocks(results)
    rows = []
    outcomes = []
    for cell in results.cells:
        for seed, value in cell.values.items():
            rows.append([*np.eye(seeds)[seed][1:], *np.eye(4)[cell.index]])
            outcomes.append(value)
    fit = OLS(outcomes, np.array(rows)).fit()
    assert blocks.freedom == fit.df_resid
    assert blocks.sd == pytest.approx(np.sqrt(fit.scale))
    for weights in ([1, -1, 0, 0], [-0.5, -0.5, 0.5, 0.5], [1, -2, 0, 1]):
        test = fit.t_test(np.array([*[0] * (seeds - 1), *weights]))
        cells = zip(weights, blocks.cells, strict=True)
        estimate = blocks.contrast([(float(w), cell) for w, cell in cells])
        assert estimate is not None
        low, high = test.conf_int().ravel()
        assert estimate.value == pytest.approx(float(test.effect.item()))
        assert estimate.error == pytest.approx(float(test.sd.item()))
        assert estimate.p == pytest.approx(float(test.pvalue))
        assert (estimate.low, estimate.high) == pytest.approx((low, high))
