"""A forest plot in text: one line per row, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ablate.report.effect import Effect
from ablate.report.wording import change_text
from ablate.text import escape

WIDTH = 41
LONGEST = 30


def forest_text(effects: Sequence[Effect]) -> list[str]:
    """Returns a line per row: its interval (`-`), its mean (`o`) and 0 (`|`).

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
    low = min(0.0, *(estimate.low for _, estimate in drawn))
    high = max(0.0, *(estimate.high for _, estimate in drawn))

    def place(value: float) -> int:
        return round((value - low) / (high - low) * (WIDTH - 1))

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
        marks[place(estimate.value)] = "o"
        lines.append(f"{name:<{wide}}  {''.join(marks)}".rstrip())
    scale = f"{low:+.3g}".ljust(WIDTH - 1) + f"{high:+.3g}"
    return [*lines, f"{'':<{wide}}  {scale}"]
