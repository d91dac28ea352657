"""`ablate run` of spaces that are refused only when their cells are planned."""

from __future__ import annotations

from dataclasses import replace

from tests.attack import cases_checkpoints, cases_levels
from tests.attack.case import PLAN, Case

# Beginnings of the names of cases that a document alone does not decide.
PLANNED = (
    "no cell: ",
    "pretrained with ",
    "pretrained: ",
    "rest: a fixed level",
    "rest: timm's weights",
)


def run(case: Case) -> Case:
    """The same case, run instead of planned."""
    return replace(
        case,
        name=f"run, {case.name}",
        argv=("run", *case.argv[1:], "--executor", "inline"),
    )


# A store is made when the plan stands: each leaves nothing behind.
CASES = [
    run(case)
    for case in (*cases_levels.CASES, *cases_checkpoints.CASES)
    if case.argv == PLAN and case.name.startswith(PLANNED)
]
