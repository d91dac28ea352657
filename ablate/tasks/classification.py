"""Image classification."""

from __future__ import annotations

from ablate.records import Metric

METRICS = (
    Metric(
        "top1",
        title="top-1 (%)",
        unit=" points",
        digits=2,
        margin=0.5,
        direction="max",
    ),
    Metric(
        "top5",
        title="top-5 (%)",
        unit=" points",
        digits=2,
        margin=0.5,
        direction="max",
    ),
    Metric("loss", digits=4, margin=0.02, direction="min"),
    Metric("train_loss", digits=4, direction="min", compared=False),
)
