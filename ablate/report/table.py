"""The table of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.errors import UnknownName, unknown
from ablate.records import Level, Looks, StudyResults
from ablate.report.effects import Effect, effects
from ablate.report.folding import folding_notes
from ablate.report.grid import Grid
from ablate.report.summary import Row, summarise
from ablate.report.units import cost_units
from ablate.report.verdicts import Verdict

DIGITS = {"top1": 2, "top5": 2, "loss": 4}


def level_text(level: Level | None) -> str:
    """A level as it is written in YAML; a dash where the factor is not read."""
    if level is None:
        return "-"
    if isinstance(level, bool):
        return str(level).lower()
    return f"{level:g}" if isinstance(level, float) else str(level)


METRIC_NAMES = {"top1": "top-1 (%)", "top5": "top-5 (%)", "loss": "loss"}


def results_grid(
    results: StudyResults,
    published: Mapping[int, float] | None = None,
    *,
    looks: Looks | None = None,
    policy: str = "last epoch, test set",
    group: str = "",
) -> Grid:
    """Rows as planned: levels, metric as mean ± sd over n seeds with the paired difference to row 0, cost; the best mean is bold.

    Args:
        published: a paper's top-1 by row; it stands in a column of its own, as printed.
        looks: at which numbers of seeds verdicts are taken, where seeds are added until there is one.
        policy: what of a trial the metric is, in words.
        group: a factor; rows of equal levels of it stand together between lines.

    Raises:
        UnknownName: the study has no such factor.
    """
    if group and group not in results.factors:
        raise UnknownName(unknown("factor", group, results.factors))
    every, digits = summarise(results), DIGITS[results.metric]
    differs = {effect.row: effect for effect in effects(results, 1.0, looks, predict=False)}
    rows = [row for row, cell in zip(every, results.cells, strict=True) if cell.same_as is None]
    if group:
        order = {level: number for number, level in enumerate(dict.fromkeys(row.levels.get(group) for row in rows))}
        rows.sort(key=lambda row: order[row.levels.get(group)])
    noted = any(row.note for row in rows)
    controlled = any(row.control is not None for row in rows)
    gain = ["Δ control"] if controlled else []
    units = cost_units((row.cost for row in rows), ("params", "flops"))
    costs = [f"params ({units['params'].letter})", f"FLOPs ({units['flops'].letter})"]
    printed = [] if published is None else ["published top1"]
    metric = METRIC_NAMES[results.metric]
    columns = ["row", *results.factors, metric, *gain, "n", *costs, *printed, *(["note"] if noted else [])]
    text = [
        [
            str(row.index),
            *(level_text(row.levels.get(factor)) for factor in results.factors),
            _with_sd(row.mean, row.sd, digits) + _difference(row, differs.get(row.index), digits),
            *([_with_sd(row.gain, row.gain_sd, digits, signed=True)] if controlled else []),
            str(row.n) if row.n else "",
            *(units[name].text(getattr(row.cost, name)) if row.cost else "" for name in ("params", "flops")),
            *([] if published is None else [f"{published[row.index]:g}" if row.index in published else ""]),
            *([row.note] if noted else []),
        ]
        for row in rows
    ]
    notes = [
        f"{metric}: mean ± standard deviation over n seeds, {policy}; in brackets the mean "
        f"difference to "
        f"row 0, seed by seed; * p < 0.05 (paired t, Holm over {len(differs)} comparisons"
        + (f", {looks.number} looks). " if looks else "). ")
        + "FLOPs: executed multiply-adds.",
        *(["Δ control: mean ± sd of the differences to the baseline in the width that costs as much."] if controlled else []),
        *folding_notes(cell for cell in results.cells if cell.note != "proposed again"),
    ]
    right = frozenset(column for column in columns if column not in (*results.factors, "note"))
    data = [_data(row, results) for row in every]
    if controlled:
        gains = {row.index: {"control": row.control, "gain": row.gain, "gain_sd": row.gain_sd} for row in every}
        data = [{**row, **gains[row["row"]]} for row in data]
    if published is not None:
        data = [{**row, "published_top1": published.get(row["row"])} for row in data]
    data = [{**row, **_test(differs.get(row["row"]))} for row in data]
    lines = [n for n in range(1, len(rows)) if group and rows[n].levels.get(group) != rows[n - 1].levels.get(group)]
    return Grid(columns, text, data, right, results.question, notes, _best(rows, results.direction, metric), frozenset(lines))


def _best(rows: list[Row], direction: str, metric: str) -> frozenset[tuple[int, str]]:
    """The rows of the best mean; controls are none of the study's answers."""
    means = {number: row.mean for number, row in enumerate(rows) if row.mean is not None and row.role != "control"}
    if len(means) < 2:
        return frozenset()
    best = (max if direction == "max" else min)(means.values())
    return frozenset((number, metric) for number, mean in means.items() if mean == best)


def _difference(row: Row, effect: Effect | None, digits: int) -> str:
    """The difference to row 0 in brackets, with a star where it is no accident."""
    if row.delta is None:
        return ""
    star = "*" if effect is not None and effect.verdict in (Verdict.HELPS, Verdict.HURTS) else ""
    seeds = f", n={row.paired}" if row.paired not in (0, row.n) else ""
    return f" ({row.delta:+.{digits}f}{star}{seeds})"


def _test(effect: Effect | None) -> dict[str, Any]:
    """Interval and p values of the difference to row 0."""
    estimate, found = (effect.estimate, effect.judged) if effect is not None else (None, None)
    return {
        "delta_low": estimate.low if estimate else None,
        "delta_high": estimate.high if estimate else None,
        "p": estimate.p if estimate else None,
        "p_holm": found.p if found else None,
    }


def _data(row: Row, results: StudyResults) -> dict[str, Any]:
    cost = row.cost
    return {
        "row": row.index,
        "role": row.role,
        **row.levels,
        f"{results.metric}_mean": row.mean,
        f"{results.metric}_sd": row.sd,
        "n": row.n,
        "delta": row.delta,
        "delta_sd": row.delta_sd,
        "paired": row.paired,
        **(
            {"params": cost.params, "flops": cost.flops, "flops_paper": cost.flops_paper}
            if cost
            else dict.fromkeys(("params", "flops", "flops_paper"))
        ),
        "note": row.note,
    }


def _with_sd(mean: float | None, sd: float | None, digits: int, *, signed: bool = False) -> str:
    if mean is None:
        return ""
    text = f"{mean:+.{digits}f}" if signed else f"{mean:.{digits}f}"
    return text if sd is None else f"{text} ± {sd:.{digits}f}"
