"""The studies of a store as one project: its error budget."""

from __future__ import annotations

from ablate.errors import AblateError
from ablate.records import LEVEL, Space, StudyResults, base_name
from ablate.records.primary import CONTROLS, primary_factors
from ablate.report.across import rows_across
from ablate.report.effect import Effect
from ablate.report.effects import control_effects, effects
from ablate.report.factorial import Factorial
from ablate.report.numbers import p_text
from ablate.report.table import Column, Table, tabulate
from ablate.report.verdicts import Withheld
from ablate.results.study import Study
from ablate.statistics.error_budget import (
    BudgetLine,
    ErrorBudget,
    StudyTest,
    error_budget,
)
from ablate.store.reader import Reader
from ablate.store.studies import StudyStatus

# A study with such a row is not over.
OPEN = (Withheld.UNFINISHED, Withheld.FAILED)


def budget_of(url: str) -> ErrorBudget:
    """Returns the error budget of a store.

    Studies that are not finished do not count yet.
    """
    with Reader(url) as reader:
        names = [
            _tested_as(study)
            for study in sorted(
                reader.studies.all(),
                key=lambda study: (study.last_result_at, study.name),
            )
            if study.finished and not _is_old_size(study)
        ]
    # The sizes of a ladder are one test, at the place of the last one.
    last = list(dict.fromkeys(reversed(names)))[::-1]
    tests = [_test(Study(name, url)) for name in last]
    return error_budget([test for test in tests if test is not None])


def _tested_as(study: StudyStatus) -> str:
    """Returns the name under which a study is tested: that of its ladder, or its own."""
    across = study.space.across
    if across is None or across.is_predicted or across.study != study.name:
        return study.name
    return across.ladder


def _is_old_size(study: StudyStatus) -> bool:
    """Whether a study is an earlier generation of a size, which has no verdicts."""
    across = study.space.across
    return across is not None and study.name != base_name(study.name)


def _test(study: Study) -> StudyTest | None:
    """Returns the family of comparisons of a study; None if it is not over."""
    if study.is_ladder:
        return _test_of_ladder(study)
    results, declared = study.read()
    names = primary_factors(results.primary)
    if names:
        return _test_of_factors(results, declared)
    if CONTROLS in results.primary:
        control_gains = control_effects(
            results,
            declared.criterion.margin,
            declared=True,
        )
    else:
        control_gains = effects(results, declared.criterion.margin)
    if any(effect.withheld in OPEN for effect in control_gains):
        return None
    return StudyTest(name=study.name, p_values=_of_rows(control_gains))


def _test_of_ladder(study: Study) -> StudyTest | None:
    """Returns the family of all rows at all sizes; None if it is not over."""
    try:
        sizes = study.sizes()
    except AblateError:
        # The others were deleted.
        return None
    rows = rows_across(sizes, sizes[0].margin)
    if any(row.withheld in OPEN for row in rows):
        return None
    p_values = {
        f"row {row.row}": min(at.judged.p for at in row.at if at.judged is not None)
        for row in rows
        if row.withheld is None and row.trend is not None
    }
    return StudyTest(name=study.name, p_values=p_values)


def _of_rows(effects: list[Effect]) -> dict[str, float]:
    return {
        f"row {effect.row}": effect.judged.p
        for effect in effects
        if effect.judged is not None
        and effect.withheld is None
        # The earlier study counts itself.
        and not effect.shown_by
    }


def _test_of_factors(results: StudyResults, declared: Space) -> StudyTest | None:
    """Returns main effects as the family of a study; None if it is not over."""
    try:
        model = Factorial(results, declared.factors.baseline)
        terms = model.main_effects(declared.criterion.margin, results.direction)
    except AblateError:
        # Too few cells or seeds have results.
        return None
    judged = {
        f"{term.factors[0]} = {term.levels[0]}": term.judged
        for term in terms
        if term.judged is not None
    }
    if any(effect.withheld in OPEN for effect in judged.values()):
        return None
    p_values = {
        name: effect.p for name, effect in judged.items() if effect.withheld is None
    }
    return StudyTest(name=results.name, p_values=p_values)


def budget_table(budget: ErrorBudget) -> Table:
    """Returns a table with one row per study, in the order of their last results."""
    return tabulate(
        _budget_columns(),
        budget.lines,
        title=f"Error budget: the next study is tested at {_percent(budget.next_level)}",
        notes=[
            "p: the smallest adjusted p value of the study. level: the significance"
            " level of the study (LORD++, in the order of the last results). stands: verdicts"
            f" with p at or below the level; of the studies with such verdicts, at most"
            f" {100 * LEVEL:g} % are expected to have a false one. Verdicts that"
            " stand raise the levels of later studies, studies without any lower them.",
        ],
    )


def _budget_columns() -> list[Column[BudgetLine]]:
    return [
        Column("study", lambda line: line.test.name, heading="study"),
        Column(
            "p",
            lambda line: line.test.p,
            heading="p",
            text=lambda line: p_text(line.test.p),
            right=True,
        ),
        Column(
            "level",
            lambda line: line.level,
            heading="level",
            text=lambda line: _percent(line.level),
            right=True,
        ),
        Column(
            "own",
            lambda line: list(line.own),
            heading="helps or hurts",
            text=lambda line: ", ".join(line.own),
        ),
        Column(
            "stands",
            lambda line: list(line.standing),
            heading="stands",
            text=lambda line: ", ".join(line.standing),
        ),
    ]


def _percent(level: float) -> str:
    return f"{100 * level:.2g} %"
