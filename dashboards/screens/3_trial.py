"""One trial: its levels beside row 0, curves, diagnostics, hardware and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import inside
import notes
import pandas as pd
import streamlit as st
import words
from failures import live
from links import keep, link, state
from stored import RUNS, URL, WHERE, results, stamp, studies

from ablate.records import Known, Metric, Space, Status, level_text
from ablate.records.stored import Attempt, Circumstances, StoredTrial
from ablate.report.charts import Chart, Series
from ablate.report.layer_means import Line
from ablate.report.numbers import fixed
from ablate.report.plotly_charts import draw
from ablate.report.summary import shown_levels
from ablate.report.wording import reported_notes
from ablate.results.review import with_parts
from ablate.scheduling.options import Options
from ablate.scheduling.policy import Policy
from ablate.store.reader import Reader
from ablate.text import escape
from ablate.text.masking import masked
from ablate.trained.logs import logs_of

LOG_LINES = 30
OUTPUT_LINES = 40
MOST_STUDIES = 20


@st.cache_resource(max_entries=20, show_spinner="Reading the trial ...")
def read(
    key: str, stamp: str
) -> tuple[
    StoredTrial,
    Known,
    list[Attempt],
    list[Circumstances],
    dict[str, dict[int, Any]],
]:
    with Reader(URL) as reader:
        trial = reader.trials.get(key)
        known = reader.trials.known([trial.hash])[trial.hash]
        circumstances = [
            attempt
            for attempt in reader.trials.circumstances(trial.study)
            if attempt.trial == trial.hash
        ]
        layers = reader.diagnostics.of_trial(trial.hash)
        return trial, known, reader.trials.attempts(trial.hash), circumstances, layers


def show_difference(trial: StoredTrial) -> None:
    """The levels of the trial's row beside those of row 0."""
    stored, _ = results(trial.study)
    by_index = {cell.index: cell for cell in stored.cells}
    shown = shown_levels(by_index[trial.row])
    if trial.row == 0:
        st.subheader("Levels (row 0)")
        levels = [(name, level_text(level)) for name, level in shown.items()]
        st.dataframe(pd.DataFrame(levels, columns=["factor", "level"]), hide_index=True)
        return
    st.subheader("Levels, compared with row 0")
    first = shown_levels(stored.cells[0])
    frame = pd.DataFrame(
        [
            {
                "factor": name,
                "this trial": level_text(shown.get(name)),
                "row 0": level_text(first.get(name)),
            }
            for name in stored.factors
        ]
    )
    differ = frame["this trial"] != frame["row 0"]
    st.dataframe(
        frame.style.apply(
            lambda row: (
                ["font-weight: bold" if differ[row.name] else "opacity: 0.6"] * 3
            ),
            axis=1,
        ),
        hide_index=True,
        width="stretch",
    )


def show_curves(known: Known, metrics: Sequence[Metric]) -> None:
    """Learning curves: one chart for metrics to maximise, one for the others."""
    charts = []
    for title, direction in (("larger is better", "max"), ("smaller is better", "min")):
        series = []
        for metric in metrics:
            if metric.direction != direction or metric.of:
                continue
            measured = [epoch for epoch in known.epochs if metric.name in epoch.metrics]
            numbers = [epoch.number for epoch in measured]
            values = [epoch.metrics[metric.name] for epoch in measured]
            series.append(Series(metric.title, numbers, values, joined=True))
        if len(series) == 1:
            # A single curve has no legend.
            title = f"{series[0].name}: {title}"
        if series:
            charts.append(
                Chart(title="", x="epoch", y=title, series=series, form="lines")
            )
    for column, chart in zip(st.columns(2), charts, strict=False):
        column.plotly_chart(draw(chart), key=chart.y)


def show_layers(by_name: Mapping[str, Mapping[int, Any]]) -> None:
    if by_name:
        st.subheader("Diagnostics by layer")
        name = inside.choose(sorted(by_name))
        inside.show(name, [Line(cell=0, label="", seeds=1, layers=by_name[name])])


def show_attempts(attempts: list[Attempt]) -> None:
    st.subheader("Attempts")
    columns = [
        "number",
        "status",
        "executor",
        "host",
        "device",
        "threads",
        "first_epoch",
        "started_at",
        "ended_at",
        "weights",
    ]
    shown = pd.DataFrame(map(asdict, attempts), columns=columns)
    st.dataframe(
        shown.rename(columns={"weights": "initial weights"}),
        hide_index=True,
        width="stretch",
    )
    for attempt in attempts:
        if attempt.error.strip():
            words.paragraph(f"Attempt {attempt.number} ended with:")
            st.code(
                escape.terminal(
                    masked("\n".join(attempt.error.strip().splitlines()[-LOG_LINES:]))
                ),
                language=None,
            )


def show_output(key: str) -> None:
    """The end of what the trial has printed."""
    (log,) = logs_of(key, Options(RUNS, URL))
    if not log.path.is_file():
        return
    st.subheader("Output")
    lines = log.last_lines(OUTPUT_LINES)
    st.code(escape.terminal("\n".join(lines)) or " ", language=None)
    words.note(
        f"The last {OUTPUT_LINES} lines at most. All of it: ablate logs {key[:8]}{WHERE}"
    )


def show_command(trial: StoredTrial, known: Known, declared: Space) -> None:
    """The command that trains the trial, if there is one."""
    if known.status == Status.COMPLETED:
        st.subheader("Reproduce this trial")
        command = f"ablate reproduce {escape.shell(trial.hash)}"
    elif Policy.of(declared).is_result(known):
        # No run trains a diverged trial again.
        return
    else:
        st.subheader("Continue the study")
        words.note(
            "The command trains all trials that have no result, among them this one."
        )
        command = f"ablate resume {escape.shell(trial.study)}"
    st.code(f"{command}{with_parts(declared)}{WHERE}", language="bash")


def body(key: str) -> None:
    trial, known, attempts, circumstances, layers = read(key, stamp())
    words.title(f"Trial {trial.hash[:8]}")
    with st.container(horizontal=True, vertical_alignment="center"):
        link(
            f"{trial.study}, row {trial.row}",
            "study",
            icon=":material/analytics:",
            study=trial.study,
        )
        notes.edited(trial.study, trial.hash)
    notes.written(trial.study, trial.hash)
    columns = st.columns(5)
    columns[0].metric("status", str(known.status))
    columns[1].metric("seed", int(trial.seed))
    stored, declared = results(trial.study)
    value = known.value(stored.metric)
    shown = "–" if value is None else fixed(value, stored.metric.digits)
    columns[2].metric(words.label(stored.metric.title), shown)
    columns[3].metric("epochs", f"{int(trial.epochs_done)} / {int(trial.epochs)}")
    columns[4].metric(
        "training time",
        "–" if trial.seconds is None else f"{trial.seconds:.0f} s",
    )
    show_difference(trial)
    if known.epochs:
        show_curves(known, stored.metrics)
    show_layers(layers)
    if declared.reported is not None:
        for text in reported_notes(stored):
            words.note(text)
    else:
        show_command(trial, known, declared)
        show_output(trial.hash)
    if attempts:
        show_attempts(attempts)
    for attempt in circumstances:
        st.subheader("Hardware and versions")
        st.dataframe(
            pd.DataFrame(
                [{"what": k, "value": str(v)} for k, v in asdict(attempt).items()]
            ),
            hide_index=True,
            width="stretch",
        )
    with st.expander("Network, recipe and data"):
        st.json(
            {
                name: getattr(trial, name)
                for name in ("backbone", "image_size", "settings", "recipe", "data")
            }
        )
    keep(
        {
            "trial": trial.hash,
            "diagnostic": str(st.session_state.get("diagnostic") or ""),
        }
    )


def page() -> None:
    requested = state("trial")
    if not requested:
        requested = st.text_input("Trial", placeholder="a hash or its first characters")
    if not requested:
        st.caption("Or choose a trial of a study:")
        for study in studies()[:MOST_STUDIES]:
            link(
                study.name,
                "study",
                icon=":material/analytics:",
                study=study.name,
                view="trials",
            )
        return
    with Reader(URL) as reader:
        running = reader.trials.get(requested).status in (
            Status.RUNNING,
            Status.PLANNED,
        )
    live(body, 2 if running else None)(requested)


page()
