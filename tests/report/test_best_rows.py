"""The means that are bold: the best one, and those that are not significantly worse."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from ablate.records import Before, Comparison, Standing, StudyResults
from ablate.report.best_rows import Bold, best_rows
from ablate.report.effects import effects
from ablate.report.paper_table import PaperStyle, paper_table
from ablate.report.results_table import results_table
from tests.benchmarks import load


@pytest.fixture(scope="module")
def trust() -> ModuleType:
    return load("trust")


def made(trust: ModuleType, *means: float, seeds: int = 5) -> StudyResults:
    values = trust.drawn(np.random.default_rng(3), list(means), seeds)
    results: StudyResults = trust.made(values, trust.names(len(means)))
    return results


def bold(results: StudyResults) -> set[int]:
    return set(best_rows(results, effects(results, 1.0)))


def test_only_rows_that_are_not_worse_are_bold(trust: ModuleType) -> None:
    assert bold(made(trust, 0.0, -40.0, -20.0)) == {0}
    assert bold(made(trust, 0.0, 40.0, -20.0)) == {1}
    assert bold(made(trust, 0.0, 40.0, 40.0)) == {1, 2}


def test_bold_is_monotone_in_the_mean(trust: ModuleType) -> None:
    """Of two rows, the one with the worse mean is never bold alone."""
    generator = np.random.default_rng(5)
    some = 0
    for _ in range(60):
        means = [0.0, *generator.normal(0, 4, 6)]
        values = trust.drawn(generator, means, 4)
        results = trust.made(values, trust.names(len(means)))
        chosen = bold(results)
        ordered = sorted(
            results.cells, key=lambda cell: -np.mean([*cell.values.values()])
        )
        is_bold = [cell.index in chosen for cell in ordered]
        assert is_bold == sorted(is_bold, reverse=True)
        assert is_bold[0]
        some += not all(is_bold)
    assert some > 5


@pytest.mark.parametrize("best", [0, 1])
def test_a_withheld_verdict_makes_no_row_bold(trust: ModuleType, best: int) -> None:
    """Rows whose results were known have none; their means are still far apart."""
    means = [0.0, -40.0, -20.0]
    means[best] = 40.0
    results = made(trust, *means)
    rows = {row: Comparison(Standing.KNOWN) for row in (1, 2)}
    known = replace(results, before=Before(rows=rows))
    assert all(effect.withheld for effect in effects(known, 1.0))
    assert bold(known) == {best}


def test_a_row_that_the_search_did_not_confirm_is_not_bold(trust: ModuleType) -> None:
    results = made(trust, 0.0, -40.0, -40.0, 1.0)
    cells = list(results.cells)
    for row in (1, 2):
        cells[row] = replace(cells[row], search_values={9: 90.0})
    searched = replace(results, cells=tuple(cells), confirmation_seeds=(0, 1, 2, 3, 4))
    assert bold(searched) == {0}


def test_the_note_says_what_bold_means(trust: ModuleType) -> None:
    table = results_table(made(trust, 0.0, 30.0, seeds=3))
    assert table.bold
    assert "the first that is significantly worse" in table.bold_note


def test_nothing_is_bold_where_nothing_is_decided(trust: ModuleType) -> None:
    for results in (made(trust, 0.0, 3.0, seeds=1), made(trust, 0.0, 0.1, seeds=3)):
        table = results_table(results)
        assert not table.bold
        assert not any("old" in note for note in table.all_notes)
        assert best_rows(results, effects(results, 1.0))


def test_bold_of_a_paper_is_chosen(trust: ModuleType) -> None:
    def bold_of(results: StudyResults, choice: Bold) -> str:
        return paper_table(results, PaperStyle(bold=choice))

    decided = made(trust, 0.0, 30.0, seeds=3)
    assert bold_of(decided, "decided").count("mathbf") == 1
    assert bold_of(decided, "none").count("mathbf") == 0
    assert "old" not in bold_of(decided, "none").partition("tablenotes")[2]
    alike = made(trust, 0.0, 0.1, seeds=3)
    assert bold_of(alike, "decided").count("mathbf") == 0
    assert "No mean is bold: none is" in bold_of(alike, "decided")
    assert bold_of(alike, "best").count("mathbf") == 1
    assert "Bold: the best mean." in bold_of(alike, "best")
