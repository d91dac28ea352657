"""The phases of a study, from its declarations.

What it guarantees: the phases depend on stored declarations and times alone, so that a
table, a report and a resumed run take the same verdicts. A new phase begins when the
study is declared differently after a verdict was possible, that is when some row had
two seeds in common with row 0. A change before that moment costs nothing.

What would break it: a part of a space that decides on what is compared and that
`redeclared.DECISIVE` lacks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ablate.primary import CONTROLS
from ablate.records import (
    CellResult,
    History,
    Looks,
    Phase,
    Primary,
    Space,
    confirmation_seeds,
)
from ablate.redeclared import changed_parts, changes
from ablate.store.declarations import Declaration, declared_data
from ablate.store.moment import now

# Changes that begin no phase: they give no row another chance. Narrower and wider
# margins are settled by `Phase.margin`, another order by `_primary`. Only the first
# declaration says whether its seeds are final.
ONLY_NOTED = {"margin", "primary", "final"}
# The most seeds that a sentence lists.
MOST_SEEDS = 8


def history_of(declarations: Sequence[Declaration]) -> History:
    """Returns the phases of a study. Without declarations, there is one.

    Args:
        declarations: all of the study, the first one first.
    """
    if not declarations:
        return History()
    first, *others = declarations
    phases = [_phase(first.space)]
    begins = [first.declared_at]
    before = first.space
    for declaration in others:
        space = declaration.space
        if not changed_parts(before, space):
            continue
        if declaration.compared and _is_decisive(before, space):
            phases[-1] = _ended(phases[-1], declaration)
            phases.append(_next(phases[-1], space))
            begins.append(declaration.declared_at)
        elif declaration.compared:
            phases[-1] = _next(phases[-1], space)
        elif len(phases) > 1:
            # Nothing is known of the last declaration, but of the phases before it.
            phases[-1] = _next(phases[-2], space)
        else:
            # The last declaration could have no verdict yet, so this one replaces it.
            # What other studies have trained since is known.
            phases[-1] = _phase(space)
            begins[-1] = declaration.declared_at
        before = space
    return History(
        phases=tuple(phases), begins=tuple(begins), changed=_changed(declarations)
    )


def with_cells(history: History, cells: Sequence[CellResult]) -> History:
    """Returns the history with what the cells had when the study was declared first.

    Args:
        cells: row 0 first.
    """
    before = any(phase < 0 for cell in cells[1:] for phase in cell.phase_of.values())
    return replace(history, had_results=before)


def first_history(space: Space, code: Mapping[str, str]) -> History:
    """Returns the history of a study that is declared now, and never was before.

    Args:
        code: the versions of the user's own parts (`Plan.code`).
    """
    return History(phases=(_phase(declared_data(space, code)),), begins=(now(),))


def _phase(space: Mapping[str, Any]) -> Phase:
    """Returns the phase that a space declares before any verdict was possible."""
    return Phase(
        looks=_looks(space),
        margin=_margin(space),
        primary=_primary(space),
        seeds=_seeds(space),
        final=bool(space.get("final")),
    )


def _next(phase: Phase, space: Mapping[str, Any]) -> Phase:
    """Returns what follows from a phase and a later declaration.

    The margin cannot become wider, and comparisons that are named as primary after
    results are not.
    """
    primary = _primary(space)
    return Phase(
        looks=_looks(space),
        margin=min(phase.margin, _margin(space)),
        primary=primary if primary == phase.primary else (),
        rows=phase.rows,
        seeds=_seeds(space),
        final=phase.final,
    )


def _ended(phase: Phase, by: Declaration) -> Phase:
    """Returns a phase that a declaration ends."""
    return Phase(
        looks=phase.looks,
        margin=phase.margin,
        primary=phase.primary,
        rows=max(phase.rows, by.compared),
        finished=by.unfinished == 0,
        seeds=phase.seeds,
        final=phase.final,
    )


def _looks(space: Mapping[str, Any]) -> Looks | None:
    looks = space.get("looks")
    if not looks:
        return None
    return Looks(first=looks["first"], most=looks["most"], step=looks["step"])


def _margin(space: Mapping[str, Any]) -> float:
    # A store of an older version may lack what is newer.
    return float(space.get("margin", math.inf))


def _seeds(space: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the seeds that verdicts are taken from."""
    return fresh_seeds(space) or tuple(space.get("seeds", ()))


def fresh_seeds(space: Mapping[str, Any] | None) -> tuple[int, ...]:
    """Returns the fresh seeds on which a search confirms its best cells.

    Args:
        space: the space as `ablate.space_data` described it.
    """
    strategy = (space or {}).get("strategy")
    if not space or not strategy:
        return ()
    return confirmation_seeds(space.get("seeds", ()), strategy.get("confirm"))


def _primary(space: Mapping[str, Any]) -> tuple[Primary, ...]:
    return tuple(space.get("primary", ()))


def _is_decisive(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a change of the space gives rows another chance of a verdict."""
    noted = ONLY_NOTED
    if CONTROLS not in (*_primary(before), *_primary(after)):
        # Controls change the comparisons with controls only.
        noted = noted | {"control"}
    return not changed_parts(before, after) <= noted


def _changed(declarations: Sequence[Declaration]) -> str:
    """Returns why the results give no verdict any more; empty if they do."""
    later = [
        number for number, one in enumerate(declarations) if number and one.compared
    ]
    if not later:
        return ""
    # The declaration in force when a verdict became possible.
    first = declarations[later[0] - 1].space
    last = declarations[-1].space
    changed = changes(_comparison(first, last), _comparison(last, first))
    if changed:
        return changed[0]
    trained: set[int] = set()
    for declaration in declarations:
        trained.update(declaration.trained)
    lost = trained - {*last["seeds"], *fresh_seeds(last)}
    return seeds_left_out(lost) if lost else ""


def seeds_left_out(seeds: Collection[int]) -> str:
    """Returns what changed if trained seeds are not declared."""
    listed = ", ".join(map(str, sorted(seeds)[:MOST_SEEDS]))
    return f"seeds left out: {listed}"


def _comparison(space: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what rows are compared by, and with, as far as both spaces say it."""
    baseline = dict(space.get("baseline") or {})
    design = space.get("design") or {}
    if design.get("name") != "rows":
        # A factor that is added or removed changes the levels of row 0 on paper only.
        baseline = {
            name: level
            for name, level in baseline.items()
            if name in (other.get("baseline") or {})
        }
    return {
        "metric": space.get("metric"),
        "direction": space.get("direction"),
        "baseline": baseline,
    }
