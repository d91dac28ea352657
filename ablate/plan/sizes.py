"""Whether the plans of all sizes have the same rows, and differ in size."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.errors import AblateError
from ablate.records import Across, Cell, Plan, level_text


def refuse_unlike(plans: Sequence[Plan]) -> None:
    """Raises AblateError unless every row is trained at every size, and sizes differ.

    Args:
        plans: the plan of each size; a plan without sizes is alone.
    """
    across = plans[0].space.across
    if across is None or len(plans) == 1:
        return
    for number, plan in enumerate(plans):
        # Which controls there are depends on costs, and so on the size.
        rows = zip(_rows(plans[0]), _rows(plan), strict=True)
        for cell, other in rows:
            _refuse_unlike_cells(across, cell, other, number)
    _refuse_equal_sizes(across, plans)


def _refuse_unlike_cells(across: Across, first: Cell, other: Cell, number: int) -> None:
    if _is_trained(first) == _is_trained(other) and first.same_as == other.same_as:
        return
    missing, size = (other, number) if _is_trained(first) else (first, 0)
    levels = ", ".join(
        f"{name} = {level_text(level)}" for name, level in missing.levels.items()
    )
    raise AblateError(
        f"across: every row is trained at every size, but row {missing.index} ({levels})"
        f" cannot be at {across.axis} = {level_text(across.all_sizes[size])}:"
        f" {missing.note or 'its trials differ'}; change this size, or leave the level"
        " out"
    )


def _rows(plan: Plan) -> list[Cell]:
    return [cell for cell in plan.cells if cell.role != "control"]


def _is_trained(cell: Cell) -> bool:
    return bool(cell.trials or cell.at_settings)


def _refuse_equal_sizes(across: Across, plans: Sequence[Plan]) -> None:
    remedy = "per: number" if across.per == "params" else "per: number, or per: params"
    by_trial: dict[str, str] = {}
    by_position: dict[float, str] = {}
    for plan in plans:
        at = plan.space.across or across
        size = level_text(at.size)
        row_0 = plan.cells[0]
        key = row_0.trials[0].hash if row_0.trials else size
        if key in by_trial:
            raise AblateError(
                f"across: {across.axis} changes nothing: row 0 trains the same network at"
                f" {by_trial[key]} and at {size}; name an axis that the model reads"
            )
        by_trial[key] = size
        position = at.position(row_0.cost, plan.space.images_seen)
        if position is None:
            raise AblateError(
                f"across: the {across.unit} of row 0 is not known; write per: number,"
                " or per: params"
            )
        if position in by_position:
            raise AblateError(
                f"across: row 0 has the same {across.unit} at {across.axis} ="
                f" {by_position[position]} and {size}, so nothing is doubled; write"
                f" {remedy}"
            )
        if at.is_predicted and position < max(by_position):
            raise AblateError(
                f"across: predict is for a size beyond the others, but row 0 has less"
                f" {across.unit} at {size} than at {by_position[max(by_position)]}; name"
                " a larger size"
            )
        by_position[position] = size
