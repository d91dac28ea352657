"""The rows of a study that cannot be distinguished from the best one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

from ablate.records import LEVEL, CellResult, StudyResults
from ablate.report.confirmation import best_candidates
from ablate.report.effect import Effect, unpaired
from ablate.report.family import family_of
from ablate.report.verdicts import Verdict

# Which means of a table are bold.
Bold: TypeAlias = Literal["decided", "best", "none"]
BOLD_NOTE = (
    "Bold: the best mean, and the next ones down to the first that is significantly worse"
    " (5 %)."
)


def best_rows(results: StudyResults, row_effects: Sequence[Effect]) -> frozenset[int]:
    """Returns the rows from the best mean down to the first that differs from it.

    Whether the best row differs from the reference is what the verdicts of the study
    say. The other rows are compared with the best one as rows are compared with the
    reference. Which row is the best depends on the data, so each row could have been
    the one that the others are compared with: the p values, which are adjusted for the
    comparisons with one row, are multiplied by half the number of rows, because each
    pair has two sides. In simulated studies of equal rows, all rows were bold in 95 %
    or more under every noise (`tests/benchmarks/test_trust.py`).

    If the best row has one seed and others have more, none can be distinguished from
    it. Otherwise a row with one seed is not returned, because nothing is known of its
    noise; if no row has two seeds, only the best mean is. Controls and folded rows are
    left out.

    If a search confirms its best cells, only these and row 0 are compared.

    Args:
        row_effects: the effects of the study.
    """
    rows = _candidates(results)
    if not rows:
        return frozenset()
    best = _best(rows, results)
    alike = {cell.index for cell in rows if _mean(cell) == _mean(best)}
    if len(best.values) < 2 and any(len(cell.values) > 1 for cell in rows):
        # Nothing says that a row with one seed is better.
        return frozenset(cell.index for cell in rows)
    if results.is_paired:
        alike |= {cell.index for cell in _alike(rows, best)}
    else:
        alike |= {cell.index for cell in _alike_unpaired(rows, best)}
    # Verdicts know more of a row and row 0. A verdict that is withheld says nothing.
    compared = {cell.index for cell in rows}
    differs = {
        effect.row: effect.verdict in _DIFFER
        for effect in row_effects
        if effect.estimate is not None
        and effect.withheld is None
        and effect.row in compared
    }
    if best.index == 0:
        alike -= {row for row, differ in differs.items() if differ}
        alike |= {row for row, differ in differs.items() if not differ}
    elif best.index in differs:
        alike -= {0}
        alike |= {0} if not differs[best.index] else set()
    return _down_to_the_first_other(rows, {best.index, *alike}, results)


def _down_to_the_first_other(
    rows: Sequence[CellResult], alike: set[int], results: StudyResults
) -> frozenset[int]:
    """Returns rows from the best mean down to the first that can be distinguished.

    A row with a worse mean is not returned, even if its own test finds nothing.
    """
    sign = 1 if results.direction == "max" else -1
    others = [sign * _mean(cell) for cell in rows if cell.index not in alike]
    limit = max(others, default=-math.inf)
    return frozenset(
        cell.index
        for cell in rows
        if cell.index in alike and sign * _mean(cell) > limit
    )


def bold_rows(
    results: StudyResults,
    row_effects: Sequence[Effect],
    bold: Bold = "decided",
) -> frozenset[int]:
    """Returns the rows whose means are bold.

    Args:
        bold: `decided`: those that `best_rows` returns, unless nothing is decided: with
            one seed, and if no row is distinguished from the best one. `best`: the best
            mean. `none`: no row.
    """
    rows = _candidates(results)
    if bold == "none" or len(rows) < 2:
        return frozenset()
    if bold == "best":
        best = _mean(_best(rows, results))
        return frozenset(cell.index for cell in rows if _mean(cell) == best)
    alike = best_rows(results, row_effects)
    if len(alike) == len(rows) or all(len(cell.values) < 2 for cell in rows):
        return frozenset()
    return alike


def _candidates(results: StudyResults) -> list[CellResult]:
    return [
        cell
        for cell in best_candidates(results).cells
        if cell.values and cell.same_as is None and cell.role != "control"
    ]


def _best(rows: Sequence[CellResult], results: StudyResults) -> CellResult:
    sign = 1 if results.direction == "max" else -1
    return max(rows, key=lambda cell: sign * _mean(cell))


# Verdicts of a row that differs from the reference.
_DIFFER = (Verdict.HELPS, Verdict.HURTS)


def _alike(rows: Sequence[CellResult], best: CellResult) -> list[CellResult]:
    """Returns the rows whose difference from the best row is not significant."""
    others = [cell for cell in rows if cell is not best and _shared(cell, best) > 1]
    family = family_of(
        best.values, [cell.values for cell in others], rows=len(rows) - 1
    )
    if family is None:
        return []
    level = min(1.0, 2 / len(rows)) * LEVEL
    tests = family.tests(margin=0.0, level=LEVEL)
    # Without a test, the differences from the best row are all equal: no noise.
    return [
        cell
        for cell, test in zip(others, tests, strict=True)
        if test is not None and test.p_adjusted >= level
    ]


def _alike_unpaired(rows: Sequence[CellResult], best: CellResult) -> list[CellResult]:
    """Returns the same of rows whose runs have nothing in common, by Bonferroni."""
    level = min(1.0, 2 / len(rows)) * LEVEL / (len(rows) - 1)
    compared = {cell.index: unpaired(cell, best) for cell in rows if cell is not best}
    return [
        cell
        for cell in rows
        if cell is not best
        and (estimate := compared[cell.index].estimate) is not None
        and estimate.p >= level
    ]


def _shared(cell: CellResult, other: CellResult) -> int:
    """Returns the number of seeds that both have."""
    return len(set(cell.values) & set(other.values))


def _mean(cell: CellResult) -> float:
    return sum(cell.values.values()) / len(cell.values)
