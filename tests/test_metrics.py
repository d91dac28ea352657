"""The metrics of the built-in task have their place in training and in the store."""

from __future__ import annotations

import pytest
import torch

from ablate.execution.simulated import made_up
from ablate.records import Metric
from ablate.space.schema import json_schema
from ablate.store.views import STATIC
from ablate.tasks.classification import MEASURES, METRICS
from tests.training.test_training import RECIPE, trial


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_has_all_its_places(metric: Metric) -> None:
    for view in ("trial_results", "study_results", "epoch_results"):
        assert metric.name in STATIC[view]
    assert metric.name in made_up(trial(RECIPE), 1).metrics


def test_an_editor_offers_a_metric() -> None:
    assert METRICS[0].name in str(json_schema()["properties"]["metric"])


def test_what_is_summed_is_what_is_named() -> None:
    logits = torch.tensor(
        [[2.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]
    )
    labels = torch.tensor([0, 3])
    sums = {one.metric.name: one.sum(logits, labels).item() for one in MEASURES}
    assert sums["top1"] == 1
    assert sums["top5"] == 2
    assert 2 < sums["loss"] < 4
