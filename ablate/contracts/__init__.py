"""What every part must keep: the checks of built-in parts, for users' parts too.

`ablate check FILE` runs them on the parts of a file. The tests run the same functions on
the built-in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ablate.contracts.check import Check
from ablate.contracts.factor import factor_checks
from ablate.contracts.others import (
    backbone_checks,
    data_checks,
    diagnostic_checks,
    loss_checks,
    metric_checks,
    operator_checks,
)
from ablate.contracts.recipe import (
    augmentation_checks,
    optimizer_checks,
    schedule_checks,
)
from ablate.contracts.trainer import trainer_checks
from ablate.own import registry

CHECKS: Mapping[str, Callable[[Any], Iterator[Check]]] = {
    "factor": factor_checks,
    "backbone": backbone_checks,
    "data set": data_checks,
    "loss": loss_checks,
    "optimizer": optimizer_checks,
    "schedule": schedule_checks,
    "augmentation": augmentation_checks,
    "metric": metric_checks,
    "operator": operator_checks,
    "diagnostic": diagnostic_checks,
    "trainer": trainer_checks,
}


def checks() -> Iterator[tuple[str, Check]]:
    """Yields the checks of all loaded parts of users, each with the part's name."""
    for kind, make in CHECKS.items():
        for name, record in registry.of_kind(kind).items():
            for check in make(record):
                yield f"{kind} {name}", check


__all__ = ["CHECKS", "Check", "checks"]
