"""Iso-cost controls: the baseline, in the width at which it costs as much as a variant.

They separate a gain from an effect of capacity.
"""

from __future__ import annotations

from ablate import families
from ablate.errors import AblateError, Infeasible
from ablate.plan.cells import Cells
from ablate.records import Cell, Settings, Space

WIDTH = "size.width"


def add_controls(space: Space, made: Cells) -> None:
    """Adds a control for each variant, as a row of its own.

    If the baseline itself is nearest in cost, it is the control. It gets a row if it
    has none.

    Raises:
        AblateError: the baseline cannot be built, or its width cannot be changed.
    """
    cost = space.control.removeprefix("iso-")
    settings = {**space.factors.fixed, **space.factors.baseline}
    backbone = families.untagged(space.network.backbone)
    family = families.find(backbone)
    unmodified = family.dimensions(backbone)
    width = int(settings.get(WIDTH, unmodified.width))
    heads = int(settings.get("size.heads", unmodified.heads))
    if "width" not in family.sizes:
        raise AblateError(
            f"control: {WIDTH} cannot be changed on {backbone}, so this backbone has"
            " no control of the same cost; leave out the key `control`"
        )
    if made.baseline.cost is None:
        raise AblateError(
            f"control: the baseline cannot be built: {made.baseline.refusal}; leave the"
            " control out"
        )
    # The width must stay a multiple of the number of heads.
    step = max(heads, 1)
    # In leave-one-out it usually has no row.
    has_baseline = any(cell.levels == space.factors.baseline for cell in made.cells)
    for variant in [
        cell for cell in made.cells if cell.role == "variant" and cell.feasible
    ]:
        nearest = _nearest(space, made, variant, cost, width, step)
        if nearest != width:
            made.add(_widened(space, nearest), control_of=variant.index)
        elif not has_baseline:
            made.add(space.factors.baseline, control_of=variant.index)


def _nearest(
    space: Space, made: Cells, variant: Cell, cost: str, width: int, step: int
) -> int:
    """Returns the width whose cost is nearest to that of the variant.

    Widths are in steps of one channel per head. The cost grows with the width.
    """
    assert variant.cost is not None and made.baseline.cost is not None
    target = getattr(variant.cost, cost)
    gaps = {width: abs(getattr(made.baseline.cost, cost) - target)}
    # The cost grows with about the square of the width, which gives a first guess. From
    # there, the search descends to the nearest minimum.
    guess = (
        round(width * (target / getattr(made.baseline.cost, cost)) ** 0.5 / step) * step
    )
    at = max(step, guess)
    while True:
        for there in (at - step, at, at + step):
            if there >= step and there not in gaps:
                gaps[there] = _gap(space, made, there, cost, target)
        best = min(
            (there for there in (at - step, at, at + step) if there in gaps),
            key=lambda there: gaps[there],
        )
        if best == at:
            break
        at = best
    return min(gaps, key=lambda there: (gaps[there], abs(there - width)))


def _gap(space: Space, made: Cells, width: int, cost: str, target: int) -> float:
    try:
        return float(abs(getattr(made.cost(_widened(space, width)), cost) - target))
    except Infeasible:
        return float("inf")


def _widened(space: Space, width: int) -> Settings:
    return {**space.factors.baseline, WIDTH: width}
