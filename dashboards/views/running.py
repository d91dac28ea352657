"""The trials that train now: their curves, what they print, and how busy the machine is."""

from __future__ import annotations

import socket

import streamlit as st
import words
from links import link
from stored import RUNS, URL, WHERE, attempts_of, curves, trials

from ablate.machine.usage import process_usage, usage
from ablate.records import Status
from ablate.records.stored import TrialRow
from ablate.report.charts import Chart, Series
from ablate.report.numbers import fixed
from ablate.report.units import size_text
from ablate.scheduling.options import Options
from ablate.text import advice, escape
from ablate.trained.logs import logs_of
from views.shown import Shown, choose, show_chart

# The trials that are shown; more would not be read.
MOST_SHOWN = 8
OUTPUT_LINES = 6
# States of trials that the next run trains.
LEFT = (Status.PLANNED, Status.FAILED)


def show(study: Shown) -> None:
    """Draws the view."""
    machine()
    listed = [trial for trial in trials(study.name) if trial.row in study.rows]
    running = [trial for trial in listed if trial.status == Status.RUNNING]
    if not running:
        is_left = any(trial.status in LEFT for trial in listed)
        resume = f"{advice.command('resume', study.name)}{WHERE}"
        words.notice(
            "No trial of this study trains now.", command=resume if is_left else ""
        )
        return
    names = [metric.name for metric in study.results.metrics if not metric.of]
    metric = choose("Metric", names, study.results.metric.measured, "metric")
    shown = running[:MOST_SHOWN]
    draw_curves(study, shown, metric)
    for trial in shown:
        describe(study, trial, metric)
    if len(running) > MOST_SHOWN:
        st.caption(f"{len(running) - MOST_SHOWN} more trials train.")


def machine() -> None:
    """How busy the machine of the dashboard is."""
    now = usage()
    parts = [
        f"{socket.gethostname()}: CPU {now.busy:.0f} % of {now.cores} cores",
        f"memory {size_text(now.used)} of {size_text(now.memory)}",
    ]
    for gpu in now.gpus:
        memory = f"{size_text(gpu.used)} of {size_text(gpu.memory)}"
        parts.append(f"{gpu.name} {gpu.busy:.0f} %, {memory}")
    words.paragraph(" · ".join(parts))


def draw_curves(study: Shown, running: list[TrialRow], metric: str) -> None:
    """One line per trial."""
    by_row = curves(study.name, sorted({trial.row for trial in running}))
    title = next(m.title for m in study.results.metrics if m.name == metric)
    series = []
    for trial in running:
        epochs = by_row.get(trial.row, {}).get(trial.seed, ())
        measured = [epoch for epoch in epochs if metric in epoch.metrics]
        if measured:
            series.append(
                Series(
                    f"row {trial.row}, seed {trial.seed}",
                    [epoch.number for epoch in measured],
                    [epoch.metrics[metric] for epoch in measured],
                    joined=True,
                )
            )
    if not series:
        st.caption("No epoch is stored yet.")
        return
    show_chart(Chart(title="", x="epoch", y=title, series=series, form="lines"))


def describe(study: Shown, trial: TrialRow, metric: str) -> None:
    """One trial: how far it is, its process, and the end of its output."""
    with st.container(border=True):
        link(
            f"row {trial.row}, seed {trial.seed}, trial {trial.trial[:8]}",
            "trial",
            trial=trial.trial,
        )
        words.caption(" · ".join(facts(study, trial, metric)))
        (log,) = logs_of(trial.trial, Options(RUNS, URL))
        if log.path.is_file():
            lines = log.last_lines(OUTPUT_LINES)
            st.code(escape.terminal("\n".join(lines)) or " ", language=None)


def facts(study: Shown, trial: TrialRow, metric: str) -> list[str]:
    """How far a trial is, and what its process uses."""
    parts = [f"epoch {trial.epochs_done} of {trial.epochs}"]
    epochs = curves(study.name, [trial.row]).get(trial.row, {})
    last = list(epochs.get(trial.seed, ()))[-1:]
    declared = next(m for m in study.results.metrics if m.name == metric)
    if last and metric in last[0].metrics:
        value = fixed(last[0].metrics[metric], declared.digits)
        parts.append(f"{declared.title} {value}")
    attempts = attempts_of(trial.trial)
    if not attempts:
        return parts
    attempt = attempts[-1]
    parts.append(f"{attempt.device or 'cpu'} of {attempt.host}")
    if attempt.host == socket.gethostname():
        used = process_usage(attempt.pid)
        if used is None:
            parts.append("its process has ended, so the next run continues it")
        else:
            parts.append(f"process: {used[0]:.0f} % of a core, {size_text(used[1])}")
    return parts
