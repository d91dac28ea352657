"""A metric over the levels of a factor, with intervals and a line per level of another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.errors import AblateError, UnknownName, unknown
from ablate.records import CellResult, Level, StudyResults, level_text
from ablate.report.blocks import representatives
from ablate.report.charts import Chart, Series
from ablate.report.summary import factor_label, level_label
from ablate.report.wording import change_text
from ablate.statistics import student
from ablate.statistics.numbers import mean_of, sd_of
from ablate.text import advice

# The final values of a metric, by row and seed.
Values = Mapping[int, Mapping[int, float]]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class _Point:
    """The mean of a metric at one level.

    `half` is half the length of its interval; nan for a single seed.
    """

    mean: float
    half: float
    seeds: int


def levels_chart(
    results: StudyResults,
    values: Values,
    metric: str,
    by: str,
    group: str = "",
) -> Chart:
    """Draws the mean of a metric over the levels of a factor.

    Each point is the mean over seeds, with the 95 % interval of Student's t over seeds.
    If the study has other factors, a seed contributes its mean over those combinations
    of their levels at which all drawn points have a result.

    Args:
        values: the metric's final values, by row and seed.
        metric: its name.
        by: a factor, whose levels are the x axis: numbers in their order, or texts.
        group: another factor, of which each level is a line.

    Raises:
        UnknownName: the study has no such factor.
        AblateError: there is no result yet, or no combination of the other factors has
            results at all levels.
    """
    places = (by, group) if group else (by,)
    for name in places:
        if name not in results.factors:
            raise UnknownName(unknown("factor", name, results.factors))
    if group == by:
        raise AblateError(
            f"by and group are both {by}; name two factors, or leave out group"
        )
    others = [name for name in results.factors if name not in places]
    cells = _cells(results, values, places, others)
    if not cells:
        raise AblateError(
            f"{results.name} has no result to draw yet; go on with:"
            f" {advice.command('resume', results.name)}"
        )
    points = list(dict.fromkeys(place for place, _ in cells))
    shared = [
        rest
        for rest in dict.fromkeys(rest for _, rest in cells)
        if all((place, rest) in cells for place in points)
    ]
    if not shared:
        raise AblateError(
            f"no combination of {', '.join(others)} has a result at every level of"
            f" {' and '.join(places)}, and a mean over different ones would mix effects;"
            " complete the study, use `design: grid`, or draw: --of factors"
        )
    means = {
        place: _point([values[cells[place, rest].index] for rest in shared])
        for place in points
    }
    titles = {known.name: known.title for known in results.metrics}
    return Chart(
        title=results.question,
        x=factor_label(results.labels, by),
        y=titles.get(metric, metric),
        series=_series(results, means, by, group),
        note=_note(others, len(shared), [point.seeds for point in means.values()]),
        ticks_x=sorted(set(_numbers([place[0] for place in points]))),
    )


def _cells(
    results: StudyResults,
    values: Values,
    places: Sequence[str],
    others: Sequence[str],
) -> dict[tuple[tuple[Level | None, ...], tuple[Level | None, ...]], CellResult]:
    """The cells with results, by the levels of the drawn and of the other factors."""
    trained = representatives(results, [*places, *others])
    return {
        (key[: len(places)], key[len(places) :]): cell
        for key, cell in trained.items()
        # A model that does not read a factor has no level of it.
        if values.get(cell.index) and key[0] is not None
    }


def _point(rows: Sequence[Mapping[int, float]]) -> _Point:
    """The mean over the seeds that all rows have, and its interval."""
    seeds = sorted(set.intersection(*(set(row) for row in rows)))
    if not seeds:
        # Each row has seeds of its own: a mean over rows only.
        return _Point(mean_of(mean_of(row.values()) for row in rows), math.nan, 0)
    means = [mean_of(row[seed] for row in rows) for seed in seeds]
    if len(means) < 2:
        return _Point(means[0], math.nan, 1)
    quantile = float(student.quantile(len(means) - 1, (1 + CONFIDENCE) / 2))
    half = quantile * sd_of(means) / math.sqrt(len(means))
    return _Point(mean_of(means), half, len(means))


def _series(
    results: StudyResults,
    means: Mapping[tuple[Level | None, ...], _Point],
    by: str,
    group: str,
) -> list[Series]:
    by_line: dict[Level | None, list[tuple[Level | None, _Point]]] = {}
    for place, point in means.items():
        by_line.setdefault(place[1] if group else None, []).append((place[0], point))
    series = []
    for level, line in by_line.items():
        numbers = _numbers([x for x, _ in line])
        if numbers:
            order = sorted(range(len(line)), key=numbers.__getitem__)
            line = [line[place] for place in order]
        name = change_text({group: level}, results.labels) if group else "mean"
        halves = [0.0 if math.isnan(point.half) else point.half for _, point in line]
        series.append(
            Series(
                name=name,
                x=[_x(results, by, x) for x, _ in line],
                y=[point.mean for _, point in line],
                low=[p.mean - half for (_, p), half in zip(line, halves, strict=True)],
                high=[p.mean + half for (_, p), half in zip(line, halves, strict=True)],
                texts=[
                    f"{by} = {level_text(x)}, {point.seeds} seeds" for x, point in line
                ],
                joined=True,
            )
        )
    return series


def _x(results: StudyResults, by: str, level: Level | None) -> object:
    if _numbers([level]):
        return level
    return level_label(results.labels, by, level)


def _numbers(levels: Sequence[Level | None]) -> list[float]:
    """The levels as numbers; empty if one of them is none."""
    numbers = [
        float(level)
        for level in levels
        if isinstance(level, int | float) and not isinstance(level, bool)
    ]
    return numbers if len(numbers) == len(levels) else []


def _note(others: Sequence[str], combinations: int, seeds: Sequence[int]) -> str:
    note = ""
    if others:
        plural = "" if combinations == 1 else "s"
        note = (
            f"Means over {combinations} combination{plural} of the levels of"
            f" {', '.join(others)}. "
        )
    if max(seeds) > 1:
        return (
            f"{note}Bars: 95 % intervals of Student's t over the seeds, for each point"
            " alone; they do not compare points."
        )
    return f"{note}No intervals: they need two seeds or more."
