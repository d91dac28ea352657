"""What a review asks about the generations of a study, and about its lineage."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ablate.errors import first
from ablate.records.changes import changes
from ablate.report.verdicts import Withheld
from ablate.report.wording import percent, rows_text
from ablate.results.review.finding import Finding, Read


def changed(study: Read) -> Iterator[Finding]:
    """The file of the study changed after results of it could be seen."""
    texts = []
    earlier = study.generations[: study.results.generation.number]
    for (_, before), (name, after) in itertools.pairwise(earlier):
        listed = changes(before, after)
        what = "; ".join(first(listed, "changes")) or "other results"
        texts.append(f"{name}: {what}")
    if not texts:
        return
    yield Finding(
        "generations",
        f"the study is generation {study.results.generation.number}: its file changed"
        f" after results could be seen ({' | '.join(texts)})."
        f" {_level(study)} State the earlier generations with the results.",
        study.again(),
    )


def compared_elsewhere(study: Read) -> Iterator[Finding]:
    """Other studies of the store compare the same rows."""
    if study.relatives:
        listed = ", ".join(first(list(study.relatives), "studies"))
        yield Finding(
            "compared elsewhere",
            f"other studies compare the same rows, or use the same trials of row 0:"
            f" {listed}. {_level(study)} Report them together.",
            f"ablate effects {study.relatives[0]}{study.where}",
        )


def _level(study: Read) -> str:
    """Returns at which level the study tests its rows, and why."""
    generation = study.results.generation
    if not generation.level:
        return "Its rows are not tested: an earlier study used the whole level."
    level = percent(generation.level)
    if generation.is_first:
        return (
            f"Its rows are tested at {level}, because nothing was known of them before."
        )
    return f"Its rows are tested at {level}, which is half of what was left of 5 %."


def known_before(study: Read) -> Iterator[Finding]:
    """Results of the study existed before it was declared."""
    rows = [effect.row for effect in study.effects if effect.withheld is Withheld.KNOWN]
    if rows:
        yield Finding(
            "known before",
            f"{rows_text(rows)}: the results were known before the study declared them,"
            " so they may be the reason to compare these rows. The comparisons are"
            " exploratory. Train these rows and row 0 with seeds that were not trained"
            f" before: seeds: [...] in {study.file}.",
            study.again(),
        )


def left_out_seeds(study: Read) -> Iterator[Finding]:
    """Other seeds of the rows were trained before, and the study leaves them out."""
    partial = Withheld.PARTIAL
    rows = [effect.row for effect in study.effects if effect.withheld is partial]
    if rows:
        yield Finding(
            "seeds left out",
            f"{rows_text(rows)}: other seeds of these rows or of row 0 were trained"
            " or declared before the study, which does not contain them."
            f" Declare all seeds in {study.file}.",
            study.again(),
        )
