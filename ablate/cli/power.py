"""What a plan can find: the differences that its number of seeds shows."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ablate.machine.cpus import usable_cpus
from ablate.records import Metric, Plan
from ablate.report.family import sd_of_training
from ablate.report.ledger import compared_cells
from ablate.report.numbers import fixed
from ablate.scheduling.preview import Preview
from ablate.scheduling.until_decided import results_of
from ablate.statistics.noise import MOST_ROWS
from ablate.statistics.power import POWER, detectable

# Numbers of seeds that are compared with that of the plan.
LADDER = (3, 5, 8, 12, 20)
# Up to this number of seeds, more seeds of row 0 gain much.
FEW_SEEDS = 5
# Larger differences need no test.
MOST_SD = 50


@dataclass(frozen=True)
class _Seeds:
    """Numbers of seeds, whose power is printed.

    Attributes:
        looks: those of a row, at each look.
        baseline: those of row 0; 0: as many as a row has.
    """

    looks: tuple[int, ...]
    baseline: int = 0

    @property
    def text(self) -> str:
        seeds = self.looks[-1]
        text = f"{seeds} seed{'s' if seeds > 1 else ' '}"
        return f"{text}, {self.baseline} of row 0" if self.baseline else text


def power_lines(shown: Preview, *, details: bool = False) -> list[str]:
    """Returns lines about the differences that a design finds.

    There are none for a search, and for more rows than are simulated together.

    Args:
        details: also those that other numbers of seeds find.
    """
    plan = shown.full_plan or shown.plan
    rows = _comparisons(plan)
    if plan.space.strategy is not None or not 0 < rows <= MOST_ROWS:
        return []
    seeds = len(plan.space.seeds.numbers)
    if seeds < 2:
        return ["A verdict needs at least two seeds for each row."]
    mine, more_of_row_0, *others = _numbers(shown, plan)
    gains = seeds <= FEW_SEEDS and plan.space.seeds.baseline is None
    if not details and not gains:
        return []
    listed = [mine, more_of_row_0] if gains else [mine]
    if details:
        listed += others
    # Simulations leave Python's lock most of the time.
    with ThreadPoolExecutor(usable_cpus()) as pool:
        sizes = list(
            pool.map(
                lambda each: detectable(rows, each.looks, baseline=each.baseline),
                listed,
            )
        )
    sd = sd_of_training(
        results_of(shown.plan if plan.space.tune else plan, shown.known)
    )
    metric = plan.space.criterion.compared
    lines = [f"Differences that are found with {100 * POWER:g} % probability:"]
    for each, size in zip(listed, sizes, strict=True):
        line = f"  {each.text}: {_text(size, sd, metric)}"
        if each is more_of_row_0:
            more = each.baseline - each.looks[-1]
            line += f" (seeds: {{count: {seeds}, baseline: {each.baseline}}}, {more} more trials)"
        lines.append(line)
    if details and plan.space.criterion.primary and not shown.before.studies:
        size = detectable(1, mine.looks, baseline=mine.baseline)
        lines.append(f"  the first primary comparison: {_text(size, sd, metric)}")
    if details:
        lines += [
            "  (sd: standard deviation over seeds, after subtracting from each result the",
            "  mean that its seed has over all rows; more seeds of row 0 gain less if a",
            "  seed shifts all rows alike)",
        ]
        if sd is not None:
            lines.append(f"  (sd so far: {fixed(sd, metric.digits)}{metric.unit})")
    return lines


def _numbers(shown: Preview, plan: Plan) -> Sequence[_Seeds]:
    """Returns the numbers of seeds of a plan, the same with more of row 0, and larger
    ones.
    """
    seeds = plan.space.seeds
    count = len(seeds.numbers)
    # The looks that earlier studies have taken at these rows.
    taken = {
        len(row.statuses)
        for study in shown.before.studies
        for row in compared_cells(study)
    }
    looks = (*sorted({n for n in taken if 1 < n < count}), count)
    if seeds.looks is not None:
        looks = seeds.looks.at
    return (
        _Seeds(looks, seeds.baseline or 0),
        _Seeds(looks, 2 * count),
        *(_Seeds((number,)) for number in [n for n in LADDER if n > count][:2]),
    )


def _comparisons(plan: Plan) -> int:
    """Returns the number of rows that are compared with row 0."""
    return sum(
        bool(cell.trials) and cell.role != "control" and cell.same_as is None
        for cell in plan.cells[1:]
    )


def _text(size: float, sd: float | None, metric: Metric) -> str:
    if size > MOST_SD:
        return f"none below {MOST_SD} sd"
    text = f"{size:.1f} sd"
    if sd is None:
        return text
    return f"{text}, or {fixed(size * sd, metric.digits)}{metric.unit}"
