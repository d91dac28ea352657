"""What a figure shows, apart from how it is drawn: a still picture (matplotlib) and an interactive page (Plotly) draw the
same."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablate import advice
from ablate.errors import AblateError
from ablate.records import CellResult, Epoch, Known, Level, Status, StudyResults
from ablate.report.blocks import representatives
from ablate.report.effects import Effect
from ablate.report.factorial import Term
from ablate.report.layers import Line
from ablate.report.summary import shown_levels
from ablate.report.table import METRIC_NAMES, level_text
from ablate.report.units import unit_for
from ablate.report.wording import change_text

MOST_SPREADS = 300
"""Points of a cloud that have bars; of more, the front alone has them."""


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Attributes:
        low, high: interval of each point (of `y`, or of `x` where the chart lies on its side).
        keys: what each point stands for, as a row's number.
        joined: whether points are joined by a line.
    """

    name: str
    x: Sequence[Any]
    y: Sequence[Any]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    keys: Sequence[Any] = ()
    texts: Sequence[str] = ()
    joined: bool = False


@dataclass(frozen=True)
class Chart:
    """Series over two axes. `form`: `points`, `bars`, or `lines` with intervals as bands. `zero` marks where nothing changes."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    form: str = "points"
    sideways: bool = False
    zero: bool = False
    note: str = ""


@dataclass(frozen=True)
class Axis:
    """One axis of parallel coordinates: a value a cell, and the texts of its ticks where values are numbers of levels."""

    name: str
    values: Sequence[float]
    ticks: Sequence[str] = ()


@dataclass(frozen=True)
class Coordinates:
    """Cells as lines over parallel axes; the last axis is the metric."""

    title: str
    axes: Sequence[Axis]
    keys: Sequence[int] = field(default_factory=tuple)


def label(results: StudyResults, cell: CellResult) -> str:
    """A cell by what sets it off the first: `shortcuts.count = 2, ffn.kernel = 3`."""
    mine, first = shown_levels(cell), shown_levels(results.cells[0])
    changed = {name: level for name, level in mine.items() if level != first.get(name) and level is not None}
    return change_text(changed) if changed else results.cells[0].role


def effects_chart(results: StudyResults, found: Sequence[Effect], margin: float) -> Chart:
    """A forest: each row's difference to the first with its 95 % interval, by verdict."""
    shown = [effect for effect in found if effect.mean is not None]
    if not shown:
        raise AblateError(f"{results.name} has no effect to draw yet; go on with: {advice.command('resume', results.name)}")
    names = {effect.row: f"{effect.row}: {change_text(effect.changed)} (n={len(effect.seeds)})" for effect in shown}
    series = [
        Series(
            str(verdict),
            [effect.mean for effect in of],
            [names[effect.row] for effect in of],
            [effect.estimate.low if effect.estimate else effect.mean for effect in of],
            [effect.estimate.high if effect.estimate else effect.mean for effect in of],
            [effect.row for effect in of],
        )
        for verdict, of in _grouped(shown, lambda effect: effect.verdict).items()
    ]
    note = f"Bars: 95 % intervals of a row alone; colours: verdicts for all rows together (Holm), margin {margin:g}."
    return Chart(results.question, f"Δ {METRIC_NAMES[results.metric]} to row 0", "", series, "points", True, True, note)


def terms_chart(results: StudyResults, terms: Sequence[Term], title: str) -> Chart:
    """A forest of main effects, interactions or contributions, one series a kind."""
    shown = [term for term in terms if term.estimate is not None]
    if not shown:
        raise AblateError(f"{results.name}: the design cannot tell {title.lower()}")
    series = [
        Series(
            kind,
            [term.estimate.value for term in of if term.estimate],
            [_term_name(term) for term in of],
            [term.estimate.low for term in of if term.estimate],
            [term.estimate.high for term in of if term.estimate],
        )
        for kind, of in _grouped(shown, lambda term: term.kind).items()
    ]
    return Chart(
        f"{results.question} {title}",
        f"Δ {METRIC_NAMES[results.metric]}",
        "",
        series,
        "points",
        True,
        True,
        "Bars: 95 % intervals, noise from all cells together.",
    )


def _term_name(term: Term) -> str:
    return " x ".join(f"{name} = {level_text(level)}" for name, level in zip(term.factors, term.levels, strict=True))


def interaction_chart(results: StudyResults, one: str, other: str) -> Chart:
    """Mean of the metric over the levels of one factor, a line a level of the other, averaged over all others."""
    names = [name for name in results.factors if all(name in c.levels for c in results.cells if c.role != "control")]
    cells = representatives(results, names)
    places = names.index(one), names.index(other)
    rest = {tuple(level for at, level in enumerate(key) if at not in places) for key in cells}
    values: dict[tuple[Level, Level], list[float]] = {}
    for key, cell in cells.items():
        if cell.values:
            values.setdefault((key[places[0]], key[places[1]]), []).append(statistics.fmean(cell.values.values()))
    # A mean over some of the other factors' levels would show what they do.
    means = {pair: statistics.fmean(found) for pair, found in values.items() if len(found) == len(rest)}
    series = []
    for level in dict.fromkeys(key[places[1]] for key in cells):
        points = {level_text(x): mean for (x, y), mean in means.items() if y == level}
        series.append(Series(f"{other} = {level_text(level)}", list(points), list(points.values()), joined=True))
    return Chart(f"{one} x {other}", one, METRIC_NAMES[results.metric], series)


def pareto_chart(results: StudyResults, rows: Sequence[Mapping[str, Any]], cost: str) -> Chart:
    """Every completed cell by cost and metric; the front joined. `rows` are those of the front's table."""
    cells = [cell for cell in results.cells if cell.cost is not None and cell.values and cell.same_as is None]
    if not cells:
        raise AblateError(f"{results.name} has no completed cell to draw; go on with: {advice.command('resume', results.name)}")
    unit = unit_for(getattr(cell.cost, cost) for cell in cells)
    on_front = {row["row"] for row in rows if row["front"]}
    sure = {row["row"]: row["probability"] for row in rows}
    series = []
    for name, inside in (("front", True), ("beaten", False)):
        mine = sorted((c for c in cells if (c.index in on_front) == inside), key=lambda cell: getattr(cell.cost, cost))
        means = [statistics.fmean(cell.values.values()) for cell in mine]
        spreads = [statistics.stdev(cell.values.values()) if len(cell.values) > 1 else 0.0 for cell in mine]
        told = inside or len(mine) <= MOST_SPREADS
        # Of thousands of points the row is told, and a click shows the rest.
        texts = [
            f"row {cell.index}: {label(results, cell)}"
            + (f"; P(front) {sure[cell.index]:.2f}" if sure.get(cell.index) is not None else "")
            for cell in (mine if told else ())
        ]
        series.append(
            Series(
                name,
                [getattr(cell.cost, cost) / unit.size for cell in mine],
                means,
                [mean - sd for mean, sd in zip(means, spreads, strict=True)] if told else None,
                [mean + sd for mean, sd in zip(means, spreads, strict=True)] if told else None,
                [cell.index for cell in mine],
                texts,
                joined=inside,
            )
        )
    heading = "FLOPs" if cost == "flops" else cost
    return Chart(
        results.question,
        f"{heading} ({unit.letter})",
        METRIC_NAMES[results.metric],
        series,
        note="Bars: ± sd over seeds.",
    )


def curves_chart(
    results: StudyResults, curves: Mapping[int, Sequence[Sequence[Epoch]]], metric: str, rows: Iterable[int] | None = None
) -> Chart:
    """Learning curves: mean over seeds by epoch, with the range of seeds.

    Args:
        curves: by row, the epochs of each of its trials.
        metric: top1, top5, loss or train_loss.
    """
    chosen = set(rows) if rows is not None else None
    series = []
    for cell in results.cells:
        trials = [epochs for epochs in curves.get(cell.index, ()) if epochs]
        if not trials or (chosen is not None and cell.index not in chosen):
            continue
        by_epoch: dict[int, list[float]] = {}
        for epochs in trials:
            for epoch in epochs:
                by_epoch.setdefault(epoch.number, []).append(float(getattr(epoch, metric)))
        numbers = sorted(by_epoch)
        series.append(
            Series(
                f"{cell.index}: {label(results, cell)}",
                numbers,
                [statistics.fmean(by_epoch[n]) for n in numbers],
                [min(by_epoch[n]) for n in numbers],
                [max(by_epoch[n]) for n in numbers],
                [cell.index] * len(numbers),
                joined=True,
            )
        )
    if not series:
        raise AblateError(f"{results.name} has no epoch to draw yet; go on with: {advice.command('resume', results.name)}")
    return Chart(results.question, "epoch", METRIC_NAMES.get(metric, metric), series, "lines", note="Bands: range over seeds.")


def importance_chart(results: StudyResults, shares: Sequence[Mapping[str, Any]]) -> Chart:
    """How much each factor matters, by each evaluator."""
    series = [
        Series(name, [row[name] for row in shares if row[name] is not None], [r["factor"] for r in shares if r[name] is not None])
        for name in ("ped_anova", "fanova")
    ]
    return Chart(results.question, "share of importance", "", series, "bars", True)


def coordinates(results: StudyResults) -> Coordinates:
    """Completed cells over their factors, FLOPs and the metric."""
    cells = [cell for cell in results.cells if cell.values and cell.same_as is None]
    if not cells:
        raise AblateError(f"{results.name} has no completed cell to draw; go on with: {advice.command('resume', results.name)}")
    axes = []
    for name in results.factors:
        levels = sorted({level_text(shown_levels(cell).get(name)) for cell in cells}, key=_as_number)
        axes.append(Axis(name, [levels.index(level_text(shown_levels(cell).get(name))) for cell in cells], levels))
    unit = unit_for(cell.cost.flops for cell in cells if cell.cost)
    axes.append(Axis(f"FLOPs ({unit.letter})", [cell.cost.flops / unit.size if cell.cost else 0.0 for cell in cells]))
    axes.append(Axis(METRIC_NAMES[results.metric], [statistics.fmean(cell.values.values()) for cell in cells]))
    return Coordinates(results.question, axes, [cell.index for cell in cells])


def layers_chart(title: str, axis: str, found: Sequence[Line]) -> Chart:
    """A diagnostic that is a number a layer: layers on x, one line a cell."""
    series = [
        Series(line.label, list(line.layers), list(line.layers.values()), keys=[line.cell] * len(line.layers), joined=True)
        for line in found
    ]
    return Chart(title, "layer", axis, series)


def curves_of(cells: Mapping[int, Sequence[str]], known: Mapping[str, Known]) -> dict[int, list[Sequence[Epoch]]]:
    """By row the epochs of its trials; those of diverged and failed ones are no part of a mean."""
    kept = (Status.COMPLETED, Status.RUNNING, Status.PLANNED, Status.PRUNED)
    return {row: [known[key].epochs for key in keys if key in known and known[key].status in kept] for row, keys in cells.items()}


def _grouped(items: Sequence[Any], by: Any) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for item in items:
        found.setdefault(by(item), []).append(item)
    return found


def _as_number(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
