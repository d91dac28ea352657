"""Learning curves: the mean over trials by epoch, for rows or for levels of a factor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ablate.errors import AblateError
from ablate.records import (
    CellResult,
    Epoch,
    Known,
    Level,
    Status,
    StudyResults,
    level_text,
)
from ablate.records.stored import TrialRow
from ablate.report.charts import Chart, Series, label
from ablate.report.summary import shown_levels
from ablate.report.wording import change_text
from ablate.statistics.numbers import mean_of
from ablate.text import advice

BANDS = "Bands: range over seeds."
# The epochs of each trial, by row and seed.
Curves = Mapping[int, Mapping[int, Sequence[Epoch]]]


def curves_chart(
    results: StudyResults,
    curves: Curves,
    metric: str,
    rows: Iterable[int] | None = None,
    *,
    by: str = "",
    smoothing: float = 0.0,
) -> Chart:
    """Draws learning curves: mean over trials by epoch, with their range.

    Args:
        curves: the epochs of each trial, by row and seed.
        metric: the name of one of the study's metrics.
        rows: the rows to draw; all if None.
        by: a factor of which each level is one line, over the trials of all rows that
            have it; by default each row is one line.
        smoothing: the weight of earlier epochs in a moving average, from 0 to below 1.

    Raises:
        AblateError: none of the rows has an epoch yet.
    """
    chosen = curves.keys() if rows is None else set(rows)
    drawn = [cell for cell in results.cells if cell.index in chosen]
    grouped = _by_level(results, drawn, by) if by else _by_row(results, drawn)
    series = []
    for name, cells in grouped.items():
        trials = [
            _points(epochs, metric, smoothing)
            for cell in cells
            for epochs in curves.get(cell.index, {}).values()
            if epochs
        ]
        if trials:
            series.append(_curve(name, cells[0].index, trials))
    if not series:
        _refuse_reported(results)
        raise AblateError(
            f"{results.name} has no epoch to draw yet; go on with:"
            f" {advice.command('resume', results.name)}"
        )
    note = "Bands: range over trials." if by else BANDS
    if smoothing:
        note += f" Smoothed with weight {smoothing:g}."
    return Chart(
        title=results.question,
        x="epoch",
        y=_title(results, metric),
        series=series,
        form="lines",
        note=note,
    )


def differences_chart(
    results: StudyResults,
    curves: Curves,
    metric: str,
    rows: Iterable[int] | None = None,
) -> Chart:
    """Draws by how much rows differ from row 0 after each epoch, paired by seed.

    Args:
        curves: the epochs of each trial, by row and seed.
        metric: the name of one of the study's metrics.
        rows: the rows to draw; all if None.

    Raises:
        AblateError: there is no other row than row 0, or no seed has an epoch in row 0
            and in one of the rows.
    """
    if len(results.cells) < 2:
        raise AblateError(
            f"{results.name} has one row only, so there is no difference to draw; draw"
            " its curves"
        )
    chosen = curves.keys() if rows is None else set(rows)
    reference = curves.get(0, {})
    series = []
    for cell in results.cells:
        if cell.index == 0 or cell.index not in chosen:
            continue
        trials = []
        for seed, epochs in curves.get(cell.index, {}).items():
            points = _points(epochs, metric)
            base = _points(reference.get(seed, ()), metric)
            trials.append(
                {
                    number: points[number] - base[number]
                    for number in points
                    if number in base
                }
            )
        if any(trials):
            name = f"{cell.index}: {label(results, cell)}"
            series.append(_curve(name, cell.index, trials))
    if not series:
        _refuse_reported(results)
        raise AblateError(
            f"{results.name} has no seed yet with an epoch in row 0 and in a row to"
            f" compare; go on with: {advice.command('resume', results.name)}"
        )
    return Chart(
        title=results.question,
        x="epoch",
        y=f"Δ {_title(results, metric)}",
        series=series,
        form="lines",
        zero=True,
        note=f"Differences from row 0, paired by seed. {BANDS}",
    )


def _refuse_reported(results: StudyResults) -> None:
    """Raises AblateError if only the last value of each run is known."""
    if results.reported is not None:
        raise AblateError(
            f"{results.name} was trained elsewhere, and only the last value of each run is"
            " known; draw its effects"
        )


def _title(results: StudyResults, metric: str) -> str:
    titles = {metric.name: metric.title for metric in results.metrics}
    return titles.get(metric, metric)


def _by_row(
    results: StudyResults, cells: Sequence[CellResult]
) -> dict[str, list[CellResult]]:
    return {f"{cell.index}: {label(results, cell)}": [cell] for cell in cells}


def _by_level(
    results: StudyResults, cells: Sequence[CellResult], factor: str
) -> dict[str, list[CellResult]]:
    """Returns the cells with each level of a factor, that of row 0 first."""
    grouped: dict[Level | None, list[CellResult]] = {}
    for cell in cells:
        if cell.same_as is None:
            grouped.setdefault(shown_levels(cell).get(factor), []).append(cell)
    named = {}
    for level, cells_of_level in grouped.items():
        if level is None:
            name = f"without {factor}"
        else:
            name = change_text({factor: level}, results.labels)
        if name in named:
            # Two levels may have the same label.
            name = f"{name} ({level_text(level)})"
        named[name] = cells_of_level
    return named


def _points(
    epochs: Sequence[Epoch], metric: str, smoothing: float = 0.0
) -> dict[int, float]:
    """Returns the values of one trial by the number of the epoch."""
    # An older trial may lack a metric that was added later.
    measured = [epoch for epoch in epochs if metric in epoch.metrics]
    values = smoothed([epoch.metrics[metric] for epoch in measured], smoothing)
    return {epoch.number: value for epoch, value in zip(measured, values, strict=True)}


def _curve(name: str, row: int, trials: Sequence[Mapping[int, float]]) -> Series:
    """Returns the mean over trials by epoch, with their range."""
    by_epoch: dict[int, list[float]] = {}
    for points in trials:
        for number, value in points.items():
            by_epoch.setdefault(number, []).append(value)
    numbers = sorted(by_epoch)
    values_of = [by_epoch[number] for number in numbers]
    return Series(
        name=name,
        x=numbers,
        y=list(map(mean_of, values_of)),
        low=list(map(min, values_of)),
        high=list(map(max, values_of)),
        keys=[row] * len(numbers),
        joined=True,
    )


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """Returns the exponential moving average of a curve.

    Each value is the mean of all values so far, weighted by `weight` to the power of
    their age. Without the division by the sum of these weights, the first values would
    lean towards zero (as Adam's moments do; Kingma and Ba 2015, section 3).

    Args:
        weight: from 0, which changes nothing, to below 1.
    """
    total = 0.0
    weights = 0.0
    averages = []
    for value in values:
        total = weight * total + value
        weights = weight * weights + 1
        averages.append(total / weights)
    return averages


def curves_of(
    study: Iterable[TrialRow], known: Mapping[str, Known]
) -> dict[int, dict[int, Sequence[Epoch]]]:
    """Returns the epochs of trials by row and seed.

    Diverged and failed trials are left out, as they would distort the mean.

    Args:
        study: its trials.
        known: what is stored of trials, by hash.
    """
    kept = (Status.COMPLETED, Status.RUNNING, Status.PLANNED, Status.PRUNED)
    curves: dict[int, dict[int, Sequence[Epoch]]] = {}
    for trial in study:
        by_seed = curves.setdefault(trial.row, {})
        stored = known.get(trial.trial)
        if stored is not None and stored.status in kept:
            by_seed[trial.seed] = stored.epochs
    return curves
