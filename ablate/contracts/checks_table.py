"""The outcomes of the checks as a table."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout

from ablate.contracts import checks
from ablate.contracts.check import Outcome
from ablate.report.table import Column, Table, tabulate


def checks_table(steps: Callable[[int, int], None]) -> tuple[Table, int]:
    """Runs the checks of all loaded parts; returns a table, and how many failed."""
    outcomes: list[tuple[str, str, Outcome]] = []
    every = list(checks())
    for number, (part, check) in enumerate(every, 1):
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            # Of a part's own code, which the user sees when it trains.
            warnings.simplefilter("ignore")
            outcomes.append((part, check.what, check.outcome()))
        steps(number, len(every))
    results = [outcome.result for _, _, outcome in outcomes]
    broken, refused = results.count("BROKEN"), results.count("refused")
    notes = [f"{len(results)} checks, {f'{broken} broken' if broken else 'all ok'}."]
    if refused:
        notes = [f"{len(results)} checks, {broken} broken, {refused} refused."]
        notes.append(
            "refused: the part does not fit the small networks of the check, and says"
            " why; this was not checked."
        )
    columns: list[Column[tuple[str, str, Outcome]]] = [
        Column("part", lambda each: each[0], heading="part"),
        Column("check", lambda each: each[1], heading="check"),
        Column("ok", lambda each: each[2].result == "ok"),
        Column("result", lambda each: each[2].result, heading="result"),
        Column(
            "why", lambda each: each[2].why, heading="why" if broken or refused else ""
        ),
    ]
    return tabulate(columns, outcomes, notes=notes), broken
