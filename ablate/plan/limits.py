"""Checks which limits a cell breaks, and by how much."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

from ablate.errors import AblateError, Infeasible
from ablate.records import (
    Arithmetic,
    Cost,
    CostOf,
    LevelOf,
    Limit,
    Settings,
    Term,
    is_number,
    level_text,
)

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
    limits: Sequence[Limit], cost: Cost, baseline: Cost | None, settings: Settings
) -> Iterator[str]:
    """Yields one sentence for each limit that a cell breaks.

    Args:
        cost: of the cell.
        baseline: the cost of the baseline; None if it cannot be built.
        settings: the levels of all factors that the space names.
    """
    for limit in limits:
        left, right = _sides(limit, cost, baseline, settings)
        if not RELATIONS[limit.relation](left, right):
            expression = limit.text.partition(limit.relation)[0].strip()
            bound = "" if isinstance(limit.right, float) else f" = {_number(right)}"
            yield f"{expression} = {_number(left)} breaks the limit {limit.text}{bound}"


def violations(
    limits: Sequence[Limit], cost: Cost, baseline: Cost | None, settings: Settings
) -> dict[str, float]:
    """Returns by how much each limit is broken, as a share of its bound.

    The value is zero or less if the limit is kept.
    """
    amounts = {}
    for limit in limits:
        left, right = _sides(limit, cost, baseline, settings)
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


def _sides(
    limit: Limit, cost: Cost, baseline: Cost | None, settings: Settings
) -> tuple[float, float]:
    def value(term: Term) -> float:
        if isinstance(term, Arithmetic):
            return OPERATORS[term.operator](value(term.left), value(term.right))
        if isinstance(term, CostOf):
            return float(getattr(baseline if term.of_baseline else cost, term.name))
        if isinstance(term, LevelOf):
            return _number_at(limit, term.factor, settings)
        return term

    try:
        sides = value(limit.left), value(limit.right)
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


def _number_at(limit: Limit, factor: str, settings: Settings) -> float:
    level = settings.get(factor)
    if not is_number(level):
        raise Infeasible(
            f"limit {limit.text}: {factor} is {level_text(level)} here, which is no"
            " number"
        )
    return float(level)
