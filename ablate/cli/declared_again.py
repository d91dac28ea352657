"""What a study loses if it is declared now: results that are there may be the reason."""

from __future__ import annotations

from ablate.errors import first
from ablate.records import share_of_phase
from ablate.report.verdicts import LEVEL
from ablate.report.wording import rows_text
from ablate.scheduling.preview import Preview


def declared_again_lines(shown: Preview) -> list[str]:
    """Returns what to know before a study is declared that has results, or whose rows
    have some; usually nothing.
    """
    return [*_again(shown), *_known_rows(shown)]


def _known_rows(shown: Preview) -> list[str]:
    """Returns a line about rows that were trained for another study."""
    rows = shown.known_rows
    if not rows or shown.plan.space.strategy is not None:
        return []
    if shown.history.last:
        end = (
            "So they are exploratory: what they add gives no verdict, and what was"
            " shown before stays."
        )
    else:
        end = (
            "So they are exploratory and get no verdict. Seeds that were not trained"
            " before give verdicts."
        )
    what = f"{rows_text(rows)} {'has' if len(rows) == 1 else 'have'}"
    return [
        f"{what[0].upper()}{what[1:]} results from before this declaration, which may be the"
        f" reason for it. {end}"
    ]


def _again(shown: Preview) -> list[str]:
    history = shown.history
    name = shown.plan.space.name
    if history.changed:
        return [
            f"{name} has results, and this changes what they are compared by"
            f" ({history.changed}), so no row gets a verdict. Verdicts come back with"
            " the former declaration."
        ]
    if not shown.has_work:
        return []
    if not history.last:
        if not shown.changes:
            return []
        return [
            f"Changed since the last run of {name}:"
            f" {'; '.join(first(shown.changes, 'changes'))}."
        ]
    if history.final:
        return [
            f"{name} has results of final seeds, so rows and factors that are added now"
            " get no verdict, and additional seeds change no verdict."
        ]
    since = ""
    if shown.changes:
        since = f" (changed: {'; '.join(first(shown.changes, 'changes'))})"
    now = 100 * LEVEL * history.share
    usual = 100 * LEVEL * share_of_phase(0)
    return [
        f"{name} has results of an earlier declaration{since}, so rows that are new or"
        f" still inconclusive are tested at {now:.2g} % instead of {usual:.2g} %. A"
        " comparison under another `name:`, with seeds that were not trained before, has"
        f" {usual:.2g} %."
    ]
