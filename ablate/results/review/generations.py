"""What a review asks about the generations of a study, and about its group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ablate.errors import first
from ablate.records.changes import changes
from ablate.report.verdicts import Withheld
from ablate.report.wording import rows_text
from ablate.results.review.finding import Finding, Read


def changed(study: Read) -> Iterator[Finding]:
    """The file of the study changed after results of it could be seen."""
    texts = []
    earlier = study.generations[: study.results.before.generation]
    for (_, before), (name, after) in itertools.pairwise(earlier):
        listed = changes(before, after)
        what = "; ".join(first(listed, "changes")) or "other results"
        texts.append(f"{name}: {what}")
    if not texts:
        return
    yield Finding(
        "generations",
        f"the study is generation {study.results.before.generation}: its file changed"
        f" after results could be seen ({' | '.join(texts)})."
        " State the earlier generations with the results.",
        study.again(),
    )


def compared_elsewhere(study: Read) -> Iterator[Finding]:
    """Other studies of the store compare rows on the same seeds."""
    if study.relatives:
        listed = ", ".join(first(list(study.relatives), "studies"))
        yield Finding(
            "compared elsewhere",
            f"other studies compare rows on the same seeds: {listed}. Their rows share"
            " the 5 % with those of this study. Report them together.",
            f"ablate effects {study.relatives[0]}{study.where}",
        )


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
