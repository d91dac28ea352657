"""A space to a plan: all cells of its design, with their trials."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.errors import AblateError
from ablate.plan.cells import Cells, Costs, points_of, unread_reason
from ablate.plan.controls import add_controls
from ablate.plan.designs import combinations
from ablate.records import (
    Cell,
    Plan,
    Space,
)

# The largest number of trials in a plan; each takes a kilobyte of memory before
# training.
MOST_TRIALS = 1_000_000


def make_plan(space: Space, costs: Costs) -> Plan:
    """Returns all cells of a space's design, with the trials of each.

    Args:
        costs: returns the cost of an architecture; raises Infeasible if it cannot be
            built.
    """
    made = Cells(space, costs)
    listed = combinations(space)
    _refuse_too_many(space, len(listed))
    for levels in listed:
        made.add(levels)
    _refuse_what_no_cell_reads(space, made.cells)
    if space.control:
        add_controls(space, made)
    return Plan(space, tuple(made.cells))


def _refuse_too_many(space: Space, cells: int) -> None:
    """Raises AblateError if a plan would have too many trials."""
    seeds = len(space.seeds.of_row_0)
    trials = cells * seeds
    settings = fewer = ""
    if space.tune is not None:
        points = len(space.tune.points)
        choices = seeds if space.tune.repeat else 1
        trials += cells * points * space.tune.seeds * choices
        settings = f" and {points:,} settings under tune"
        fewer = " fewer settings,"
    if trials > MOST_TRIALS:
        raise AblateError(
            f"{space.name} has {cells:,} cells of {len(space.seeds.numbers):,} seeds"
            f"{settings}: more than {MOST_TRIALS:,} trials; use{fewer} fewer seeds, or"
            " design: {name: random, cells: N}"
        )


def _refuse_what_no_cell_reads(space: Space, cells: Sequence[Cell]) -> None:
    """Raises AblateError if no cell reads a setting.

    A setting that is accepted and then ignored everywhere would be a misleading label.
    """
    at_points = [point for cell in cells for point in points_of(space, cell.levels)]
    for name in (*space.factors.fixed, *space.factors.levels):
        if all(unread_reason(space, name, levels) for levels in at_points):
            reason = unread_reason(space, name, at_points[0])
            raise AblateError(
                f"{space.name}: no cell reads {name}: {reason}; leave {name} out"
            )
    for name in space.tune.names if space.tune else ():
        if all(unread_reason(space, name, levels) for levels in at_points):
            reason = unread_reason(space, name, at_points[0])
            raise AblateError(
                f"{space.name}: no row reads {name} under tune: {reason}; leave {name} out"
            )
