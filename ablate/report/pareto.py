"""The Pareto front of a study, and its hypervolume.

The front has the cells that no other cell dominates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import moocore
import numpy as np

from ablate.errors import AblateError
from ablate.records import CellResult, StudyResults
from ablate.report.blocks import pooled_spread
from ablate.report.confirmation import best_candidates
from ablate.report.numbers import fixed
from ablate.report.summary import factor_label, level_columns, level_label, shown_levels
from ablate.report.table import Column, Table, tabulate
from ablate.report.units import Unit, cost_units
from ablate.statistics.numbers import mean_of
from ablate.text import advice

# Cells with at least this probability of being on the front are shown.
WORTH_SHOWING = 0.05
PROBABILITY = "P(front)"


@dataclass(frozen=True)
class Plane:
    """The completed cells of a study in the space of its objectives.

    Attributes:
        objectives: `max` or `min` by metric or cost.
        cells: the cells whose seeds are all completed.
        points: (cells, objectives), means over seeds.
        units: a unit for each cost.
    """

    results: StudyResults
    objectives: Mapping[str, str]
    cells: Sequence[CellResult]
    points: np.ndarray[Any, Any]
    units: Mapping[str, Unit]

    @property
    def maximise(self) -> list[bool]:
        return [direction == "max" for direction in self.objectives.values()]

    @property
    def worst(self) -> np.ndarray[Any, Any]:
        """The worst value of each objective, (objectives,).

        It is the reference point of the hypervolume.
        """
        worst: np.ndarray[Any, Any] = np.where(
            self.maximise, self.points.min(0), self.points.max(0)
        )
        return worst

    @property
    def headings(self) -> list[str]:
        return [self._heading(name) for name in self.objectives]

    def _heading(self, name: str) -> str:
        if name == self.results.metric.name:
            return name
        return f"{name} ({self.units[name].letter})"

    def text(self, name: str, value: float) -> str:
        """Returns a value of an objective as the table shows it."""
        if name == self.results.metric.name:
            return fixed(value, self.results.metric.digits)
        return self.units[name].text(int(value))

    def texts(self, values: Iterable[float]) -> list[str]:
        """Returns a value of each objective as the table shows it."""
        pairs = zip(self.objectives, values, strict=True)
        return [self.text(name, value) for name, value in pairs]

    def hypervolume(self, cells: int | None = None) -> float:
        """Returns the hypervolume of the front of the first `cells`.

        It lies between the worst values and the front.
        """
        return float(
            moocore.hypervolume(
                self.points[:cells], ref=self.worst, maximise=self.maximise
            )
        )

    def volume_text(self, volume: float) -> str:
        """Returns a hypervolume in the units of the table."""
        return f"{volume / math.prod(unit.size for unit in self.units.values()):.4g}"

    @property
    def volume_unit(self) -> str:
        return " x ".join(self.headings)


def pareto_table(
    results: StudyResults, objectives: Mapping[str, str], *, history: bool = False
) -> Table:
    """Returns the Pareto front: means over seeds, with the probability of being on it.

    Only cells whose seeds are all completed count. The hypervolume lies between the
    front and the worst value of each objective. With `history`, the table has the
    hypervolume after each cell, in the order in which cells were planned or proposed,
    also as a share of the last one.

    Args:
        objectives: `max` or `min` by the study's metric and costs.

    Raises:
        AblateError: no cell is completed.
    """
    plane = _plane(results, objectives, every=history)
    if history:
        return _history(plane)
    probabilities = _probabilities(plane)
    on_front = moocore.is_nondominated(
        plane.points, maximise=plane.maximise, keep_weakly=True
    )
    likely = np.zeros(len(plane.cells), dtype=bool)
    if probabilities is not None:
        likely = probabilities >= WORTH_SHOWING
    shown = [int(index) for index in np.flatnonzero(on_front | likely)]
    shown.sort(key=lambda index: tuple(plane.points[index][::-1]))
    points = [
        FrontPoint(
            cell=plane.cells[index],
            point=plane.points[index],
            is_on_front=bool(on_front[index]),
            probability=None if probabilities is None else float(probabilities[index]),
        )
        for index in shown
    ]
    return tabulate(
        front_columns(plane, with_probability=probabilities is not None),
        points,
        title=results.question,
        notes=_notes(plane, int(on_front.sum()), probabilities is not None),
    )


@dataclass(frozen=True)
class FrontPoint:
    """A cell in the plane of the objectives.

    Attributes:
        point: (objectives,).
        probability: of being on the true front; None if it is unknown.
    """

    cell: CellResult
    point: np.ndarray[Any, Any]
    is_on_front: bool
    probability: float | None


def front_columns(plane: Plane, *, with_probability: bool) -> list[Column[FrontPoint]]:
    """Returns the columns of the table of a front.

    Args:
        with_probability: whether the screen shows the probabilities.
    """
    labels = plane.results.labels

    def level_column(factor: str) -> Column[FrontPoint]:
        return Column(
            heading=factor_label(labels, factor),
            text=lambda point: level_label(
                labels, factor, shown_levels(point.cell).get(factor)
            ),
        )

    def objective_column(number: int, name: str) -> Column[FrontPoint]:
        return Column(
            name,
            lambda point: point.point[number].item(),
            heading=plane.headings[number],
            text=lambda point: plane.texts(point.point)[number],
            right=True,
        )

    return [
        Column(
            "row", lambda point: point.cell.index, heading="row", right=True, kind=int
        ),
        Column(fields=lambda point: level_columns(shown_levels(point.cell))),
        *(level_column(factor) for factor in plane.results.factors),
        *(objective_column(*pair) for pair in enumerate(plane.objectives)),
        Column(
            "n", lambda point: len(point.cell.values), heading="n", right=True, kind=int
        ),
        Column(
            "front",
            lambda point: point.is_on_front,
            heading="front",
            text=lambda point: "yes" if point.is_on_front else "",
            kind=bool,
        ),
        Column(
            "probability",
            lambda point: point.probability,
            heading=PROBABILITY if with_probability else "",
            text=lambda point: f"{point.probability:.2f}",
            right=True,
            kind=float | None,
            about="of being on the front",
        ),
    ]


def _plane(
    results: StudyResults, objectives: Mapping[str, str], *, every: bool
) -> Plane:
    """Returns the cells in the plane of the objectives.

    Args:
        every: whether cells count that a search has not confirmed, once it has confirmed
            some. The seed that proposed a cell favours it.
    """
    candidates = results.cells if every else best_candidates(results).cells
    cells = [cell for cell in candidates if _is_completed(cell)]
    if not cells:
        raise AblateError(
            f"{results.name} has no completed cell yet; go on with:"
            f" {advice.command('resume', results.name)}"
        )
    points = np.array([_point(cell, objectives, results.metric.name) for cell in cells])
    costs = [name for name in objectives if name != results.metric.name]
    units = cost_units((cell.cost for cell in cells), costs)
    for name in costs:
        if name not in units and results.reported is not None:
            raise AblateError(
                f"{results.name} was trained elsewhere, so the costs of its rows are not"
                " known"
            )
        if name not in units:
            raise AblateError(
                f"{results.name}: {name} were not counted, because the trainer gives no"
                " model or no inputs; add model= and inputs= to it"
            )
    return Plane(
        results=results,
        objectives=objectives,
        cells=cells,
        points=points,
        units=units,
    )


def _is_completed(cell: CellResult) -> bool:
    """Whether every seed of the cell has a value."""
    if cell.cost is None or not cell.statuses:
        return False
    return set(cell.statuses) == set(cell.values)


def _point(cell: CellResult, objectives: Iterable[str], metric: str) -> list[float]:
    mean = mean_of(cell.values.values())
    return [
        mean if name == metric else float(getattr(cell.cost, name))
        for name in objectives
    ]


def _notes(plane: Plane, on_front: int, with_probability: bool) -> list[str]:
    objectives = [f"{name} ({way})" for name, way in plane.objectives.items()]
    worst = zip(plane.headings, plane.texts(plane.worst), strict=True)
    reference = ", ".join(f"{heading} {text}" for heading, text in worst)
    notes = [
        f"front: {on_front} of {len(plane.cells)} completed cells: no other is at least"
        f" as good in all of {', '.join(objectives)}, and better in one. Means over n"
        " seeds.",
        f"Hypervolume {plane.volume_text(plane.hypervolume())} ({plane.volume_unit}),"
        f" against the worst of each: {reference}.",
    ]
    left_out = len(plane.results.cells) - len(best_candidates(plane.results).cells)
    if left_out:
        notes.append(
            f"{left_out} cells are left out: the search has not trained them on fresh"
            " seeds."
        )
    if with_probability:
        notes.append(
            "P(front): probability of being on the true front, given the spread over"
            f" seeds; rows from {WORTH_SHOWING:g} up."
        )
    return notes


def _probabilities(plane: Plane) -> np.ndarray[Any, Any] | None:
    """Returns the probability that each cell is on the front, given the seeds' spread.

    In each draw, a mean is drawn around the measured one with the pooled spread of
    single trainings (the posterior under a flat prior). Equal results give equal
    probabilities.

    Returns:
        (cells,), or None if the spread is unknown or all objectives are costs.
    """
    metric = plane.results.metric.name
    if metric not in plane.objectives:
        return None
    try:
        sd, freedom = pooled_spread(plane.results)
    except AblateError:
        return None
    column = list(plane.objectives).index(metric)
    count = len(plane.cells)
    generator = np.random.default_rng(0)
    draws = max(200, min(2000, 200_000 // count))
    # The spread itself is uncertain: it is drawn from its posterior (a scaled inverse
    # chi-squared distribution).
    spread = sd * np.sqrt(freedom / generator.chisquare(freedom, draws))
    seeds = np.array([len(cell.values) for cell in plane.cells])
    noise = generator.standard_normal((draws, count)) / np.sqrt(seeds)
    on_front = np.zeros(count)
    for scale, drawn in zip(spread, noise, strict=True):
        moved = plane.points.copy()
        moved[:, column] += scale * drawn
        on_front += moocore.is_nondominated(
            moved, maximise=plane.maximise, keep_weakly=True
        )
    return on_front / draws


def _history(plane: Plane) -> Table:
    """Returns the hypervolume after each cell."""
    volumes = [plane.hypervolume(n + 1) for n in range(len(plane.cells))]
    columns: list[Column[int]] = [
        Column("cells", lambda n: n + 1, heading="cells", right=True),
        Column("row", lambda n: plane.cells[n].index, heading="row", right=True),
        Column(
            "hypervolume",
            lambda n: volumes[n],
            heading=f"hypervolume ({plane.volume_unit})",
            text=lambda n: plane.volume_text(volumes[n]),
            right=True,
        ),
        Column(
            "share",
            lambda n: volumes[n] / (volumes[-1] or 1.0),
            heading="share",
            text=lambda n: f"{100 * volumes[n] / (volumes[-1] or 1.0):.1f} %",
            right=True,
        ),
    ]
    return tabulate(columns, range(len(plane.cells)))
