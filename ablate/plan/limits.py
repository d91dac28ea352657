"""Which limits a cost breaks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence

from ablate.errors import Infeasible
from ablate.records import Cost, Limit

RELATIONS: dict[str, Callable[[float, float], bool]] = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt}


def violated(limits: Sequence[Limit], cost: Cost, baseline: Cost | None) -> Iterator[str]:
    """One sentence for each limit that the cost breaks."""
    for limit in limits:
        if limit.of_baseline and baseline is None:
            raise Infeasible(f"limit {limit}: the baseline itself cannot be built")
        bound = limit.factor * (getattr(baseline, limit.cost) if limit.of_baseline else 1)
        found = getattr(cost, limit.cost)
        if not RELATIONS[limit.relation](found, bound):
            yield (
                f"{limit.cost} = {found:,} breaks the limit {limit} = {bound:,.0f}"
                if limit.of_baseline
                else f"{limit.cost} = {found:,} breaks the limit {limit}"
            )
