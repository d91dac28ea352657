"""What tuning chose and changed, as a table and as figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ablate.errors import AblateError
from ablate.records import Level, Metric, StudyResults, Tune, is_number, level_text
from ablate.records.stored import TriedSetting
from ablate.report.charts import Chart, Series, label
from ablate.report.effect import Effect
from ablate.report.effect_columns import VerdictWord
from ablate.report.numbers import fixed
from ablate.report.summary import chosen_levels, factor_label, level_columns
from ablate.report.table import Column, Table, tabulate
from ablate.report.tuning import (
    TunedRow,
    expected_best,
    sensitivity,
    tuned_rows,
)
from ablate.report.verdicts import Estimate
from ablate.report.wording import (
    generation_notes,
    interval_text,
    rows_text,
    tuning_note,
    verdict_text,
    withheld_notes,
)
from ablate.text import advice

# A hyperparameter whose tried levels span such a ratio has a logarithmic axis.
LOG_RATIO = 8
# Up to so many settings, each has a tick.
MOST_TICKS = 12


def tuning_table(
    results: StudyResults, tried: Sequence[TriedSetting], margin: float
) -> Table:
    """Returns a table with one line per row: its settings, and what they changed.

    Args:
        tried: the trials of the rows at the settings that they try.
        margin: the least difference that matters.

    Raises:
        AblateError: the study has no nuisance hyperparameters, or no row has tried one.
    """
    tune = _tune(results)
    rows = tuned_rows(results, tried, margin)
    metric = results.metric
    unit = f" in{metric.unit}" if metric.unit else ""
    notes = [
        *tuning_note(results),
        f"Δ {metric.title.partition(' (')[0]}{unit}: mean difference from row 0 with its"
        f" 95 % interval for all rows at once. at row"
        " 0's setting: the row trained at the"
        " setting that row 0 has chosen. at own setting: each row at its own; the"
        " verdicts are about this difference. tuning: the row at its own setting minus"
        " the row at that of row 0 (95 % interval for this row alone; not tested).",
        f"tried: the best {tune.metric} on held-out images, in brackets the mean"
        " distance of the settings from it (the sensitivity of the row).",
    ]
    if any(row.is_coin_toss for row in rows):
        notes.append(
            "coin toss: so many other settings are less than a standard error below the"
            " best one, so another draw of seeds could have chosen one of them."
        )
    lost = [row.cell.index for row in rows if row.lost]
    if lost:
        numbers = ", ".join(str(row.lost) for row in rows if row.lost)
        notes.append(
            f"{rows_text(lost).capitalize()}: {numbers} of {len(tune.points)} settings"
            " have no score, because a trial diverged, was stopped early or was"
            " abandoned. They count as the worst of the row."
        )
    for row in rows:
        if row.different < len(tune.points):
            trainings = f"only {row.different} different trainings"
            if row.different == 1:
                trainings = "one and the same training"
            notes.append(
                f"Row {row.cell.index}: its {len(tune.points)} settings are {trainings},"
                " because the row does not read all of these hyperparameters."
            )
    own = [row.own for row in rows if row.own]
    notes += [*withheld_notes(own), *generation_notes(results)]
    return tabulate(_columns(results, tune), rows, title=results.question, notes=notes)


def _tune(results: StudyResults) -> Tune:
    if results.tune is None:
        raise AblateError(
            f"{results.name} tunes nothing; to give each row its own best setting, add"
            " to its file: tune: {recipe.lr: {low: 3e-4, high: 1e-2, scale: log},"
            " settings: 8}"
        )
    return results.tune


def _columns(results: StudyResults, tune: Tune) -> list[Column[TunedRow]]:
    digits = results.metric.digits

    def chosen(name: str) -> Column[TunedRow]:
        return Column(
            heading=factor_label(results.labels, name),
            text=lambda row: level_text(chosen_levels(tune, row.cell)[name]),
            right=True,
        )

    def tried(row: TunedRow) -> str:
        score, distance = row.best_score(tune), sensitivity(row, tune)
        if score is None or distance is None:
            return ""
        return f"{fixed(score, digits)} ({fixed(distance, digits)})"

    return [
        Column("row", lambda row: row.cell.index, heading="row", right=True, kind=int),
        Column(
            "change",
            lambda row: label(results, row.cell),
            heading="change",
            kind=str,
            about="the levels in which the row differs",
        ),
        Column(fields=lambda row: level_columns(chosen_levels(tune, row.cell))),
        *map(chosen, tune.names),
        Column(
            "close",
            lambda row: None if row.close is None else len(row.close),
            heading="coin toss",
            text=lambda row: str(len(row.close)) if row.close else "",
            right=True,
            kind=int | None,
            about="other settings that are less than a standard error below the best",
        ),
        Column(
            "score",
            lambda row: row.best_score(tune),
            heading="tried",
            text=tried,
            right=True,
            kind=float | None,
            about="the best score on held-out images",
        ),
        Column(
            "sensitivity",
            lambda row: sensitivity(row, tune),
            kind=float | None,
            about="mean distance of the settings from the best one",
        ),
        *_difference_columns(results.metric),
    ]


def _difference_columns(metric: Metric) -> list[Column[TunedRow]]:
    return [
        *_effect_columns(
            "at_row_0", "Δ at row 0's setting", lambda row: row.at_row_0, metric
        ),
        *_effect_columns("own", "Δ at own setting", lambda row: row.own, metric),
        Column(
            "gain",
            lambda row: row.gain,
            heading="tuning",
            text=lambda row: _gain(row, metric),
            right=True,
            kind=float | None,
            about="own setting minus that of row 0",
        ),
        _end("gain_low", lambda row: row.gain_interval),
        _end("gain_high", lambda row: row.gain_interval),
        Column(
            "verdict",
            lambda row: str(row.own.verdict) if row.own else None,
            heading="verdict",
            text=lambda row: verdict_text(row.own) if row.own else "",
            kind=VerdictWord | None,
        ),
    ]


def _effect_columns(
    name: str,
    heading: str,
    effect_of: Callable[[TunedRow], Effect | None],
    metric: Metric,
) -> list[Column[TunedRow]]:
    """Returns the columns of a difference from row 0 with its interval."""

    def mean(row: TunedRow) -> float | None:
        effect = effect_of(row)
        return effect.mean if effect else None

    def estimate(row: TunedRow) -> Estimate | None:
        effect = effect_of(row)
        return effect.estimate if effect else None

    return [
        Column(
            name,
            mean,
            heading=heading,
            text=lambda row: _difference(effect_of(row), metric),
            right=True,
            kind=float | None,
        ),
        _end(f"{name}_low", estimate),
        _end(f"{name}_high", estimate),
    ]


def _end(
    name: str, estimate_of: Callable[[TunedRow], Estimate | None]
) -> Column[TunedRow]:
    """Returns the column of one end of an interval, which its name ends with."""
    end = name.rpartition("_")[2]
    return Column(
        name,
        lambda row: getattr(estimate_of(row), end, None),
        kind=float | None,
        about="95 % interval",
    )


def _difference(effect: Effect | None, metric: Metric) -> str:
    if effect is None or effect.mean is None:
        return ""
    if effect.estimate is None:
        return fixed(effect.mean, metric.digits, signed=True)
    return interval_text(effect.estimate, metric)


def _gain(row: TunedRow, metric: Metric) -> str:
    if row.gain_interval is not None:
        return interval_text(row.gain_interval, metric)
    if row.gain is not None:
        return fixed(row.gain, metric.digits, signed=True)
    if row.has_setting_of_row_0:
        return "same setting"
    return ""


def tuning_chart(results: StudyResults, tried: Sequence[TriedSetting]) -> Chart:
    """Draws the expected best score of each row by the number of settings.

    Raises:
        AblateError: the settings are no independent draws, or no row has tried all.
    """
    tune = _tune(results)
    if tune.draw != "random":
        raise AblateError(
            f"the expected best score needs settings that are drawn at random, and those"
            f" of {results.name} are "
            + ("all combinations" if tune.draw == "grid" else "a Sobol sequence")
        )
    series = []
    for row in _tried_rows(results, tried):
        curve = expected_best(row.all_scores(tune), tune.direction)
        series.append(
            Series(
                name=_name(results, row),
                x=[point.settings for point in curve],
                y=[point.mean for point in curve],
                low=[point.low for point in curve],
                high=[point.high for point in curve],
                keys=[row.cell.index] * len(curve),
                joined=True,
            )
        )
    return Chart(
        title=results.question,
        x="settings",
        y=f"expected best {tune.metric}, held-out images",
        series=series,
        form="lines",
        ticks_x=range(1, len(tune.points) + 1)
        if len(tune.points) <= MOST_TICKS
        else (),
        note="Lines: the expected best score of so many settings, drawn at random. Bands:"
        " 80 % of the choices of so many of the tried settings. A line that still rises"
        " at its end needs more settings.",
    )


def sensitivity_chart(
    results: StudyResults, tried: Sequence[TriedSetting], name: str = ""
) -> Chart:
    """Draws the score of each row over one hyperparameter.

    Args:
        name: the hyperparameter; by default the first one.
    """
    tune = _tune(results)
    name = name or tune.names[0]
    if name not in tune.names:
        raise AblateError(
            f"{name} is not tuned in {results.name}; tuned: {', '.join(tune.names)}"
        )
    levels = [point[name] for point in tune.points]
    numbers = [float(level) for level in levels if is_number(level)]
    is_numeric = len(numbers) == len(levels)
    alone = len(tune.names) == 1
    series = []
    for row in _tried_rows(results, tried):
        points = [
            (tune.points[setting][name], score) for setting, score in row.scores.items()
        ]
        if is_numeric:
            points.sort(key=lambda point: float(point[0]))
        series.append(
            Series(
                name=_name(results, row),
                x=[_place(level, is_numeric=is_numeric) for level, _ in points],
                y=[score for _, score in points],
                joined=alone and is_numeric,
            )
        )
    is_log = tune.ranges.get(name) == "log"
    if is_numeric and name not in tune.ranges and min(numbers) > 0:
        is_log = max(numbers) >= LOG_RATIO * min(numbers)
    note = "One point per setting: the mean score of its trials on held-out images."
    if not alone:
        note += " The other hyperparameters differ between points, too."
    return Chart(
        title=results.question,
        x=factor_label(results.labels, name),
        y=f"{tune.metric}, held-out images",
        series=series,
        note=note,
        log_x=is_log,
        ticks_x=_log_ticks(min(numbers), max(numbers)) if is_log else (),
    )


def _log_ticks(low: float, high: float) -> list[float]:
    """Returns 1, 2 and 5 times the powers of ten between two numbers."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{power}") for power in powers for step in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]


def _place(level: Level, *, is_numeric: bool) -> object:
    return level if is_numeric else level_text(level)


def _tried_rows(results: StudyResults, tried: Sequence[TriedSetting]) -> list[TunedRow]:
    rows = [row for row in tuned_rows(results, tried, 1.0) if row.scores]
    if not rows:
        raise AblateError(
            f"no setting of {results.name} has a result yet; go on with:"
            f" {advice.command('resume', results.name)}"
        )
    return rows


def _name(results: StudyResults, row: TunedRow) -> str:
    return f"{row.cell.index}: {label(results, row.cell)}"
