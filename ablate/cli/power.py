"""What a plan can find: the differences that its number of seeds shows."""

from __future__ import annotations

from ablate.records import Metric, Plan
from ablate.report.noise import MOST_ROWS
from ablate.report.power import POWER, detectable, detectable_alone, sd_of_training
from ablate.scheduling.preview import Preview
from ablate.scheduling.until_decided import results_of

# Numbers of seeds that are compared with that of the plan.
LADDER = (3, 5, 10, 20)
# Larger differences need no test.
MOST_SD = 50


def power_lines(shown: Preview) -> list[str]:
    """Returns lines about the differences that a design finds.

    There are none for a search, and for more rows than are simulated together.
    """
    plan = shown.full_plan or shown.plan
    rows = _comparisons(plan)
    if plan.space.strategy is not None or not 0 < rows <= MOST_ROWS:
        return []
    primary = [one for one in plan.space.primary if not isinstance(one, str)]
    sd = sd_of_training(results_of(plan, shown.known))
    metric = plan.space.compared
    seeds = max(len(cell.trials) for cell in plan.cells)
    more = [number for number in LADDER if number > seeds][:2]
    # A later phase has a smaller level, and no simulation of its own.
    once = " by a study that is declared once" if shown.history.last else ""
    lines = [f"Differences that are found{once} with {100 * POWER:g} % probability:"]
    for number in (seeds, *more):
        line = f"  {_seeds(number)}: {_difference(plan, number, sd)}"
        if primary and number > 1:
            alone = detectable_alone(number, final=plan.space.final)
            size = _text(alone, sd, metric)
            line += f" (primary comparison: {size})"
        lines.append(line)
    if sd is None:
        lines.append("  (sd: standard deviation of a single training)")
    else:
        noise = f"{sd:.{metric.digits}f}{metric.unit}"
        lines.append(f"  (sd: standard deviation of a single training; so far {noise})")
    return lines


def _comparisons(plan: Plan) -> int:
    """Returns the number of rows that are compared with row 0."""
    return sum(
        bool(cell.trials) and cell.role != "control" and cell.same_as is None
        for cell in plan.cells[1:]
    )


def _seeds(number: int) -> str:
    return f"{number} seed{'s' if number > 1 else ' '}"


def _difference(plan: Plan, seeds: int, sd: float | None) -> str:
    if seeds < 2:
        return "none; a verdict needs at least two seeds"
    size = detectable(_comparisons(plan), seeds, final=plan.space.final)
    return _text(size, sd, plan.space.compared)


def _text(size: float, sd: float | None, metric: Metric) -> str:
    if size > MOST_SD:
        return f"none below {MOST_SD} sd"
    text = f"{size:.1f} sd"
    if sd is None:
        return text
    return f"{text}, or {size * sd:.{metric.digits}f}{metric.unit}"
