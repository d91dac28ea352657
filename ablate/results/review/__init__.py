"""Reviews a study as a sceptical referee would.

Each finding says what is wrong, and what to type to fix it.
"""

from __future__ import annotations

from ablate.report.effects import effects
from ablate.results.review.finding import Finding, Read, command, with_parts
from ablate.results.review.questions import QUESTIONS
from ablate.results.review.reported import QUESTIONS_OF_REPORTED
from ablate.scheduling.stored_space import declared_space
from ablate.store.reader import Reader

__all__ = ["Finding", "command", "review", "with_parts"]


def review(name: str, url: str, where: str = "") -> list[Finding]:
    """Returns all findings on a study, the most serious first; empty for a sound one.

    Args:
        where: what to add to each command, such as ` --runs DIR`.

    Raises:
        UnknownName: there is no such study.
    """
    with Reader(url) as reader:
        stored = reader.studies.get(name)
        results = reader.studies.results(name)
        circumstances = reader.trials.circumstances(name)
        generations = reader.studies.generations(name)
        relatives = reader.studies.relatives(name)
        tried = reader.studies.tried(results)
    declared = declared_space(stored)
    verdicts = effects(results, declared.criterion.margin)
    by_row = {cell.index: cell for cell in results.cells}
    study = Read(
        results=results,
        declared=declared,
        file=stored.file,
        effects=verdicts,
        circumstances=circumstances,
        where=where,
        generations=generations,
        relatives=relatives,
        by_row=by_row,
        tried=tried,
    )
    findings: list[Finding] = []
    questions = QUESTIONS if results.reported is None else QUESTIONS_OF_REPORTED
    for question in questions:
        findings += question(study)
    return findings
