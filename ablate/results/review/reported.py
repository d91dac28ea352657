"""What a review asks about runs that were trained elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ablate.records import Status
from ablate.report.verdicts import Verdict
from ablate.report.wording import rows_text
from ablate.results.review.finding import Finding, Read
from ablate.results.review.generations import (
    changed,
    compared_elsewhere,
    left_out_seeds,
)
from ablate.statistics.seeds_needed import MOST


def _trained_elsewhere(study: Read) -> Iterator[Finding]:
    """What a reader cannot know of the runs, and what is unusual in them."""
    assert study.results.reported is not None, "only reported studies are asked this"
    yield Finding(
        "trained elsewhere", " ".join(study.results.reported.notes), study.again()
    )


def _without_result(study: Read) -> Iterator[Finding]:
    """Some runs have no result."""
    texts = []
    for cell in study.results.cells:
        missing = sum(status != Status.COMPLETED for status in cell.statuses.values())
        if missing:
            texts.append(f"row {cell.index}: {missing} of {len(cell.statuses)}")
    if texts:
        yield Finding(
            "runs without a result",
            f"{', '.join(texts)} runs failed or diverged; each mean includes only the"
            " others, which may be the survivors. Report their number beside the mean,"
            f" or train them again and add their results to {study.file}.",
            study.again(),
        )


def _too_few_runs(study: Read) -> Iterator[Finding]:
    """Rows without a conclusive verdict, and what more runs would do."""
    alone = [effect.row for effect in study.effects if effect.estimate is None]
    needs = []
    for effect in study.effects:
        if effect.verdict is Verdict.INCONCLUSIVE and effect.further is not None:
            more = f"about {effect.further}"
            if effect.further > MOST:
                more = f"more than {MOST}"
            needs.append(f"row {effect.row} needs {more}")
    texts = []
    if alone:
        texts.append(f"{rows_text(alone)}: too few runs to estimate the noise")
    if needs:
        texts.append(
            f"{', '.join(needs)} more runs for an even chance of a conclusive verdict"
        )
    if texts:
        yield Finding(
            "too few seeds",
            f"{'; '.join(texts)}. Add runs with further seeds to {study.file}; the rows"
            " are then tested again on all runs.",
            study.again(),
        )


QUESTIONS_OF_REPORTED: tuple[Callable[[Read], Iterator[Finding]], ...] = (
    _trained_elsewhere,
    changed,
    compared_elsewhere,
    left_out_seeds,
    _without_result,
    _too_few_runs,
)
