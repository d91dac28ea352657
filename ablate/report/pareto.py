"""Which cells no other cell beats in every respect, and how much of the plane they cover."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import moocore
import numpy as np

from ablate import advice
from ablate.errors import AblateError
from ablate.records import CellResult, StudyResults
from ablate.report.blocks import pooled_spread
from ablate.report.grid import Grid
from ablate.report.summary import shown_levels
from ablate.report.table import DIGITS, level_text
from ablate.report.units import cost_units

WORTH_SHOWING = 0.05
"""Probability of being on the front from which a cell is shown."""
PROBABILITY = "P(front)"


@dataclass(frozen=True)
class Measure:
    """In what a hypervolume is told: the objectives as the table shows them."""

    name: str
    size: float

    def text(self, covered: float) -> str:
        return f"{covered / self.size:.4g}"


def pareto_grid(results: StudyResults, objectives: Mapping[str, str], *, history: bool = False) -> Grid:
    """The Pareto front: means over seeds, cells with all their seeds completed, each with the probability of being on it.

    The hypervolume is that between the front and the worst value of each objective; `history` gives it cell by cell, in the order
    in which cells were planned or proposed, as a share of the last.

    Args:
        objectives: `max` or `min` by the study's metric and costs.

    Raises:
        AblateError: no cell is completed.
    """
    cells = [cell for cell in results.cells if cell.cost is not None and cell.states and set(cell.states) == set(cell.values)]
    if not cells:
        raise AblateError(
            f"{results.name} has no cell yet that is completed; go on with: {advice.command('resume', results.name)}"
        )
    points = np.array([[_value(cell, name, results.metric) for name in objectives] for cell in cells])
    maximise = [direction == "max" for direction in objectives.values()]
    units = cost_units((cell.cost for cell in cells), [name for name in objectives if name != results.metric])
    heads = [name if name == results.metric else f"{name} ({units[name].letter})" for name in objectives]
    measure = Measure(" x ".join(heads), math.prod(unit.size for unit in units.values()))
    if history:
        return _history(cells, points, maximise, measure)
    sure = _probabilities(
        results, cells, points, maximise, list(objectives).index(results.metric) if results.metric in objectives else None
    )
    on_front = moocore.is_nondominated(points, maximise=maximise, keep_weakly=True)
    shown = [index for index in range(len(cells)) if on_front[index] or (sure is not None and sure[index] >= WORTH_SHOWING)]
    shown.sort(key=lambda index: tuple(points[index][::-1]))
    worst = np.where(maximise, points.min(0), points.max(0))
    covered = float(moocore.hypervolume(points, ref=worst, maximise=maximise))

    def text(name: str, value: float) -> str:
        return f"{value:.{DIGITS[name]}f}" if name == results.metric else units[name].text(int(value))

    rows = [
        [
            str(cells[index].index),
            *(level_text(shown_levels(cells[index]).get(factor)) for factor in results.factors),
            *(text(name, value) for name, value in zip(objectives, points[index], strict=True)),
            str(len(cells[index].values)),
            "yes" if on_front[index] else "",
            *([f"{sure[index]:.2f}"] if sure is not None else []),
        ]
        for index in shown
    ]
    data = [
        {
            "row": cells[i].index,
            **shown_levels(cells[i]),
            **dict(zip(objectives, points[i].tolist(), strict=True)),
            "n": len(cells[i].values),
            "front": bool(on_front[i]),
            "probability": float(sure[i]) if sure is not None else None,
        }
        for i in shown
    ]
    corner = zip(heads, objectives, worst, strict=True)
    reference = ", ".join(f"{head} {text(name, value)}" for head, name, value in corner)
    notes = [
        f"front: {int(on_front.sum())} of {len(cells)} completed cells: no other is at least as good in all of "
        f"{', '.join(f'{name} ({direction})' for name, direction in objectives.items())}, and better in one. Means over n seeds.",
        f"Hypervolume {measure.text(covered)} ({measure.name}), against the worst of each: {reference}.",
    ]
    if sure is not None:
        notes.append(
            f"P(front): probability of being on the true front, given the spread over seeds; rows from {WORTH_SHOWING:g} up."
        )
    columns = ["row", *results.factors, *heads, "n", "front", *([PROBABILITY] if sure is not None else [])]
    return Grid(columns, rows, data, frozenset({"row", "n", PROBABILITY, *heads}), results.question, notes)


def _probabilities(
    results: StudyResults, cells: Sequence[CellResult], points: np.ndarray[Any, Any], maximise: list[bool], metric: int | None
) -> np.ndarray[Any, Any] | None:
    """How often each cell is on the front when the means are drawn anew from what the seeds leave open; None where the spread
    cannot be told, or where costs alone decide.

    A mean is drawn around the one found with the pooled spread of single trainings around their cell's and seed's mean (the
    posterior under a flat prior). Equal results give equal numbers.
    """
    if metric is None:
        return None
    try:
        sd, freedom = pooled_spread(results)
    except AblateError:
        return None
    generator = np.random.default_rng(0)
    draws = max(200, min(2000, 200_000 // len(cells)))
    spread = sd * np.sqrt(freedom / generator.chisquare(freedom, draws))
    noise = generator.standard_normal((draws, len(cells))) / np.sqrt([len(cell.values) for cell in cells])
    often = np.zeros(len(cells))
    for one, drawn in zip(spread, noise, strict=True):
        moved = points.copy()
        moved[:, metric] += one * drawn
        often += moocore.is_nondominated(moved, maximise=maximise, keep_weakly=True)
    return often / draws


def _value(cell: CellResult, name: str, metric: str) -> float:
    return statistics.fmean(cell.values.values()) if name == metric else float(getattr(cell.cost, name))


def _history(cells: Sequence[CellResult], points: np.ndarray[Any, Any], maximise: list[bool], measure: Measure) -> Grid:
    worst = np.where(maximise, points.min(0), points.max(0))
    covered = [float(moocore.hypervolume(points[: n + 1], ref=worst, maximise=maximise)) for n in range(len(points))]
    data = [
        {"cells": n + 1, "row": cell.index, "hypervolume": found, "share": found / (covered[-1] or 1.0)}
        for n, (cell, found) in enumerate(zip(cells, covered, strict=True))
    ]
    rows = [[str(row["cells"]), str(row["row"]), measure.text(row["hypervolume"]), f"{100 * row['share']:.1f} %"] for row in data]
    columns = ["cells", "row", f"hypervolume ({measure.name})", "share"]
    return Grid(columns, rows, data, frozenset(columns))
