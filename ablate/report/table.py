"""The table of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.records import Level, StudyResults
from ablate.report.folding import folding_notes
from ablate.report.grid import Grid
from ablate.report.summary import Row, summarise
from ablate.report.units import cost_units

DIGITS = {"top1": 2, "top5": 2, "loss": 4}


def level_text(level: Level | None) -> str:
    """A level as it is written in YAML; a dash where the factor is not read."""
    if level is None:
        return "-"
    if isinstance(level, bool):
        return str(level).lower()
    return f"{level:g}" if isinstance(level, float) else str(level)


def results_grid(results: StudyResults, published: Mapping[int, float] | None = None) -> Grid:
    """Rows as planned: levels, metric as mean ± sd over n seeds, difference to row 0, cost.

    Args:
        published: a paper's top-1 by row; it stands in a column of its own, as printed.
    """
    every, digits = summarise(results), DIGITS[results.metric]
    rows = [row for row, cell in zip(every, results.cells, strict=True) if cell.same_as is None]
    noted = any(row.note for row in rows)
    delta = f"Δ {results.metric}"
    controlled = any(row.control is not None for row in rows)
    gain = ["Δ control"] if controlled else []
    units = cost_units((row.cost for row in rows), ("params", "flops"))
    costs = [f"params ({units['params'].letter})", f"FLOPs ({units['flops'].letter})"]
    printed = [] if published is None else ["published top1"]
    columns = ["row", *results.factors, results.metric, delta, *gain, "n", *costs, *printed, *(["note"] if noted else [])]
    text = [
        [
            str(row.index),
            *(level_text(row.levels.get(factor)) for factor in results.factors),
            _with_sd(row.mean, row.sd, digits),
            _with_sd(row.delta, row.delta_sd, digits, signed=True)
            + (f" (n={row.paired})" if row.paired not in (0, row.n) else ""),
            *([_with_sd(row.gain, row.gain_sd, digits, signed=True)] if controlled else []),
            str(row.n) if row.n else "",
            *(units[name].text(getattr(row.cost, name)) if row.cost else "" for name in ("params", "flops")),
            *([] if published is None else [f"{published[row.index]:g}" if row.index in published else ""]),
            *([row.note] if noted else []),
        ]
        for row in rows
    ]
    notes = [
        f"{results.metric}: mean ± standard deviation over n seeds, last epoch, test set. "
        f"{delta}: mean ± standard deviation of the differences to row 0, seed by seed. FLOPs: executed multiply-adds.",
        *(["Δ control: the same, to the baseline in the width that costs as much."] if controlled else []),
        *folding_notes(cell for cell in results.cells if cell.note != "proposed again"),
    ]
    right = frozenset(column for column in columns if column not in (*results.factors, "note"))
    data = [_data(row, results) for row in every]
    if controlled:
        gains = {row.index: {"control": row.control, "gain": row.gain, "gain_sd": row.gain_sd} for row in every}
        data = [{**row, **gains[row["row"]]} for row in data]
    if published is not None:
        data = [{**row, "published_top1": published.get(row["row"])} for row in data]
    return Grid(columns, text, data, right, results.question, notes)


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
