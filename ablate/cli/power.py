"""What a plan can find: the differences that its number of seeds shows."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ablate.machine.cpus import usable_cpus
from ablate.records import Metric, Plan, Primary
from ablate.report.family import sd_of_training
from ablate.report.numbers import fixed
from ablate.report.verdicts import level_of_look
from ablate.report.wording import percent
from ablate.scheduling.preview import Preview
from ablate.scheduling.until_decided import results_of
from ablate.statistics.noise import MOST_ROWS
from ablate.statistics.power import POWER, detectable, detectable_alone

# Numbers of seeds that are compared with that of the plan.
LADDER = (3, 5, 10, 20)
# What is tried in place of equal numbers of seeds: so many fewer for each row, and at most
# this multiple of their seeds for row 0 beside.
MOST_FEWER = 2
MOST_EXTRA = 4
# A split is shown if its difference is at most this part of the other one.
LEAST_GAIN = 0.97
# Larger differences need no test.
MOST_SD = 50


def power_lines(shown: Preview, *, splits: bool = False) -> list[str]:
    """Returns lines about the differences that a design finds.

    There are none for a search, and for more rows than are simulated together.

    Args:
        splits: simulate other numbers of seeds for row 0, which takes some seconds.
    """
    plan = shown.full_plan or shown.plan
    rows = _comparisons(plan)
    if plan.space.strategy is not None or not 0 < rows <= MOST_ROWS:
        return []
    generation = shown.generation
    if not generation.level:
        # Nothing is tested: see `generation_lines`.
        return []
    declared = generation.primary(plan.space.criterion.primary)
    primary = [comparison for comparison in declared if not isinstance(comparison, str)]
    sd = sd_of_training(
        results_of(shown.plan if plan.space.tune else plan, shown.known)
    )
    metric = plan.space.criterion.compared
    tested = ""
    if not generation.is_first:
        tested = f", tested at {percent(generation.level)}"
        if plan.space.seeds.looks is not None:
            tested += " in all looks together"
    lines = [f"Differences that are found with {100 * POWER:g} % probability{tested}:"]
    numbers = [
        (seeds, level, max((plan.space.seeds.baseline or 0) - seeds, 0))
        for seeds, level in _numbers(plan, generation.level)
    ]
    # Simulations leave Python's lock most of the time.
    with ThreadPoolExecutor(usable_cpus()) as pool:
        differences = list(
            pool.map(lambda number: _difference(plan, sd, *number), numbers)
        )
    for (seeds, level, extra), difference in zip(numbers, differences, strict=True):
        line = f"  {_seeds(seeds)}: {difference}"
        if extra:
            line += f" ({seeds + extra} of row 0)"
        line += _primary_text(primary, seeds, level, sd, metric)
        lines.append(line)
    if splits:
        lines += _split_lines(plan, generation.level, sd)
    lines += [
        "  (sd: standard deviation over seeds, after subtracting from each result the",
        "  mean that its seed has over all rows)",
    ]
    if sd is not None:
        lines.append(f"  (sd so far: {fixed(sd, metric.digits)}{metric.unit})")
    grows = plan.space.seeds.looks is not None or plan.space.tune is not None
    if not grows and generation.next_level:
        lines += [
            f"  (seeds that you add after results are tested at"
            f" {percent(generation.next_level)}; to add seeds where they are",
            "  needed, at the level of this study, declare seeds: {until_decided: N} now)",
        ]
    return lines


def _primary_text(
    primary: Sequence[Primary],
    seeds: int,
    level: float,
    sd: float | None,
    metric: Metric,
) -> str:
    """Returns the difference that is found of the first primary comparison."""
    if not primary or seeds < 2:
        return ""
    size = _text(detectable_alone(seeds, level), sd, metric)
    return f" (primary comparison: {size})"


def _comparisons(plan: Plan) -> int:
    """Returns the number of rows that are compared with row 0."""
    return sum(
        bool(cell.trials) and cell.role != "control" and cell.same_as is None
        for cell in plan.cells[1:]
    )


def _seeds(number: int) -> str:
    return f"{number} seed{'s' if number > 1 else ' '}"


def _numbers(plan: Plan, level: float) -> list[tuple[int, float]]:
    """Returns numbers of seeds with the level of their test.

    A design is compared with larger ones. If seeds are added until the study is
    decided, these are the first look and the last one.
    """
    looks = plan.space.seeds.looks
    if looks is None:
        seeds = len(plan.space.seeds.numbers)
        more = [number for number in LADDER if number > seeds][:2]
        return [(number, level) for number in (seeds, *more)]
    numbers = []
    # What the looks between find too is left out, so the last number is a little too
    # large: a study finds at least this difference.
    for look in (0, looks.number - 1):
        numbers.append((looks.at[look], level_of_look(looks, look, level)))
    return numbers


def _split_lines(plan: Plan, level: float, sd: float | None) -> list[str]:
    """Returns how the same number of trials finds a smaller difference, if any way does:
    with more seeds of row 0, and fewer of the other rows.
    """
    seeds = plan.space.seeds
    rows, each = _comparisons(plan), len(seeds.numbers)
    if seeds.looks is not None or seeds.baseline is not None or rows < 2 or each < 3:
        return []
    best = detectable(rows, each, level)
    lines: list[str] = []
    for fewer in range(max(2, each - MOST_FEWER), each):
        extra = (each - fewer) * (rows + 1)
        if extra > MOST_EXTRA * fewer:
            continue
        size = detectable(rows, fewer, level, extra=extra)
        if size < best * LEAST_GAIN:
            best = size
            lines = [
                f"  the same {each * (rows + 1)} trials as seeds: {{count: {fewer},"
                f" baseline: {fewer + extra}}}: {_text(size, sd, plan.space.criterion.compared)}",
                "  (if a seed does not shift all rows alike; baseline: seeds of row 0)",
            ]
    return lines


def _difference(
    plan: Plan, sd: float | None, seeds: int, level: float, extra: int
) -> str:
    if seeds < 2:
        return "none; a verdict needs at least two seeds"
    size = detectable(_comparisons(plan), seeds, level, extra=extra)
    return _text(size, sd, plan.space.criterion.compared)


def _text(size: float, sd: float | None, metric: Metric) -> str:
    if size > MOST_SD:
        return f"none below {MOST_SD} sd"
    text = f"{size:.1f} sd"
    if sd is None:
        return text
    return f"{text}, or {fixed(size * sd, metric.digits)}{metric.unit}"
