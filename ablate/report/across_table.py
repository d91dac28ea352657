"""The effects of rows along sizes, as a table with sizes as columns, and as figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from typing_extensions import TypedDict

from ablate.errors import AblateError
from ablate.records import Across, CellResult, Level, Metric, Prediction, level_text
from ablate.report.across import (
    TREND_SHARE,
    AtSize,
    Equal,
    RowAcross,
    Size,
    rows_across,
)
from ablate.report.charts import Chart, Series, label
from ablate.report.effect import Effect
from ablate.report.effect_columns import VerdictWord
from ablate.report.effects import level_of
from ablate.report.numbers import fixed
from ablate.report.table import Column, Table, tabulate
from ablate.report.verdicts import Estimate, Verdict
from ablate.report.wording import (
    WITHHELD_NOTES,
    change_text,
    generation_notes,
    interval_text,
    no_difference,
    percent,
    verdict_text,
)
from ablate.statistics.numbers import mean_of, sd_of

# The measured points of a figure lie apart by this factor of their position.
APART = 1.03
DECIDED = (Verdict.HELPS, Verdict.HURTS)


def across_table(
    sizes: Sequence[Size], margin: float, measured: Sequence[Effect] = ()
) -> Table:
    """Returns a table with one line per row, and a column per size.

    Args:
        sizes: all sizes of a ladder.
        margin: the least difference that matters.
        measured: the effects at the predicted size, once it is trained.

    Raises:
        AblateError: no row is compared with row 0.
    """
    rows = _rows(sizes, margin)
    results, across = sizes[0].results, sizes[0].across
    metric = results.metric
    unit = f" in{metric.unit}" if metric.unit else ""
    level = min(level_of(size.results) for size in sizes)
    notes = [
        f"Δ {metric.title.partition(' (')[0]}{unit} at each size: mean difference from"
        f" row 0 of this size, paired by seed, ± half of its interval, which holds for"
        f" all rows and sizes at once ({percent(level * (1 - TREND_SHARE))} level). per"
        f" doubling: the change of the difference for twice the {across.unit} of row 0,"
        f" with an interval for all rows at once ({percent(level * TREND_SHARE)} level).",
        "helps at every size: each size is tested at the row's part of the level. The"
        " noise of a row at a size is estimated from all rows and sizes. "
        + no_difference(metric, margin, "two one-sided tests, adjusted"),
    ]
    detail_notes = [
        f"= at a size: the factor by which the {across.unit} of row 0 must grow until"
        " row 0 is as good as the row of this size, with its 95 % interval for this row"
        " and size alone. Between two sizes, row 0 is taken to lie in the band between"
        " the line through its means there and the lines through the sizes beside them,"
        " as power laws do.",
    ]
    notes += _prediction_notes(across)
    reasons = {row.withheld for row in rows}
    notes += [text for reason, text in WITHHELD_NOTES.items() if reason in reasons]
    notes += generation_notes(results)
    columns = across_columns(
        across, metric, sizes, {effect.row: effect for effect in measured}
    )
    return tabulate(
        columns, rows, title=results.question, notes=notes, detail_notes=detail_notes
    )


def _prediction_notes(across: Across) -> list[str]:
    """Returns what the prediction rests on, and when it was made."""
    if not across.predicted_at:
        return []
    return [
        f"predicted at {across.label} {level_text(across.predict)}, on"
        f" {across.predicted_at} UTC, before it was trained: the mean of two rules, that"
        " an effect stays as at the largest size, and that it goes on along its line. The"
        " interval spans the 95 % prediction intervals of both, for this row alone. It"
        " covers effects that stay, go on, or fade; not one that turns, as where two power"
        " laws have other exponents (docs/sizes.md)."
        " measured: the effect in the study of this size, which has its own verdicts."
    ]


def _rows(sizes: Sequence[Size], margin: float) -> list[RowAcross]:
    rows = rows_across(sizes, margin)
    if not rows:
        raise AblateError(
            f"{sizes[0].across.ladder} has no row to compare with row 0 at every size"
        )
    return rows


def sentence(row: RowAcross, sizes: Sequence[Size]) -> str:
    """Returns what can be said of a row, in one sentence."""
    if row.withheld is not None:
        return str(row.withheld)
    across = sizes[0].across
    parts = [
        part for part in (_at_sizes(row, across.label), _trend(row, sizes)) if part
    ]
    if not parts:
        return "inconclusive"
    worth = _worth(row, across.label, across.unit)
    return "; ".join([*parts, *([worth] if worth else [])])


def _at_sizes(row: RowAcross, label: str) -> str:
    """Returns the verdicts at the sizes, in words; empty if there is none."""
    if row.every is not Verdict.INCONCLUSIVE:
        return f"{row.every} at every size"
    by_verdict = {
        verdict: [at for at in row.at if at.verdict is verdict]
        for verdict in (*DECIDED, Verdict.SAME)
    }
    parts = []
    for verdict, at in by_verdict.items():
        if len(at) == len(row.at):
            parts.append(f"{verdict} at every size")
        elif (
            verdict is Verdict.SAME and len(at) > 1 and row.at[-len(at) :] == tuple(at)
        ):
            parts.append(f"{verdict} from {label} {level_text(at[0].size)} on")
        elif at:
            texts = " and ".join(level_text(each.size) for each in at)
            parts.append(f"{verdict} at {label} {texts}")
    text = ", ".join(parts)
    if all(by_verdict[verdict] for verdict in DECIDED):
        low, high = map(level_text, _crossing(row))
        return f"reverses between {label} {low} and {high}: {text}"
    return text


def _crossing(row: RowAcross) -> tuple[Level | None, Level | None]:
    """Returns the sizes between which the effect first changes its sign.

    Both sizes have a verdict, so the interval holds for all rows and sizes at once.
    None: it may lie beyond the ladder.
    """
    decided = [at for at in row.at if at.verdict in DECIDED]
    for at, after in itertools.pairwise(decided):
        if at.verdict is not after.verdict:
            return at.size, after.size
    return None, None


def _trend(row: RowAcross, sizes: Sequence[Size]) -> str:
    """Returns the trend in words; empty if it may be 0."""
    if not row.has_trend or row.trend is None:
        return ""
    results = sizes[0].results
    rises = (row.trend.value > 0) == (results.direction == "max")
    verdicts = {at.verdict for at in row.at} | {row.every}
    if Verdict.HELPS in verdicts and Verdict.HURTS not in verdicts:
        how = "helps more" if rises else "helps less"
    elif Verdict.HURTS in verdicts and Verdict.HELPS not in verdicts:
        how = "hurts less" if rises else "hurts more"
    else:
        how = "gains" if rises else "loses"
    return (
        f"{how} as size grows: {interval_text(row.trend, results.metric)} per doubling of"
        f" {sizes[0].across.unit}"
    )


def _worth(row: RowAcross, label: str, unit: str) -> str:
    """Returns what the row is worth, in words; empty if it is not known."""
    for at, equal, factor in _worths(row):
        return (
            f"worth {factor:.2g} times the {unit} at {label}"
            f" {level_text(at.size)} ({_ends(equal)})"
        )
    return ""


def _worths(row: RowAcross) -> Iterator[tuple[AtSize, Equal, float]]:
    """Yields what the row is worth at inner sizes with a verdict, the largest first."""
    for at in reversed(row.at[1:-1]):
        equal = at.equal
        if at.verdict not in DECIDED or equal is None or equal.factor is None:
            continue
        if equal.low is not None or equal.high is not None:
            yield at, equal, equal.factor


def equal_text(equal: Equal | None) -> str:
    """Returns a factor with its interval, as `1.4 (1.2 to 1.7)`."""
    if equal is None:
        return ""
    if equal.factor is None:
        return _ends(equal)
    return f"{equal.factor:.2g} ({_ends(equal)})"


def _ends(equal: Equal) -> str:
    if equal.low is not None and equal.high is not None:
        return f"{equal.low:.2g} to {equal.high:.2g}"
    if equal.low is not None:
        return f"at least {equal.low:.2g}"
    if equal.high is not None:
        return f"at most {equal.high:.2g}"
    return "not known"


class EffectAtSize(TypedDict):
    """The effect of a row at one size."""

    size: Level
    position: float
    n: int
    difference: float | None
    low: float | None
    high: float | None
    p_adjusted: float | None
    p_same: float | None
    verdict: VerdictWord
    equal: float | None
    equal_low: float | None
    equal_high: float | None


def across_columns(
    across: Across,
    metric: Metric,
    sizes: Sequence[Size] = (),
    measured: Mapping[int, Effect] | None = None,
) -> list[Column[RowAcross]]:
    """Returns the columns of a table of effects along sizes.

    Args:
        across: the ladder.
        metric: what the differences are of.
        sizes: all sizes, each of which has a column on screen.
        measured: the effects at the predicted size by row, once it is trained.
    """
    predicted = {each.row: each for each in across.predictions}
    ordered = sorted(sizes, key=lambda size: size.position)
    effects = [
        _effect_column(place, f"Δ {size.across.size_text}", metric)
        for place, size in enumerate(ordered)
    ]
    equals = [
        _equal_column(place, f"= at {level_text(size.across.size)}")
        for place, size in enumerate(ordered)
    ]
    return [
        Column("row", lambda row: row.row, heading="row", right=True, kind=int),
        Column(
            "change",
            lambda row: change_text(row.changed),
            heading="change",
            text=lambda row: change_text(row.changed, row.labels),
            kind=str,
            about="the levels in which the row differs",
        ),
        *effects,
        Column("axis", lambda row: across.axis, kind=str),
        Column("per", lambda row: across.unit, kind=str),
        Column(
            "sizes",
            lambda row: [_size_data(at) for at in row.at],
            kind=list[EffectAtSize],
            about="the effect at each size",
        ),
        Column(
            "trend",
            lambda row: row.trend.value if row.trend else None,
            heading="per doubling",
            text=lambda row: _plus_minus(row.trend, metric),
            right=True,
            kind=float | None,
            about="the change of the difference per doubling",
        ),
        Column(
            "trend_low",
            lambda row: row.trend.low if row.trend else None,
            kind=float | None,
        ),
        Column(
            "trend_high",
            lambda row: row.trend.high if row.trend else None,
            kind=float | None,
        ),
        Column(
            "crossing_low",
            lambda row: _crossing(row)[0],
            kind=Level | None,
            about="the size after which the effect changes its sign; none: beyond the ladder",
        ),
        Column("crossing_high", lambda row: _crossing(row)[1], kind=Level | None),
        *_predicted_columns(across, predicted, measured or {}, metric),
        *equals,
        Column(
            "verdict",
            lambda row: sentence(row, ordered),
            heading="verdict",
            prose=True,
            kind=str,
        ),
        Column(
            "withheld",
            lambda row: str(row.withheld) if row.withheld else None,
            kind=str | None,
            about="why there is no verdict",
        ),
    ]


def _predicted_columns(
    across: Across,
    predicted: Mapping[int, Prediction],
    measured: Mapping[int, Effect],
    metric: Metric,
) -> list[Column[RowAcross]]:
    """Returns the columns of the predicted size; none if it has no prediction."""
    if not across.predicted_at:
        return []
    size = f"{across.label} {level_text(across.predict)}"

    def prediction_text(row: RowAcross) -> str:
        if row.row not in predicted:
            return ""
        each = predicted[row.row]
        low, value, high = (
            fixed(number, metric.digits, signed=True)
            for number in (each.low, each.value, each.high)
        )
        return f"{value} ({low} to {high})"

    def measured_text(row: RowAcross) -> str:
        effect = measured.get(row.row)
        if effect is None or effect.mean is None:
            return ""
        if effect.estimate is None:
            return fixed(effect.mean, metric.digits, signed=True)
        return f"{interval_text(effect.estimate, metric)}: {verdict_text(effect)}"

    def of_prediction(name: str) -> Callable[[RowAcross], float | None]:
        return lambda row: getattr(predicted.get(row.row), name, None)

    return [
        Column(
            "predicted",
            of_prediction("value"),
            heading=f"predicted {size}",
            text=prediction_text,
            right=True,
            kind=float | None,
            about="the effect at the predicted size, stated before it was trained",
            optional=True,
        ),
        Column("predicted_low", of_prediction("low"), kind=float | None, optional=True),
        Column(
            "predicted_high", of_prediction("high"), kind=float | None, optional=True
        ),
        Column(
            "measured",
            lambda row: measured[row.row].mean if row.row in measured else None,
            heading=f"measured {size}" if measured else "",
            text=measured_text,
            right=True,
            kind=float | None,
            about="the effect at the predicted size, as it was measured",
            optional=True,
        ),
    ]


def _effect_column(place: int, heading: str, metric: Metric) -> Column[RowAcross]:
    return Column(
        heading=heading,
        text=lambda row: _at_text(row.at[place], metric),
        right=True,
    )


def _equal_column(place: int, heading: str) -> Column[RowAcross]:
    return Column(
        heading=heading,
        text=lambda row: equal_text(row.at[place].equal),
        right=True,
        detail=True,
    )


def _at_text(at: AtSize, metric: Metric) -> str:
    if at.estimate is not None:
        return _plus_minus(at.estimate, metric)
    return "" if at.mean is None else fixed(at.mean, metric.digits, signed=True)


def _plus_minus(estimate: Estimate | None, metric: Metric) -> str:
    if estimate is None:
        return ""
    half = fixed(estimate.high - estimate.value, metric.digits)
    return f"{fixed(estimate.value, metric.digits, signed=True)} ±{half}"


def _size_data(at: AtSize) -> EffectAtSize:
    """Returns the effect at a size as plain data."""
    estimate, judged, equal = at.estimate, at.judged, at.equal
    return {
        "size": at.size,
        "position": at.position,
        "n": at.n,
        "difference": at.mean,
        "low": estimate.low if estimate else None,
        "high": estimate.high if estimate else None,
        "p_adjusted": judged.p if judged else None,
        "p_same": judged.p_same if judged else None,
        "verdict": cast(VerdictWord, str(at.verdict)),
        "equal": equal.factor if equal else None,
        "equal_low": equal.low if equal else None,
        "equal_high": equal.high if equal else None,
    }


def across_chart(
    sizes: Sequence[Size], margin: float, measured: Sequence[Effect] = ()
) -> Chart:
    """Draws the effect of each row along the sizes, with its simultaneous band.

    A dashed line leads to the predicted effect; a point with its interval is the effect
    that was measured there.

    Args:
        measured: the effects at the predicted size, once it is trained.

    Raises:
        AblateError: no row has two seeds or more at every size.
    """
    rows = [row for row in _rows(sizes, margin) if row.trend is not None]
    if not rows:
        raise AblateError(
            f"{sizes[0].across.ladder}: no row shares two seeds with row 0 at every size"
            " yet"
        )
    results, across = sizes[0].results, sizes[0].across
    scale = _scale(sizes)
    series = [
        _series(f"{row.row}: {change_text(row.changed, row.labels)}", row, scale)
        for row in rows
    ]
    ticks = _ticks(sizes, scale)
    ahead = ""
    if across.predicted_position is not None:
        series += _series_ahead(rows, across, measured, scale)
        ticks.append(float(f"{across.predicted_position / scale:.3g}"))
        size = f"{across.label} {level_text(across.predict)}"
        ahead = f" Dashed: predicted at {size}."
        if measured:
            ahead += f" Points with bars: measured at {size}."
    return Chart(
        title=results.question,
        x=_axis(sizes, scale),
        y=f"Δ {results.metric.title}",
        series=series,
        form="lines",
        zero=True,
        log_x=True,
        ticks_x=ticks,
        note="Lines: difference from row 0 of the same size. Bands: intervals that hold"
        f" for all rows and sizes at once. Sizes: {across.label}"
        f" {', '.join(across.texts())}.{ahead}",
    )


def _series_ahead(
    rows: Sequence[RowAcross],
    across: Across,
    measured: Sequence[Effect],
    scale: float,
) -> list[Series]:
    """Returns what is predicted of rows, and what was measured then."""
    assert across.predicted_position is not None, "the caller has looked"
    x = across.predicted_position / scale
    predicted = {each.row: each for each in across.predictions}
    effects = {effect.row: effect for effect in measured}
    series = []
    for number, row in enumerate(rows):
        last, ahead = row.at[-1], predicted.get(row.row)
        effect = effects.get(row.row)
        if ahead is not None and last.estimate is not None:
            series.append(
                Series(
                    name="predicted",
                    x=[last.position / scale, x],
                    y=[last.estimate.value, ahead.value],
                    low=[last.estimate.low, ahead.low],
                    high=[last.estimate.high, ahead.high],
                    keys=[row.row] * 2,
                    joined=True,
                    like=number,
                    dashed=True,
                )
            )
        if effect is not None and effect.estimate is not None:
            series.append(
                Series(
                    name="measured",
                    # Beside each other, so that no interval hides another one.
                    x=[x * APART ** (number + 1)],
                    y=[effect.estimate.value],
                    low=[effect.estimate.low],
                    high=[effect.estimate.high],
                    keys=[row.row],
                    like=number,
                )
            )
    return series


def _series(name: str, row: RowAcross, scale: float) -> Series:
    points = [(at, at.estimate) for at in row.at if at.estimate is not None]
    return Series(
        name=name,
        x=[at.position / scale for at, _ in points],
        y=[estimate.value for _, estimate in points],
        low=[estimate.low for _, estimate in points],
        high=[estimate.high for _, estimate in points],
        keys=[row.row] * len(points),
        joined=True,
    )


def scaling_chart(sizes: Sequence[Size], margin: float) -> Chart:
    """Draws the metric of each row along the sizes of row 0.

    A dashed line leads from a row to where row 0 is as good, at the largest inner size
    at which the row has a verdict.

    Raises:
        AblateError: no row has a result at every size.
    """
    ordered = sorted(sizes, key=lambda size: size.position)
    results = ordered[0].results
    scale = _scale(sizes)
    series = []
    for number, cell in enumerate(results.cells):
        cells = [size.results.cells[number] for size in ordered]
        if cell.same_as is None and all(each.values for each in cells):
            name = f"{cell.index}: {label(results, cell)}"
            series.append(_metric_series(ordered, cells, name, scale))
    if not series:
        raise AblateError(
            f"{ordered[0].across.ladder}: no row has a result at every size yet"
        )
    note = "Lines: means over seeds. Bands: one standard deviation."
    rows = {row.row: row for row in rows_across(sizes, margin)}
    worth = []
    for number, each in enumerate(series):
        row = rows.get(each.keys[0])
        best = next(_worths(row), None) if row is not None else None
        if best is not None:
            at, _, factor = best
            place = each.x.index(at.position / scale)
            worth.append(
                Series(
                    name="worth",
                    x=[each.x[place], each.x[place] * factor],
                    y=[each.y[place]] * 2,
                    keys=[each.keys[0]] * 2,
                    joined=True,
                    like=number,
                    dashed=True,
                )
            )
    if worth:
        note += f" Dashed: the {ordered[0].across.unit} at which row 0 is as good."
    return Chart(
        title=results.question,
        x=_axis(sizes, scale),
        y=results.metric.title,
        series=[*series, *worth],
        form="lines",
        log_x=True,
        ticks_x=_ticks(sizes, scale),
        note=note,
    )


def _metric_series(
    sizes: Sequence[Size], cells: Sequence[CellResult], name: str, scale: float
) -> Series:
    means = [mean_of(cell.values.values()) for cell in cells]
    spreads = [
        sd_of(cell.values.values()) if len(cell.values) > 1 else 0.0 for cell in cells
    ]
    return Series(
        name=name,
        x=[size.position / scale for size in sizes],
        y=means,
        low=[mean - sd for mean, sd in zip(means, spreads, strict=True)],
        high=[mean + sd for mean, sd in zip(means, spreads, strict=True)],
        keys=[cells[0].index] * len(means),
        joined=True,
    )


def _scale(sizes: Sequence[Size]) -> float:
    """Returns the power of a thousand in which positions are drawn."""
    if sizes[0].across.per == "number":
        return 1.0
    largest = max(size.position for size in sizes)
    return float(1000 ** math.floor(math.log10(largest) / 3))


def _ticks(sizes: Sequence[Size], scale: float) -> list[float]:
    return sorted(float(f"{size.position / scale:.3g}") for size in sizes)


def _axis(sizes: Sequence[Size], scale: float) -> str:
    across = sizes[0].across
    power = f"10^{round(math.log10(scale))} " if scale > 1 else ""
    if across.per == "compute":
        return f"training compute of row 0 ({power}FLOPs)"
    if across.per == "params":
        return (
            f"parameters of row 0 ({power.strip()})" if power else "parameters of row 0"
        )
    return across.label
