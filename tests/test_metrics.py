"""Each metric has its place in records, training, store and simulation."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from ablate import records
from ablate.execution.simulated import made_up
from ablate.metrics import CURVES, METRICS, values_of
from ablate.space.schema import json_schema
from ablate.store.tables import epochs, trials
from ablate.store.views import STUDY_RESULTS, TRIAL_RESULTS
from ablate.training.loss import MEASURED
from ablate.training.loss import test_sums as sums_of
from tests.training.test_training import RECIPE, trial


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_has_all_its_places(name: str) -> None:
    assert METRICS[name].name == name
    for record in (records.Epoch, records.Tested):
        assert name in [field.name for field in fields(record)]
    for table in (epochs, trials):
        assert name in table.columns
    for view in (TRIAL_RESULTS, STUDY_RESULTS):
        assert f".{name}," in view
    assert name in MEASURED
    assert values_of(made_up(trial(RECIPE), 1))[name] is not None
    assert name in str(json_schema()["properties"]["metric"])


def test_what_is_summed_is_what_is_named() -> None:
    logits = torch.tensor(
        [[2.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]
    )
    sums = dict(
        zip(MEASURED, sums_of(logits, torch.tensor([0, 3])).tolist(), strict=True)
    )
    assert sums["top1"] == 1
    assert sums["top5"] == 2
    assert 2 < sums["loss"] < 4


def test_a_curve_shows_every_metric_and_the_training_loss() -> None:
    assert (*METRICS, "train_loss") == CURVES
    assert set(CURVES) <= {field.name for field in fields(records.Epoch)}
