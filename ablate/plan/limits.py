"""Checks which limits a cost breaks, and by how much."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

from ablate.errors import AblateError, Infeasible
from ablate.records import Arithmetic, Cost, CostOf, Limit, Term

RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}
OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def violated(
    limits: Sequence[Limit], cost: Cost, baseline: Cost | None
) -> Iterator[str]:
    """Yields one sentence for each limit that the cost breaks."""
    for limit in limits:
        left, right = _sides(limit, cost, baseline)
        if not RELATIONS[limit.relation](left, right):
            expression = limit.text.partition(limit.relation)[0].strip()
            bound = "" if isinstance(limit.right, float) else f" = {_number(right)}"
            yield f"{expression} = {_number(left)} breaks the limit {limit.text}{bound}"


def violations(
    limits: Sequence[Limit], cost: Cost, baseline: Cost | None
) -> dict[str, float]:
    """Returns by how much each limit is broken, as a share of its bound.

    The value is zero or less if the limit is kept.
    """
    amounts = {}
    for limit in limits:
        left, right = _sides(limit, cost, baseline)
        over = (left - right if limit.relation in ("<=", "<") else right - left) / (
            abs(right) or 1.0
        )
        if not RELATIONS[limit.relation](left, right):
            # A strict limit that is met with equality is exceeded by 0, but it is
            # broken. Only a positive value says so.
            amounts[limit.text] = max(over, 1e-9)
        else:
            amounts[limit.text] = min(over, 0.0)
    return amounts


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _sides(limit: Limit, cost: Cost, baseline: Cost | None) -> tuple[float, float]:
    try:
        sides = _value(limit.left, cost, baseline), _value(limit.right, cost, baseline)
        if not all(map(math.isfinite, sides)):
            raise Infeasible(f"limit {limit.text} gives no finite number; rewrite it")
        return sides
    except ZeroDivisionError:
        raise Infeasible(f"limit {limit.text} divides by zero") from None
    except AttributeError:
        # This concerns every cell: none can be compared with a baseline without a cost.
        raise AblateError(
            f"limit {limit.text}: the baseline itself cannot be built; change the"
            " baseline, or leave the limit out"
        ) from None


def _value(term: Term, cost: Cost, baseline: Cost | None) -> float:
    if isinstance(term, Arithmetic):
        return OPERATORS[term.operator](
            _value(term.left, cost, baseline), _value(term.right, cost, baseline)
        )
    if isinstance(term, CostOf):
        return float(getattr(baseline if term.of_baseline else cost, term.name))
    return term
