"""Ranges of levels: `{low: 3e-4, high: 1e-2, scale: log}`.

A range is a short way to write a list of numbers, so nothing else knows ranges: a
search interpolates between the levels of any list of numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ablate.records import Level, is_number
from ablate.space.context import Context, level_key
from ablate.space.levels import check_levels
from ablate.space.schema import RangeForm
from ablate.text.document import Where

# Levels of a range in a search. On a logarithmic scale, neighbours differ by 2.3 % in a
# range of one decade.
LEVELS_OF_A_SEARCH = 100
# Tables show as many.
MOST_DIGITS = 6


def read_levels(context: Context) -> None:
    """Reads the levels of each factor; those of a range include its baseline."""
    ranges: dict[str, RangeForm] = {}
    for name, declared in context.form.factors.items():
        if isinstance(declared, RangeForm):
            ranges[name] = declared
            context.levels[name] = []
        else:
            context.levels[name] = list(declared)
    # Last, because the backbone, which may vary, decides which levels are allowed.
    for name, declared in ranges.items():
        context.levels[name] = _levels(context, name, declared)
        context.scales[name] = declared.scale


def _levels(context: Context, name: str, declared: RangeForm) -> list[Level]:
    """The levels of a range; its ends only, if there is a mistake."""
    where: Where = ("factors", name)
    ends: list[Level] = [declared.low, declared.high]
    problem = range_problem(declared) or _use_problem(context, name, declared)
    if problem:
        context.wrong(where, f"{name}: {problem}")
        return ends
    # One message for a range that is not allowed, instead of one for each level.
    problems = len(context.problems)
    check_levels(context, where, name, tuple(ends))
    if len(context.problems) > problems:
        return ends
    count = declared.count or LEVELS_OF_A_SEARCH
    if takes_fractions(context, where, name, declared):
        levels = spaced(
            float(declared.low), float(declared.high), count, declared.scale
        )
    else:
        levels = spaced(declared.low, declared.high, count, declared.scale)
    baseline = context.form.baseline[name]
    if level_key(baseline) not in map(level_key, levels):
        levels.append(baseline)
    return sorted(levels)


def takes_fractions(
    context: Context, where: Where, name: str, declared: RangeForm
) -> bool:
    """Whether a number between two whole numbers is a level of the factor."""
    if isinstance(declared.low, float) or isinstance(declared.high, float):
        return True
    problems = len(context.problems)
    check_levels(context, where, name, (declared.low + 0.5,))
    is_refused = len(context.problems) > problems
    del context.problems[problems:]
    return not is_refused


def range_problem(declared: RangeForm) -> str:
    """What is wrong with a range alone; empty if nothing is."""
    low, high = declared.low, declared.high
    if low >= high:
        return f"the range goes from low to high, but low is {low} and high is {high}"
    if declared.scale == "log" and low <= 0:
        return f"a logarithmic range is above 0, but low is {low}; write scale: linear"
    if not math.isfinite(high - low):
        return f"the range from {low} to {high} has no finite width"
    return ""


def _use_problem(context: Context, name: str, declared: RangeForm) -> str:
    """What is wrong with a range in this space; empty if nothing is."""
    form = context.form
    low, high = declared.low, declared.high
    if form.rows:
        return "rows name their levels; write the list of these levels"
    if form.strategy is None and declared.count is None:
        return (
            "a design needs the number of levels of a range, such as"
            f" {{low: {low}, high: {high}, scale: {declared.scale}, count: 5}}"
        )
    if name not in form.baseline:
        return (
            f"a range has no first level; name its baseline level: `baseline: {{{name}:"
            f" {low}}}`"
        )
    baseline = form.baseline[name]
    if not is_number(baseline) or not low <= baseline <= high:
        return (
            f"the baseline level {baseline} is outside the range from {low} to {high}"
        )
    return ""


def spaced(low: float, high: float, count: int, scale: str) -> list[Level]:
    """Numbers from `low` to `high`, at equal distances or, with `log`, equal ratios.

    They have the digits that tell neighbours apart, from three to six. Between two
    whole numbers they are whole. Each occurs once.
    """
    shares = [number / (count - 1) for number in range(count)]
    if scale == "log":
        numbers = [low * (high / low) ** share for share in shares]
    else:
        numbers = [low + (high - low) * share for share in shares]
    inner = numbers[1:-1]
    if isinstance(low, int) and isinstance(high, int):
        return [low, *_without_repeats(low, high, [round(number) for number in inner])]
    gap = min(
        (second - first) / max(abs(first), abs(second))
        for first, second in itertools.pairwise(numbers)
    )
    digits = min(MOST_DIGITS, max(3, 1 + math.ceil(-math.log10(gap))))
    rounded = [float(f"{number:.{digits}g}") for number in inner]
    return [low, *_without_repeats(low, high, rounded)]


def _without_repeats(low: float, high: float, inner: Sequence[float]) -> list[Level]:
    """The numbers strictly between the ends, each once, and the upper end."""
    return [*(x for x in dict.fromkeys(inner) if low < x < high), high]
