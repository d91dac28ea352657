"""The rule by which an order's trials are stopped early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.records import Order

if TYPE_CHECKING:
    from ablate.execution.tune_schedulers import StoppingRule


def make_stopping_rule(order: Order) -> StoppingRule | None:
    """Returns the rule that stops an order's trials early; None if there is none."""
    if order.scheduler.name == "fifo":
        return None
    from ablate.execution.tune_schedulers import StoppingRule

    return StoppingRule(order)
