"""Metrics of users' files, which a trial measures beside the built-in ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ablate.errors import AblateError
from ablate.own import registry
from ablate.records import Trial
from ablate.records.own_parts import OwnMetric


def metrics_of(trial: Trial) -> list[OwnMetric]:
    """The users' metrics that belong to a trial."""
    # The plan has refused names of built-in metrics.
    metrics: Mapping[str, OwnMetric] = registry.of_kind("metric")
    return [
        metric for name, metric in metrics.items() if f"metric {name}" in trial.code
    ]


def refuse_not_finite(measured: Mapping[str, float], epoch: int) -> None:
    """Raises AblateError if a metric is not a finite number."""
    for name, value in measured.items():
        if not math.isfinite(value):
            raise AblateError(
                f"the metric {name} is {value} after epoch {epoch}; it must be a finite"
                " number"
            )
