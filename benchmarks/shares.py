"""How the 5 % are shared between declared and added seeds: `make bench-shares`.

One of seven rows has an effect, in standard deviations of a single training. A study
has some seeds; if the row has no verdict, more seeds are added and tested again. For
each share of the 5 % that the declared seeds get, prints how often the effect is found
with them, and how often in all. The added seeds have half of what is left, because
others may be added later.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from machine import machine_text

from ablate.report.family import family_of
from ablate.report.verdicts import LEVEL
from ablate.statistics.noise import RowTest

Array = np.ndarray[Any, Any]
ROWS = 7
SHARES = (1.0, 0.95, 0.9, 0.8, 0.5)
SETTINGS = ((3, 6, 3.0), (3, 9, 3.0), (5, 10, 2.0), (5, 10, 3.0))


def p_of_row(values: Array, seeds: int) -> float:
    """Returns the adjusted p value of row 1 with its first seeds."""
    reference = dict(enumerate(values[0, :seeds]))
    rows = [dict(enumerate(row[:seeds])) for row in values[1:]]
    family = family_of(reference, rows, planned=ROWS)
    assert family is not None
    test: RowTest | None = family.tests(margin=0.0, level=LEVEL)[0]
    assert test is not None
    return test.p_adjusted


def p_values(count: int, first: int, then: int, size: float) -> tuple[Array, Array]:
    """Returns the p values with the declared seeds, and with all seeds."""
    generator = np.random.default_rng(1)
    before = []
    after = []
    for _ in range(count):
        values = generator.standard_normal((ROWS + 1, then))
        values[1] += size
        before.append(p_of_row(values, first))
        after.append(p_of_row(values, then))
    return np.array(before), np.array(after)


def found(before: Array, after: Array, share: float) -> str:
    """Returns how often the effect is found with the declared seeds, and in all."""
    declared = before < share * LEVEL
    added = after < (1 - share) / 2 * LEVEL
    return f"{100 * declared.mean():.0f}, {100 * (declared | added).mean():.0f}"


def line(name: str, texts: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5_000, help="studies")
    count = parser.parse_args().count
    print(line("seeds", [f"{100 * LEVEL * share:g} %" for share in SHARES]))
    print(line("---", ["---:" for _ in SHARES]))
    for first, then, size in SETTINGS:
        before, after = p_values(count, first, then, size)
        texts = [found(before, after, share) for share in SHARES]
        print(line(f"{first}, then {then}; {size:g} sd", texts), flush=True)
    print(f"\n{count:,} studies per line, {machine_text()}")


if __name__ == "__main__":
    main()
