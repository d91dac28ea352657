"""The metrics that training yields: what a space may name, and how each is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One metric. Epochs and tests have a field of its name, and so has the store."""

    # In YAML, SQL and code.
    name: str
    # In tables, charts and pages.
    title: str
    # After a difference of two values, with a space before it.
    unit: str
    # Digits after the decimal point.
    digits: int
    # Least difference that matters, unless the space declares another.
    margin: float


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("top1", title="top-1 (%)", unit=" points", digits=2, margin=0.5),
        Metric("top5", title="top-5 (%)", unit=" points", digits=2, margin=0.5),
        Metric("loss", title="loss", unit="", digits=4, margin=0.02),
    )
}
# What a learning curve can show.
CURVES = (*METRICS, "train_loss")


def values_of(measured: object) -> dict[str, float]:
    """The value of each metric in an `Epoch` or a `Tested`."""
    return {name: getattr(measured, name) for name in METRICS}
