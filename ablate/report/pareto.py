"""Which cells no other cell beats in every respect, and how much of the plane they cover."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import moocore
import numpy as np

from ablate.errors import AblateError
from ablate.records import CellResult, StudyResults
from ablate.report.grid import Grid
from ablate.report.summary import shown_levels
from ablate.report.table import DIGITS, level_text
from ablate.report.units import cost_units


def pareto_grid(results: StudyResults, objectives: Mapping[str, str], *, history: bool = False) -> Grid:
    """The Pareto front: means over seeds, cells with all their seeds completed.

    The hypervolume is that between the front and the worst value of each objective; `history` gives it cell by cell, in the order
    in which cells were planned or proposed, as a share of the last.

    Args:
        objectives: `max` or `min` by the study's metric and costs.

    Raises:
        AblateError: no cell is completed.
    """
    cells = [cell for cell in results.cells if cell.cost is not None and cell.states and set(cell.states) == set(cell.values)]
    if not cells:
        raise AblateError(f"{results.name} has no cell yet that is completed; go on with: ablate resume {results.name}")
    points = np.array([[_value(cell, name, results.metric) for name in objectives] for cell in cells])
    maximise = [direction == "max" for direction in objectives.values()]
    if history:
        return _history(cells, points, maximise)
    front = [index for index, on in enumerate(moocore.is_nondominated(points, maximise=maximise, keep_weakly=True)) if on]
    front.sort(key=lambda index: tuple(points[index][::-1]))
    worst = np.where(maximise, points.min(0), points.max(0))
    covered = float(moocore.hypervolume(points, ref=worst, maximise=maximise))
    units = cost_units((cell.cost for cell in cells), [name for name in objectives if name != results.metric])
    heads = [name if name == results.metric else f"{name} ({units[name].letter})" for name in objectives]

    def text(name: str, value: float) -> str:
        return f"{value:.{DIGITS[name]}f}" if name == results.metric else units[name].text(int(value))

    rows = [
        [
            str(cells[index].index),
            *(level_text(shown_levels(cells[index]).get(factor)) for factor in results.factors),
            *(text(name, value) for name, value in zip(objectives, points[index], strict=True)),
            str(len(cells[index].values)),
        ]
        for index in front
    ]
    data = [
        {"row": cells[i].index, **shown_levels(cells[i]), **dict(zip(objectives, points[i].tolist(), strict=True))} for i in front
    ]
    corner = zip(heads, objectives, worst, strict=True)
    reference = ", ".join(f"{head} {text(name, value)}" for head, name, value in corner)
    notes = [
        f"{len(front)} of {len(cells)} completed cells: no other is at least as good in all of "
        f"{', '.join(f'{name} ({direction})' for name, direction in objectives.items())}, and better in one. Means over n seeds.",
        f"Hypervolume {covered:.6g}, against the worst of each: {reference}.",
    ]
    columns = ["row", *results.factors, *heads, "n"]
    return Grid(columns, rows, data, frozenset({"row", "n", *heads}), results.question, notes)


def _value(cell: CellResult, name: str, metric: str) -> float:
    return statistics.fmean(cell.values.values()) if name == metric else float(getattr(cell.cost, name))


def _history(cells: Sequence[CellResult], points: np.ndarray[Any, Any], maximise: list[bool]) -> Grid:
    worst = np.where(maximise, points.min(0), points.max(0))
    covered = [float(moocore.hypervolume(points[: n + 1], ref=worst, maximise=maximise)) for n in range(len(points))]
    data = [
        {"cells": n + 1, "row": cell.index, "hypervolume": found, "share": found / (covered[-1] or 1.0)}
        for n, (cell, found) in enumerate(zip(cells, covered, strict=True))
    ]
    rows = [[str(row["cells"]), str(row["row"]), f"{row['hypervolume']:.6g}", f"{100 * row['share']:.1f} %"] for row in data]
    columns = ["cells", "row", "hypervolume", "share"]
    return Grid(columns, rows, data, frozenset(columns))
