"""Rows side by side, of one study or of several: levels, metrics, costs, curves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st
import words
from links import keep, state
from stored import curves, results, studies

from ablate.errors import AblateError
from ablate.records import CellResult, StudyResults, level_text
from ablate.report import charts
from ablate.report.charts import Chart, Series
from ablate.report.curves import BANDS, curves_chart
from ablate.report.effect import paired, unpaired
from ablate.report.numbers import fixed
from ablate.report.plotly_charts import draw
from ablate.report.summary import shown_levels
from ablate.report.wording import interval_text
from ablate.statistics.numbers import mean_of, sd_of

MOST_OFFERED = 500
DIFFERENCE = "Δ"
INTERVAL = "95 % interval"
COMMON = "common seeds"


def row_texts(stored: StudyResults, cell: CellResult) -> dict[str, str]:
    """The levels and the results of a row, as texts."""
    values = list(cell.values.values())
    digits = stored.metric.digits
    spread = f" ± {fixed(sd_of(values), digits)}" if len(values) > 1 else ""
    mean = f"{fixed(mean_of(values), digits)}{spread}" if values else ""
    return {
        **{name: level_text(level) for name, level in shown_levels(cell).items()},
        stored.metric.title: mean,
        "n": str(len(values)),
        "params": f"{cell.cost.params:,}" if cell.cost else "",
        "FLOPs": f"{cell.cost.flops:,}" if cell.cost else "",
    }


def pick(part: str) -> tuple[StudyResults, CellResult]:
    """A row as an address names it: `STUDY:NUMBER`."""
    name, _, number = part.rpartition(":")
    stored, _ = results(name)
    return stored, next(cell for cell in stored.cells if cell.index == int(number))


def beside(
    stored: StudyResults, cell: CellResult, first: StudyResults, reference: CellResult
) -> dict[str, str]:
    """The difference of a row to the first one chosen, paired over the seeds that both
    have, or unpaired if seeds do not pair runs; nothing where the data differ.
    """
    data = results(stored.name)[1].data, results(first.name)[1].data
    if (
        stored.metric != first.metric
        or cell is reference
        or data[0].canonical() != data[1].canonical()
    ):
        return {}
    effect = paired(cell, reference)
    if not stored.is_paired:
        effect = unpaired(cell, reference)
    digits = stored.metric.digits
    return {
        DIFFERENCE: ""
        if effect.mean is None
        else fixed(effect.mean, digits, signed=True),
        INTERVAL: (
            interval_text(effect.estimate, stored.metric).partition(" ")[2]
            if effect.estimate
            else ""
        ),
        COMMON: str(len(effect.seeds)) if stored.is_paired else "",
    }


def page() -> None:
    words.title("Compare")
    names = [study.name for study in studies()]
    requested = [
        part for part in state("rows").split(",") if part.rpartition(":")[0] in names
    ]
    chosen = st.multiselect(
        "Studies",
        names,
        default=list(dict.fromkeys(part.rpartition(":")[0] for part in requested))
        or names[:1],
        key="studies",
    )
    offered = {}
    for name in chosen:
        stored, _ = results(name)
        for cell in stored.cells[:MOST_OFFERED]:
            if cell.same_as is None:
                offered[f"{name}:{cell.index}"] = (
                    f"{name}, row {cell.index}: {charts.label(stored, cell)}"
                )
    default = [part for part in requested if part in offered] or list(offered)[:2]
    rows = st.multiselect(
        "Rows",
        list(offered),
        default=default,
        format_func=offered.__getitem__,
        key="rows",
    )
    keep({"rows": ",".join(rows)})
    if not rows:
        st.info("Choose rows of one or several studies.")
        return
    columns: dict[str, Any] = {}
    series: list[Series] = []
    first, reference = pick(rows[0])
    for part in rows:
        stored, cell = pick(part)
        columns[f"{stored.name}, row {cell.index}"] = row_texts(stored, cell) | beside(
            stored, cell, first, reference
        )
        if cell.statuses:
            try:
                drawn = curves_chart(
                    stored, curves(stored.name, [cell.index]), stored.metric.measured
                ).series
            except AblateError:
                continue
            if len(chosen) > 1:
                drawn = [
                    replace(series, name=f"{stored.name}, {series.name}")
                    for series in drawn
                ]
            series += drawn
    frame = pd.DataFrame(columns).fillna("")
    differ = frame.nunique(axis=1) > 1
    # The reference has no difference from itself, so these always differ.
    differ &= ~frame.index.isin([DIFFERENCE, INTERVAL, COMMON])
    st.dataframe(
        frame.style.apply(
            lambda row: (
                ["font-weight: bold" if differ[row.name] else "opacity: 0.6"] * len(row)
            ),
            axis=1,
        ),
        width="stretch",
    )
    st.caption(
        "Bold on this page: values in which the rows differ. Δ: mean difference from"
        " the first selected row, over the seeds that both rows have, with the 95 %"
        " interval of a paired t test (of Welch's t, if seeds do not pair runs). The"
        " intervals on the page of a study use a variance that is estimated from all of"
        " its rows. For conclusions about several rows, use the verdicts there."
    )
    if series:
        st.plotly_chart(
            draw(
                Chart(
                    title="Learning curves",
                    x="epoch",
                    y=first.metric.title,
                    series=series,
                    form="lines",
                )
            )
        )
        st.caption(BANDS)


page()
