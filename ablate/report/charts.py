"""The content of a figure, independent of the library that draws it.

matplotlib (still pictures) and Plotly (interactive pages) draw the same charts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ablate.errors import AblateError
from ablate.records import CellResult, Level, StudyResults, level_text
from ablate.report.blocks import representatives
from ablate.report.effect import Effect
from ablate.report.factorial import Term
from ablate.report.forest_text import shown_range
from ablate.report.layer_means import Line
from ablate.report.numbers import drawable
from ablate.report.palette import NO_VERDICT
from ablate.report.summary import factor_label, level_label, shown_levels
from ablate.report.units import unit_for
from ablate.report.wording import change_text
from ablate.statistics.numbers import mean_of, sd_of
from ablate.text import advice

# Up to this many points of a cloud have error bars; of a larger cloud, only the front.
MOST_SPREADS = 300
# Up to this many points of a front are labelled.
MOST_NAMED = 20
PRINTED = "printed"


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Attributes:
        low, high: interval of each point, of `y`, or of `x` in a sideways chart.
        keys: what each point stands for, such as the number of a row.
        texts: what a page shows if the pointer is on a point.
        labels: what stands beside each point.
        joined: whether a line joins the points.
        steps: whether the line goes in steps: a value holds until the next point.
        like: the number of the series that this one belongs to: it has its colour, and
            no entry in the legend. None: it stands for itself.
        dashed: whether the line is dashed.
    """

    name: str
    x: Sequence[Any]
    y: Sequence[Any]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    keys: Sequence[Any] = ()
    texts: Sequence[str] = ()
    labels: Sequence[str] = ()
    joined: bool = False
    steps: bool = False
    like: int | None = None
    dashed: bool = False

    def __post_init__(self) -> None:
        for name in ("x", "y", "low", "high"):
            values = getattr(self, name)
            if values is not None:
                # A frozen record sets its fields this way.
                object.__setattr__(self, name, drawable(values))


@dataclass(frozen=True)
class Chart:
    """Series over two axes.

    Attributes:
        form: `points`, `bars`, or `lines` with intervals as bands.
        zero: whether to mark the value at which nothing changes.
        log_x, log_y: whether an axis is logarithmic.
        ticks_x: where the x axis has ticks; by default at round numbers.
        range_x: where the x axis begins and ends; by default it shows all.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    form: str = "points"
    sideways: bool = False
    zero: bool = False
    note: str = ""
    log_x: bool = False
    log_y: bool = False
    ticks_x: Sequence[float] = ()
    range_x: tuple[float, float] | None = None

    def categories(self) -> list[str]:
        """Returns the names on the y axis of a sideways chart, in the order of rows."""
        if not self.sideways:
            return []
        names = list(itertools.chain.from_iterable(series.y for series in self.series))
        keys = list(
            itertools.chain.from_iterable(series.keys for series in self.series)
        )
        if len(keys) == len(names) and all(isinstance(key, int) for key in keys):
            pairs = sorted(zip(keys, names, strict=True), key=lambda pair: pair[0])
            names = [name for _, name in pairs]
        return list(dict.fromkeys(names))

    @property
    def shares_categories(self) -> bool:
        """Whether points of several series have the same place on the y axis."""
        number = sum(len(series.y) for series in self.series)
        return self.form == "points" and number > len(self.categories())


@dataclass(frozen=True)
class Axis:
    """One axis of parallel coordinates.

    It has one value per cell. If values are indices of levels, `ticks` has their texts.
    """

    name: str
    values: Sequence[float]
    ticks: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", drawable(self.values))


@dataclass(frozen=True)
class Coordinates:
    """Cells as lines over parallel axes; the last axis is the metric."""

    title: str
    axes: Sequence[Axis]
    keys: Sequence[int] = field(default_factory=tuple)
    note: str = "One line per row. Its colour is the mean of the metric."


def label(results: StudyResults, cell: CellResult) -> str:
    """Describes a cell by its difference to row 0.

    An example is `shortcuts.count = 2, ffn.kernel = 3`.
    """
    levels = shown_levels(cell)
    first = shown_levels(results.cells[0])
    changed = {
        name: level
        for name, level in levels.items()
        if level != first.get(name) and level is not None
    }
    if changed:
        return change_text(changed, results.labels)
    return results.cells[0].role


def effects_chart(results: StudyResults, effects: Sequence[Effect]) -> Chart:
    """Draws a forest plot of the effects, grouped by verdict.

    An effect is a row's difference to row 0, with its simultaneous 95 % interval.
    """
    shown = [effect for effect in effects if effect.mean is not None]
    if not shown:
        raise AblateError(
            f"{results.name} has no effect to draw yet; go on with:"
            f" {advice.command('resume', results.name)}"
        )
    by_verdict = _grouped(shown, _verdict_name)
    estimates = [each.estimate for each in shown if each.estimate is not None]
    finite = [each for each in estimates if math.isfinite(each.high - each.low)]
    range_x = None
    cut = ""
    if finite:
        low, high = shown_range(finite)
        if any(each.low < low or each.high > high for each in estimates):
            room = (high - low) / 20
            range_x = (low - room, high + room)
            cut = " A bar that meets the edge goes on."
    return Chart(
        title=results.question,
        x=f"{results.metric.difference_title}, row minus row 0",
        y="",
        series=[_forest(name, of) for name, of in by_verdict.items()],
        sideways=True,
        zero=True,
        note=f"Bars: 95 % intervals for all rows at once. Colours: verdicts.{cut}",
        range_x=range_x,
    )


def _verdict_name(effect: Effect) -> str:
    """Returns the verdict. A row that cannot have one yet is not inconclusive."""
    if effect.withheld is not None:
        return NO_VERDICT
    return str(effect.verdict)


def _forest(name: str, effects: Sequence[Effect]) -> Series:
    """Returns effects as points with their intervals."""
    intervals = [_interval(effect) for effect in effects]
    return Series(
        name=name,
        x=[effect.mean for effect in effects],
        y=[_effect_name(effect) for effect in effects],
        low=[low for low, _ in intervals],
        high=[high for _, high in intervals],
        keys=[effect.row for effect in effects],
    )


def _interval(effect: Effect) -> tuple[Any, Any]:
    """Returns the 95 % interval of an effect; it has no width without an estimate."""
    if effect.estimate is None:
        return effect.mean, effect.mean
    return effect.estimate.low, effect.estimate.high


def _effect_name(effect: Effect) -> str:
    change = change_text(effect.changed, effect.labels)
    return f"{effect.row}: {change} (n={len(effect.seeds)})"


def terms_chart(
    results: StudyResults, terms: Sequence[Term], title: str, *, by_seed: bool
) -> Chart:
    """Draws a forest plot of effects of factors, one series per kind.

    The kinds are main effects, interactions and contributions.

    Args:
        by_seed: whether each effect is computed seed by seed (`Factorial.by_seed`).
    """
    shown = [term for term in terms if term.estimate is not None]
    if not shown:
        is_complete = all(cell.values for cell in results.cells)
        missing = "" if is_complete else "complete the missing cells, or "
        raise AblateError(
            f"{title} cannot be estimated from the completed cells of {results.name};"
            f" {missing}use `design: grid`"
        )
    by_kind = _grouped(shown, lambda term: term.kind)
    return Chart(
        title=f"{results.question} {title}",
        x=results.metric.difference_title,
        y="",
        series=[_term_forest(kind, of, results.labels) for kind, of in by_kind.items()],
        sideways=True,
        zero=True,
        note=(
            "Bars: 95 % intervals of Student's t over the seeds."
            if by_seed
            else "Bars: 95 % intervals, not adjusted for the number of effects. Noise"
            " is pooled over all cells."
        ),
    )


def _term_forest(name: str, terms: Sequence[Term], labels: Mapping[str, str]) -> Series:
    """Returns terms as points with their intervals."""
    estimates = [term.estimate for term in terms if term.estimate is not None]
    return Series(
        name=name,
        x=[estimate.value for estimate in estimates],
        y=[_term_name(term, labels) for term in terms],
        low=[estimate.low for estimate in estimates],
        high=[estimate.high for estimate in estimates],
    )


def _term_name(term: Term, labels: Mapping[str, str]) -> str:
    pairs = zip(term.factors, term.levels, strict=True)
    return ", ".join(change_text({name: level}, labels) for name, level in pairs)


def interaction_charts(results: StudyResults) -> list[Chart]:
    """Draws each pair of factors whose interaction the completed cells show.

    These are the pairs with two lines or more that have two points or more.
    """
    names = [name for name in results.factors if _varies_everywhere(name, results)]
    charts = [
        interaction_chart(results, first, other)
        for first, other in itertools.combinations(names, 2)
    ]
    return [chart for chart in charts if _lines(chart) >= 2]


def _lines(chart: Chart) -> int:
    """Returns how many series of a chart have two points or more."""
    return sum(len(series.y) >= 2 for series in chart.series)


def interaction_chart(results: StudyResults, first: str, other: str) -> Chart:
    """Draws the mean metric over one factor, one line per level of the other factor.

    The mean is taken over the levels of all other factors.
    """
    names = [name for name in results.factors if _varies_everywhere(name, results)]
    at_one = names.index(first)
    at_other = names.index(other)
    cells = representatives(results, names)
    values: dict[tuple[Level, Level], list[float]] = {}
    rest = set()
    for key, cell in cells.items():
        rest.add(_without(key, at_one, at_other))
        if cell.values:
            mean = mean_of(cell.values.values())
            values.setdefault((key[at_one], key[at_other]), []).append(mean)
    # A mean over only some levels of the other factors would include the effects of
    # those.
    means = {
        pair: mean_of(means_of_cells)
        for pair, means_of_cells in values.items()
        if len(means_of_cells) == len(rest)
    }
    series = []
    for level in dict.fromkeys(key[at_other] for key in cells):
        points = {
            level_label(results.labels, first, x): mean
            for (x, y), mean in means.items()
            if y == level
        }
        series.append(
            Series(
                name=change_text({other: level}, results.labels),
                x=list(points),
                y=list(points.values()),
                joined=True,
            )
        )
    return Chart(
        title=" x ".join(factor_label(results.labels, name) for name in (first, other)),
        x=factor_label(results.labels, first),
        y=results.metric.title,
        series=series,
        note="Points: means over the completed seeds and over the levels of all other"
        " factors. Parallel lines: no interaction. If seeds are missing, the effects"
        " in the table can differ from these means, because they come from a model"
        " with seeds as blocks.",
    )


def _varies_everywhere(name: str, results: StudyResults) -> bool:
    """Whether every cell of the space has a level of the factor."""
    return all(name in cell.levels for cell in results.cells if cell.role != "control")


def _without(key: tuple[Level, ...], *places: int) -> tuple[Level, ...]:
    return tuple(level for position, level in enumerate(key) if position not in places)


def pareto_chart(
    results: StudyResults,
    rows: Sequence[Mapping[str, Any]],
    cost: str,
    printed: Mapping[int, float] | None = None,
) -> Chart:
    """Draws every completed cell by cost and metric, and joins the front.

    Args:
        rows: the data of `pareto_table`.
        cost: the cost on the x axis.
        printed: the values of a paper by row, drawn at the cost that is counted here.
    """
    cells = [
        cell
        for cell in results.cells
        if cell.cost is not None and cell.values and cell.same_as is None
    ]
    if not cells:
        raise AblateError(
            f"{results.name} has no completed cell to draw; go on with:"
            f" {advice.command('resume', results.name)}"
        )
    cells.sort(key=lambda cell: getattr(cell.cost, cost))
    unit = unit_for(getattr(cell.cost, cost) for cell in cells)
    rows_on_front = {row["row"] for row in rows if row["front"]}
    front = [cell for cell in cells if cell.index in rows_on_front]
    dominated = [cell for cell in cells if cell.index not in rows_on_front]
    x_of = {cell.index: getattr(cell.cost, cost) / unit.size for cell in cells}
    cloud = _cloud("dominated", dominated, x_of)
    if len(dominated) <= MOST_SPREADS:
        # With thousands of points the number of the row is enough; a click shows the
        # rest.
        cloud = _with_details(cloud, dominated, results, rows)
    heading = "FLOPs" if cost == "flops" else cost
    # The front is drawn last, above all others.
    series = [cloud, _named_front(front, x_of, results, rows)]
    note = "Bars: ± sd over seeds."
    if printed is not None:
        shown = [row for row in x_of if row in printed]
        series.insert(
            0,
            Series(
                name=PRINTED,
                x=[x_of[row] for row in shown],
                y=[printed[row] for row in shown],
                keys=shown,
                labels=[f"row {row}" for row in shown],
            ),
        )
        note += f" {PRINTED}: the value of the paper, at the cost that is counted here."
    return Chart(
        title=results.question,
        x=f"{heading} ({unit.letter})",
        y=results.metric.title,
        series=series,
        note=note,
    )


def _named_front(
    front: Sequence[CellResult],
    x_of: Mapping[int, float],
    results: StudyResults,
    rows: Sequence[Mapping[str, Any]],
) -> Series:
    """Returns the front, with the numbers of its rows beside its points."""
    series = _with_details(_cloud("front", front, x_of), front, results, rows)
    if len(front) > MOST_NAMED:
        return series
    return replace(series, labels=[f"row {cell.index}" for cell in front])


def _cloud(name: str, cells: Sequence[CellResult], x_of: Mapping[int, float]) -> Series:
    """Returns cells as points: cost on x, mean of the metric on y."""
    return Series(
        name=name,
        x=[x_of[cell.index] for cell in cells],
        y=[mean_of(cell.values.values()) for cell in cells],
        keys=[cell.index for cell in cells],
        joined=name == "front",
        steps=True,
    )


def _with_details(
    series: Series,
    cells: Sequence[CellResult],
    results: StudyResults,
    rows: Sequence[Mapping[str, Any]],
) -> Series:
    """Returns the series with bars of one standard deviation and a text per point."""
    probabilities = {row["row"]: row["probability"] for row in rows}
    spreads = [_spread(cell) for cell in cells]
    return replace(
        series,
        low=[mean - sd for mean, sd in zip(series.y, spreads, strict=True)],
        high=[mean + sd for mean, sd in zip(series.y, spreads, strict=True)],
        texts=[
            _point_text(results, cell, probabilities.get(cell.index)) for cell in cells
        ],
    )


def _spread(cell: CellResult) -> float:
    """Standard deviation over seeds; 0 for one seed."""
    if len(cell.values) < 2:
        return 0.0
    return sd_of(cell.values.values())


def _point_text(
    results: StudyResults, cell: CellResult, probability: float | None
) -> str:
    text = f"row {cell.index}: {label(results, cell)}"
    if probability is None:
        return text
    return f"{text}; P(front) {probability:.2f}"


def importance_chart(
    results: StudyResults, shares: Sequence[Mapping[str, Any]]
) -> Chart:
    """Draws the importance of each factor, by evaluator."""
    series = []
    names = dict.fromkeys(itertools.chain.from_iterable(shares))
    evaluators = [name for name in names if name != "factor"]
    for evaluator in evaluators:
        measured = [row for row in shares if row[evaluator] is not None]
        series.append(
            Series(
                name=evaluator,
                x=[row[evaluator] for row in measured],
                y=[row["factor"] for row in measured],
            )
        )
    return Chart(
        title=results.question,
        x="importance",
        y="",
        series=series,
        form="bars",
        sideways=True,
    )


def coordinates(results: StudyResults) -> Coordinates:
    """Returns completed cells as lines over their factors, FLOPs and the metric.

    Raises AblateError if there are fewer than two.
    """
    cells = [cell for cell in results.cells if cell.values and cell.same_as is None]
    if len(cells) < 2:
        number = len(cells) or "no"
        raise AblateError(
            f"{results.name} has {number} completed cell, and this figure compares"
            f" two or more; go on with: {advice.command('resume', results.name)}"
        )
    axes = [_level_axis(name, cells, results.labels) for name in results.factors]
    flops = [cell.cost.flops if cell.cost else 0 for cell in cells]
    unit = unit_for(flops)
    if any(flops):
        values = [value / unit.size for value in flops]
        axes.append(Axis(f"FLOPs ({unit.letter})", values))
    means = [mean_of(cell.values.values()) for cell in cells]
    axes.append(Axis(results.metric.title, means))
    return Coordinates(results.question, axes, [cell.index for cell in cells])


def _level_axis(
    factor: str, cells: Sequence[CellResult], labels: Mapping[str, str]
) -> Axis:
    """Returns the axis of a factor, on which its levels are numbered in order."""
    texts = [level_text(shown_levels(cell).get(factor)) for cell in cells]
    levels = sorted(set(texts), key=_as_number)
    shown = [labels.get(f"{factor}:{text}", text) for text in levels]
    return Axis(
        factor_label(labels, factor), [levels.index(text) for text in texts], shown
    )


def layers_chart(title: str, axis: str, lines: Sequence[Line]) -> Chart:
    """Draws a diagnostic with one number per layer: layers on x, one line per cell."""
    series = [
        Series(
            line.label,
            list(line.layers),
            list(line.layers.values()),
            keys=[line.cell] * len(line.layers),
            joined=True,
        )
        for line in lines
    ]
    return Chart(title=title, x="layer", y=axis, series=series)


def _grouped(items: Sequence[Any], by: Any) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return groups


def _as_number(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
