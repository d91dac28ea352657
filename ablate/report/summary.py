"""Summarises cells: mean and standard deviation over seeds, and paired differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from ablate.records import (
    CellResult,
    Cost,
    Level,
    Status,
    StudyResults,
    Tune,
    column_of,
    level_text,
)
from ablate.report.collapse import collapsed_seeds
from ablate.statistics.numbers import mean_of, sd_of

# The costs that tables show.
COST_HEADINGS = {"params": "params", "flops": "FLOPs"}
RoleWord = Literal["reference", "baseline", "variant", "control"]


@dataclass(frozen=True)
class Row:
    """One cell of a study as a row of a table.

    A factor that the model does not read has no level.

    `mean` and `sd` are over the `n` completed seeds (sd with n - 1, None below two).
    `delta` and `delta_sd` are mean and standard deviation of the differences to the
    reference, seed by seed over the `paired` seeds that both have. `gain` and `gain_sd`
    are the same for the cell's iso-cost control, row `control`. That is the reference
    if it is nearest in cost.
    """

    index: int
    role: str
    levels: Mapping[str, Level | None]
    n: int
    mean: float | None
    sd: float | None
    paired: int
    delta: float | None
    delta_sd: float | None
    cost: Cost | None
    note: str
    control: int | None = None
    gain: float | None = None
    gain_sd: float | None = None
    # The levels of the nuisance hyperparameters that the row has chosen.
    chosen: Mapping[str, Level | None] = field(default_factory=dict)


def summarise(
    results: StudyResults, differences: Mapping[int, float | None] | None = None
) -> list[Row]:
    """Returns one row per cell, in the order of the plan.

    A folded cell shows the numbers of the cell that it repeats, with a note.

    Args:
        differences: from a row 0 with extra seeds, by row.
    """
    by_index = {cell.index: cell for cell in results.cells}
    reference = by_index.get(0)
    collapsed = collapsed_seeds(results)
    rows = []
    for cell in results.cells:
        source = cell if cell.same_as is None else by_index[cell.same_as]
        lost = len(collapsed.get(source.index, ()))
        row = _row(cell, source, reference, lost)
        row = replace(row, chosen=chosen_levels(results.tune, source))
        delta = (differences or {}).get(source.index, row.delta)
        rows.append(replace(row, delta=delta))
    controls = {
        cell.control_of: cell for cell in results.cells if cell.control_of is not None
    }
    if not controls:
        return rows
    baseline = results.baseline
    for number, row in enumerate(rows):
        if row.role == "variant":
            control = controls.get(row.index, baseline)
            rows[number] = _against(row, by_index, control)
    return rows


def _against(
    row: Row, by_index: Mapping[int, CellResult], control: CellResult | None
) -> Row:
    """Returns the row with its gain over a control of the same cost."""
    if control is None:
        return row
    cell = by_index[row.index]
    values = (cell if cell.same_as is None else by_index[cell.same_as]).values
    others = (control if control.same_as is None else by_index[control.same_as]).values
    gains = [values[seed] - others[seed] for seed in sorted(set(values) & set(others))]
    return replace(
        row,
        control=control.index,
        gain=mean_of(gains) if gains else None,
        gain_sd=sd_of(gains) if len(gains) > 1 else None,
    )


def chosen_levels(tune: Tune | None, cell: CellResult) -> dict[str, Level | None]:
    """Returns the levels of the nuisance hyperparameters that a row has chosen.

    None before. If its seeds have chosen different ones, a text with their numbers.
    """
    if tune is None:
        return {}
    chosen: dict[str, Level | None] = {}
    for name in tune.names:
        counts = Counter(
            tune.points[setting][name] for setting in cell.settings.values()
        )
        levels = list(counts)
        if len(levels) > 1:
            ordered = sorted(counts, key=lambda level: -counts[level])
            texts = [f"{level_text(level)} ({counts[level]})" for level in ordered]
            chosen[name] = ", ".join(texts)
        else:
            chosen[name] = levels[0] if levels else None
    return chosen


class HasLevels(Protocol):
    """A planned cell or its result."""

    @property
    def levels(self) -> Mapping[str, Level]: ...

    @property
    def unread(self) -> frozenset[str]: ...


def level_columns(levels: Mapping[str, Level | None]) -> dict[str, Level | None]:
    """Returns levels by the names of their columns in data."""
    return {column_of(factor): level for factor, level in levels.items()}


def factor_label(labels: Mapping[str, str], factor: str) -> str:
    """Returns what a factor is called in tables and figures."""
    return labels.get(factor, factor)


def level_label(labels: Mapping[str, str], factor: str, level: Level | None) -> str:
    """Returns what a level is called in tables and figures."""
    text = level_text(level)
    return labels.get(f"{factor}:{text}", text)


def shown_levels(cell: HasLevels) -> dict[str, Level | None]:
    """Returns the levels of a cell; None if the model does not read the factor."""
    return {
        name: None if name in cell.unread else level
        for name, level in cell.levels.items()
    }


def _row(
    cell: CellResult, source: CellResult, reference: CellResult | None, collapsed: int
) -> Row:
    """Returns a cell as a row.

    Args:
        source: the cell itself, or the one that it repeats.
        collapsed: how many of its seeds collapsed.
    """
    values = [source.values[seed] for seed in sorted(source.values)]
    shared: list[int] = []
    differences: list[float] = []
    if reference is not None and source.index != reference.index:
        shared = sorted(set(source.values) & set(reference.values))
        differences = [source.values[seed] - reference.values[seed] for seed in shared]
    return Row(
        index=cell.index,
        role=cell.role,
        levels=shown_levels(cell),
        n=len(values),
        mean=mean_of(values) if values else None,
        sd=sd_of(values) if len(values) > 1 else None,
        paired=len(shared),
        delta=mean_of(differences) if differences else None,
        delta_sd=sd_of(differences) if len(differences) > 1 else None,
        cost=source.cost,
        note=_note(cell, source, collapsed),
    )


def _note(cell: CellResult, source: CellResult, collapsed: int) -> str:
    """Returns what the numbers do not show.

    That is folded and infeasible cells, seeds without a result, and collapsed ones.
    """
    if cell.same_as is not None:
        notes = [f"same as {cell.same_as}: {cell.note}"]
    elif cell.note:
        notes = [cell.note]
    else:
        notes = []
    if cell.control_of is not None:
        notes += [f"control of {cell.control_of}"]
    missing = Counter(
        state for state in source.statuses.values() if state != Status.COMPLETED
    )
    notes += [f"{number} {state.value}" for state, number in sorted(missing.items())]
    if collapsed:
        notes.append(f"{collapsed} collapsed")
    return "; ".join(notes)
