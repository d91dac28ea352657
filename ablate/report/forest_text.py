"""A forest plot in text: one line per row, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ablate.report.effect import Effect
from ablate.report.verdicts import Estimate
from ablate.report.wording import change_text
from ablate.text import escape

WIDTH = 41
LONGEST = 30
# An interval is cut from so many times the width of the median one on.
WIDE = 3.0


def shown_range(estimates: Sequence[Estimate]) -> tuple[float, float]:
    """Returns from where to where intervals are drawn.

    An interval that is far wider than most would leave no room for the others.
    """
    halves = sorted(each.high - each.value for each in estimates)
    widest = WIDE * halves[(len(halves) - 1) // 2]
    low = min(0.0, *(max(each.low, each.value - widest) for each in estimates))
    high = max(0.0, *(min(each.high, each.value + widest) for each in estimates))
    return low, high


def forest_text(effects: Sequence[Effect]) -> list[str]:
    """Returns a line per row: its interval (`-`), its mean (`o`) and 0 (`|`).

    An interval that is far wider than most is cut, with an arrow (`<`, `>`).

    Rows without an interval have none. Empty if there is no interval.
    """
    drawn = [
        (effect, effect.estimate)
        for effect in effects
        if effect.estimate is not None
        # With two seeds and hundreds of rows, an interval may have no end.
        and math.isfinite(effect.estimate.high - effect.estimate.low)
    ]
    if not drawn:
        return []
    low, high = shown_range([estimate for _, estimate in drawn])

    def place(value: float) -> int:
        inside = min(max(value, low), high)
        return round((inside - low) / (high - low) * (WIDTH - 1))

    names = [
        escape.line(f"{effect.row}: {change_text(effect.changed, effect.labels)}")[
            :LONGEST
        ]
        for effect, _ in drawn
    ]
    wide = max(map(len, names))
    lines = []
    for name, (_, estimate) in zip(names, drawn, strict=True):
        marks = [" "] * WIDTH
        start, end = place(estimate.low), place(estimate.high)
        marks[start : end + 1] = "-" * (end - start + 1)
        marks[place(0.0)] = "|"
        if estimate.low < low:
            marks[0] = "<"
        if estimate.high > high:
            marks[-1] = ">"
        marks[place(estimate.value)] = "o"
        lines.append(f"{name:<{wide}}  {''.join(marks)}".rstrip())
    scale = f"{low:+.3g}".ljust(WIDTH - 1) + f"{high:+.3g}"
    return [*lines, f"{'':<{wide}}  {scale}"]
