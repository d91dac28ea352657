"""What a study that has results loses if it is declared differently now."""

from __future__ import annotations

from ablate.records import share_of_phase
from ablate.report.verdicts import LEVEL
from ablate.scheduling.preview import Preview


def declared_again_lines(shown: Preview) -> list[str]:
    """Returns what to know before a study with results is declared again; usually
    nothing.
    """
    history = shown.history
    name = shown.plan.space.name
    if history.changed:
        return [
            f"{name} has results, and this changes what they are compared by"
            f" ({history.changed}), so no row gets a verdict. Verdicts come back with"
            " the former declaration."
        ]
    if not history.last or not shown.has_work:
        return []
    if history.final:
        return [
            f"{name} has results of final seeds, so what is added now gets no verdict."
        ]
    now = 100 * LEVEL * history.share
    first = 100 * LEVEL * share_of_phase(0)
    return [
        f"{name} has results of an earlier declaration, so what is new is tested at"
        f" {now:.2g} % instead of {first:.2g} %. A comparison under another `name:`, with"
        f" seeds that were not trained before, has {first:.2g} %."
    ]
