"""The best cells of a search, measured on seeds that did not choose them.

The best of many cells is partly lucky: by the seeds that chose it, its mean is too
good. A search with `confirm` therefore trains its best cells and row 0 on fresh seeds.
Their results are those of the fresh seeds alone, and only they get verdicts.
"""

from __future__ import annotations

from dataclasses import replace

from ablate.records import CellResult, StudyResults
from ablate.report.effect import Effect, paired
from ablate.report.numbers import fixed
from ablate.report.verdicts import Judged, Verdict, Withheld
from ablate.statistics.numbers import mean_of


def confirmed_study(results: StudyResults) -> StudyResults:
    """Returns a study with the cells that can have verdicts.

    These are the confirmed cells and row 0, by their fresh seeds, or all cells if the
    study confirms none.
    """
    if not results.confirmation_seeds or not results.cells:
        return results
    first = results.cells[0].with_seeds(results.confirmation_seeds)
    others = [cell for cell in results.cells if cell.is_confirmed]
    return replace(results, cells=(first, *others))


def best_candidates(results: StudyResults) -> StudyResults:
    """Returns a study with the cells that can be its best ones.

    Once cells are confirmed, these are the cells that can have verdicts.
    """
    if any(cell.is_confirmed for cell in results.cells):
        return confirmed_study(results)
    return results


def unconfirmed_effect(
    results: StudyResults, cell: CellResult, reference: CellResult
) -> Effect:
    """Returns the effect of a cell that the search did not confirm, without a verdict.

    Its interval is that of Student's paired t. It has none with a single seed.
    """
    effect = replace(paired(cell, reference), labels=results.labels)
    why = Withheld.UNFINISHED if results.searching else Withheld.NOT_CONFIRMED
    judged = Judged(
        p=1.0, p_same=1.0, verdict=Verdict.INCONCLUSIVE, level=0.0, withheld=why
    )
    return replace(effect, judged=judged)


def with_all_seeds(results: StudyResults) -> StudyResults:
    """Returns a study whose confirmed cells have the seeds of the search as well."""
    cells = [
        replace(cell, values={**cell.search_values, **cell.values})
        for cell in results.cells
    ]
    return replace(results, cells=tuple(cells))


def confirmation_note(results: StudyResults) -> list[str]:
    """Returns the sentences below a table; none if no cell is confirmed."""
    confirmed = [cell for cell in results.cells if cell.is_confirmed]
    if not confirmed:
        return []
    digits = results.metric.digits
    sentences = [
        f"row {cell.index} {fixed(mean_of(cell.search_values.values()), digits)}"
        for cell in confirmed
    ]
    count = len(results.confirmation_seeds)
    return [
        f"Confirmed on {count} fresh seeds after the search. The means of these rows"
        " leave out the seeds that chose them. The means of those seeds, which are too"
        f" good: {', '.join(sentences)}."
    ]
