"""One study: its question, verdicts, tables and charts; updated while it runs."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import inside
import pandas as pd
import streamlit as st
import words
from failures import live
from links import go, keep, link, state
from stored import (
    URL,
    WHERE,
    chart,
    curves,
    frame,
    grid,
    results,
    studies,
    trials,
    verdicts,
)

from ablate import escape
from ablate.errors import AblateError
from ablate.html_report import write_report
from ablate.records import CellResult, Status, StudyResults
from ablate.report import charts
from ablate.report.charts import Chart, Coordinates, Series
from ablate.report.palette import VERDICTS
from ablate.report.plotly_charts import draw
from ablate.report.summary import level_text, shown_levels
from ablate.report.tables import comma_separated
from ablate.report.wording import policy, sentence
from ablate.review import review, with_parts
from ablate.study import Study

VIEWS = (
    "verdicts",
    "table",
    "effects",
    "pareto",
    "curves",
    "parallel",
    "layers",
    "trials",
    "review",
)
COSTS = ("flops", "params", "activations")
MOST_SENTENCES = 60
MOST_BOLD = 500
MOST_POINTS = 2000


def choose(names: Sequence[str]) -> str:
    """The study in the address, or else one that the user chooses."""
    said = state("study")
    if said and said not in names:
        words.notice(f"The store has no study '{said}'.", "warning")
    return st.selectbox(
        "Study", names, index=names.index(said) if said in names else 0, key="study"
    )


def filters(found: StudyResults) -> dict[str, str]:
    """Levels that are asked for, by factor; kept in the address."""
    chosen = {}
    with st.popover("Filter by factor"):
        for name in found.factors:
            levels = list(
                dict.fromkeys(
                    level_text(shown_levels(cell).get(name)) for cell in found.cells
                )
            )
            said = state(f"f.{name}")
            index = levels.index(said) + 1 if said in levels else 0
            value = st.selectbox(
                words.label(name), ["any", *levels], index=index, key=f"f.{name}"
            )
            if value != "any":
                chosen[name] = value
    return chosen


def matches(cell: CellResult, chosen: dict[str, str]) -> bool:
    levels = shown_levels(cell)
    return all(level_text(levels.get(name)) == value for name, value in chosen.items())


def show_grid(name: str, of: str, rows: set[int] | None = None) -> None:
    """The table, or a table of effects, with its notes; highlighted values are bold if
    there are few rows.
    """
    made = grid(name, of)
    whole = frame(name, of)
    if rows is None or "row" not in whole:
        shown = whole
    else:
        shown = whole[whole["row"].isin(rows)]
    if len(shown) <= MOST_BOLD:
        bold = {
            (number, column) for number, column in made.bold if number in shown.index
        }
        styled = shown.style.apply(
            lambda row: [
                "font-weight: bold" if (row.name, c) in bold else ""
                for c in shown.columns
            ],
            axis=1,
        )
        st.dataframe(styled, hide_index=True, width="stretch")
    else:
        st.dataframe(shown, hide_index=True, width="stretch")
    for note in made.notes:
        words.caption(note)
    file = f"{name.replace('/', '-')}-{of}.csv"
    st.download_button(
        "Download as CSV", comma_separated(made), file, "text/csv", key=f"csv-{of}"
    )


def show_verdicts(found: StudyResults, name: str, rows: set[int]) -> None:
    margin = results(name)[1].margin
    said = [effect for effect in verdicts(name) if effect.row in rows]
    if not said:
        st.info("There is no row to compare with row 0.")
    for effect in said[:MOST_SENTENCES]:
        words.verdict(
            sentence(effect, found.metric, margin), VERDICTS[str(effect.verdict)]
        )
    if len(said) > MOST_SENTENCES:
        st.caption(f"{len(said) - MOST_SENTENCES} more in the table; use the filter.")
    st.caption(
        f"{policy(results(name)[1])}; verdicts at 5 % for all rows together;"
        f" margin {margin:g}."
    )


def keeps(series: Series, at: int, step: int) -> bool:
    """Whether a point is drawn where there are too many: all of the front, so many of
    the others.
    """
    return series.joined or at % step == 0


def show_pareto(name: str, rows: set[int]) -> None:
    cost = (
        st.segmented_control("Cost", COSTS, default=state("cost", "flops"), key="cost")
        or "flops"
    )
    drawn = only(chart(name, "pareto", cost), rows)
    # A browser takes seconds for tens of thousands of points.
    step = -(-max(len(series.keys) for series in drawn.series) // MOST_POINTS)
    if step > 1:
        drawn = only(
            drawn,
            {
                key
                for series in drawn.series
                for at, key in enumerate(series.keys)
                if keeps(series, at, step)
            },
        )
    picked = st.plotly_chart(
        draw(drawn), on_select="rerun", selection_mode="points", key=f"pareto-{cost}"
    )
    points = picked["selection"]["points"] if picked else []
    chosen = [
        point.get("customdata")
        for point in points
        if point.get("customdata") is not None
    ]
    if step > 1:
        st.caption(
            f"One in {step} of the dominated rows is drawn; use the filter to see all"
            " of them."
        )
    if not chosen:
        st.caption("Click a point to see its trials.")
        return
    row = int(chosen[0][0] if isinstance(chosen[0], list) else chosen[0])
    found, _ = results(name)
    words.heading(
        f"Row {row}:"
        f" {charts.label(found, next(cell for cell in found.cells if cell.index == row))}",
        3,
    )
    show_trials(name, {row})


def show_trials(name: str, rows: set[int]) -> None:
    """Trials as links, state and metrics beside."""
    found, _ = results(name)
    mine = [trial for trial in trials(name) if trial["row"] in rows]
    if len(mine) > 40:
        frame = pd.DataFrame(mine)
        picked = st.dataframe(
            frame,
            hide_index=True,
            on_select="rerun",
            selection_mode="single-row",
            key="trials",
        )
        for index in picked["selection"]["rows"]:
            go("trial", trial=str(frame.iloc[index]["trial"]))
        return
    for trial in mine:
        value = trial[found.metric.name]
        shown = ""
        if value is not None:
            shown = f", {found.metric.title} {value:.{found.metric.digits}f}"
        label = (
            f"row {trial['row']}, seed {trial['seed']}: {trial['status']}{shown}"
            f" ({trial['trial'][:8]})"
        )
        link(label, "trial", icon=":material/model_training:", trial=trial["trial"])


def show_curves(found: StudyResults, name: str, rows: set[int]) -> None:
    said = state("metric")
    names = [metric.name for metric in found.metrics]
    main = found.metric.name
    metric = (
        st.segmented_control(
            "Metric", names, default=said if said in names else main, key="metric"
        )
        or main
    )
    first = sorted(rows)[:12]
    st.plotly_chart(
        draw(charts.curves_chart(found, curves(name, first), metric, first))
    )
    if len(rows) > 12:
        st.caption(f"The first 12 of {len(rows)} rows; use the filter to see others.")


def show_layers(name: str, rows: set[int]) -> None:
    study = Study(name, URL)
    stored = list(study.diagnostics())
    declared = study.declared()
    if not stored and declared.trainer:
        words.notice(
            f"Diagnostics are not defined on the networks of trainer {declared.trainer}."
        )
        return
    if not stored:
        parts = with_parts(declared)
        words.notice(
            "No diagnostics are stored. Measure them with:",
            command=f"ablate diagnose {escape.shell(name)}{parts}{WHERE}",
        )
        return
    diagnostic = inside.choose(stored)
    lines = [line for line in study.layers(diagnostic) if line.cell in rows]
    if lines:
        inside.show(diagnostic, lines)
    else:
        st.info("None of the filtered rows has this diagnostic.")


def show_effects(name: str, rows: set[int]) -> None:
    kinds = (
        "rows",
        "factors",
        "interactions",
        "contributions",
        "importance",
        "controls",
    )
    said = state("of")
    of = (
        st.segmented_control(
            "Effects of", kinds, default=said if said in kinds else "rows", key="of"
        )
        or "rows"
    )
    if of == "interactions":
        show_interaction(results(name)[0])
    if of != "controls":
        drawn = chart(name, "effects" if of == "rows" else of)
        st.plotly_chart(draw(only(drawn, rows) if of == "rows" else drawn))
    show_grid(name, of, rows if of in ("rows", "controls") else None)


def show_interaction(found: StudyResults) -> None:
    """Means over the levels of one factor, one line per level of another; parallel
    lines mean no interaction.
    """
    pairs = [f"{a} x {b}" for a, b in itertools.combinations(found.factors, 2)]
    if not pairs:
        return
    one, _, other = st.selectbox("Factors", pairs, key="pair").partition(" x ")
    st.plotly_chart(
        draw(charts.interaction_chart(found, one, other)), key="interaction"
    )


def only(drawn: Chart | Coordinates, rows: set[int]) -> Chart | Coordinates:
    """A chart with the points of some rows."""
    if isinstance(drawn, Coordinates):
        at = [place for place, key in enumerate(drawn.keys) if key in rows]
        axes = [replace(axis, values=_taken(axis.values, at)) for axis in drawn.axes]
        return replace(drawn, axes=axes, keys=_taken(drawn.keys, at))
    kept = []
    for series in drawn.series:
        at = [place for place, key in enumerate(series.keys) if key in rows]
        parts = {}
        for part in ("x", "y", "low", "high", "keys", "texts"):
            values = getattr(series, part)
            if values:
                parts[part] = _taken(values, at)
        kept.append(replace(series, **parts))
    return replace(drawn, series=kept)


def _taken(values: Sequence[Any], places: list[int]) -> list[Any]:
    return [values[place] for place in places]


def report_button(name: str) -> None:
    if st.button("Create report", help="One HTML file that opens without a network."):
        with tempfile.TemporaryDirectory() as folder:
            write_report(Study(name, URL), Path(folder, "report.html"), where=WHERE)
            content = Path(folder, "report.html").read_text()
        st.download_button(
            "Download report", content, f"{name.replace('/', '-')}.html", "text/html"
        )


def body(name: str, view: str, chosen: dict[str, str]) -> None:
    """One view of a study, or a message why it is not available."""
    found, _ = results(name)
    rows = {cell.index for cell in found.cells if matches(cell, chosen)}
    show: dict[str, Callable[[], None]] = {
        "verdicts": lambda: show_verdicts(found, name, rows),
        "table": lambda: show_grid(name, "table", rows),
        "effects": lambda: show_effects(name, rows),
        "pareto": lambda: show_pareto(name, rows),
        "curves": lambda: show_curves(found, name, rows),
        "parallel": lambda: show_parallel(name, rows),
        "layers": lambda: show_layers(name, rows),
        "trials": lambda: show_trials(name, rows),
        "review": lambda: show_review(name),
    }
    try:
        show[view]()
    except AblateError as error:
        words.notice(str(error))


def show_parallel(name: str, rows: set[int]) -> None:
    st.plotly_chart(draw(only(chart(name, "parallel"), rows)))


def show_review(name: str) -> None:
    findings = review(name, URL, WHERE)
    if not findings:
        st.success("No findings.")
    for finding in findings:
        words.notice(
            finding.text, "warning", title=finding.name, command=finding.command
        )


def page() -> None:
    found = studies()
    if not found:
        st.info(
            "The store has no study yet. `ablate init`, then `ablate run space.yaml`"
            " creates one."
        )
        return
    name = choose([study.name for study in found])
    status = next(study for study in found if study.name == name)
    unfinished = bool(status.unfinished or not status.finished)
    said = state("view")

    def whole() -> None:
        now = next(study for study in studies() if study.name == name)
        total = sum(now.by_status.values())
        done = now.by_status.get(Status.COMPLETED, 0)
        words.heading(now.question)
        others = "".join(
            f" · {number:,} {state}"
            for state, number in now.by_status.items()
            if number and state != Status.COMPLETED
        )
        st.progress(
            now.epochs_done / now.epochs if now.epochs else 0.0,
            text=f"{done:,} of {total:,} trials completed{others}",
        )
        expected = results(name)[0].expect
        if expected:
            words.caption(f"Expected: {expected}")
        left, right = st.columns([5, 1])
        with left:
            view = st.segmented_control(
                "View",
                VIEWS,
                default=said if said in VIEWS else "verdicts",
                key="view",
                label_visibility="collapsed",
            )
        with right:
            chosen = filters(results(name)[0])
        body(name, view or "verdicts", chosen)
        kept = {
            key: str(st.session_state.get(key) or "")
            for key in ("cost", "metric", "diagnostic", "of")
        }
        keep(
            {
                "study": name,
                "view": view or "",
                **{f"f.{k}": v for k, v in chosen.items()},
                **kept,
            }
        )
        if unfinished and now.finished and not now.unfinished:
            st.rerun()

    live(whole, 2 if unfinished else None)()
    report_button(name)


page()
