"""One study: its question, verdicts, tables and charts; updated while it runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import notes
import streamlit as st
import words
from failures import live
from links import keep, state
from stored import URL, WHERE, results, studies
from views import (
    curves,
    layers,
    levels,
    lines,
    objections,
    pareto,
    running,
    scatter,
    tables,
    trials,
    verdicts,
)
from views.shown import Shown

from ablate.errors import AblateError
from ablate.records import CellResult, StudyResults, level_text
from ablate.report.summary import shown_levels
from ablate.results.html_report import write_report
from ablate.results.study import Study
from ablate.store.studies import StudyStatus

VIEWS: dict[str, Callable[[Shown], None]] = {
    "verdicts": verdicts.show,
    "running": running.show,
    "table": tables.show_table,
    "effects": tables.show_effects,
    "pareto": pareto.show,
    "scatter": scatter.show,
    "levels": levels.show,
    "curves": curves.show,
    "parallel": lines.show,
    "layers": layers.show,
    "trials": trials.show,
    "review": objections.show,
}
# What the views put into the address, if they are drawn.
CHOICES = (
    "cost",
    "metric",
    "diagnostic",
    "of",
    "by",
    "group",
    "smooth",
    "log",
    "x",
    "y",
    "colour",
    "columns",
    "where",
)


def choose(names: Sequence[str]) -> str:
    """The study in the address, or else one that the user chooses."""
    requested = state("study")
    if requested and requested not in names:
        words.notice(f"The store has no study '{requested}'.", "warning")
    return st.selectbox(
        "Study",
        names,
        index=names.index(requested) if requested in names else 0,
        key="study",
        label_visibility="collapsed",
    )


def filters(stored: StudyResults) -> dict[str, str]:
    """Levels that are asked for, by factor; kept in the address."""
    chosen = {}
    with st.popover("Filter by factor"):
        for name in stored.factors:
            levels = list(
                dict.fromkeys(
                    level_text(shown_levels(cell).get(name)) for cell in stored.cells
                )
            )
            requested = state(f"f.{name}")
            index = levels.index(requested) + 1 if requested in levels else 0
            value = st.selectbox(
                words.label(name), ["any", *levels], index=index, key=f"f.{name}"
            )
            if value != "any":
                chosen[name] = value
    return chosen


def matches(cell: CellResult, chosen: dict[str, str]) -> bool:
    """Whether a cell has the levels that are asked for."""
    levels = shown_levels(cell)
    return all(level_text(levels.get(name)) == value for name, value in chosen.items())


def progress(study: StudyStatus) -> None:
    """How far the study is: a bar while trials are left, and in words."""
    text = words.progress(study)
    if study.unfinished:
        st.progress(study.epochs_done / study.epochs if study.epochs else 0.0, text)
    else:
        words.caption(text)


def report_button(name: str) -> None:
    """Makes the report only if a user wants it."""
    if st.button("Create report", help="One HTML file that can be opened offline."):
        with tempfile.TemporaryDirectory() as folder:
            write_report(Study(name, URL), Path(folder, "report.html"), where=WHERE)
            content = Path(folder, "report.html").read_text(encoding="utf-8")
        st.download_button(
            "Download report", content, f"{name.replace('/', '-')}.html", "text/html"
        )


def body(name: str) -> None:
    """The study with one of its views."""
    stored, declared = results(name)
    status = next(study for study in studies() if study.name == name)
    words.title(status.question)
    progress(status)
    if stored.expect:
        words.caption(f"Expected: {stored.expect}")
    notes.written(name)
    requested = state("view")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        view = st.segmented_control(
            "View",
            VIEWS,
            default=requested if requested in VIEWS else "verdicts",
            key="view",
            label_visibility="collapsed",
        )
        chosen = filters(stored)
        notes.edited(name)
    rows = {cell.index for cell in stored.cells if matches(cell, chosen)}
    try:
        VIEWS[view or "verdicts"](Shown(name, stored, declared, frozenset(rows)))
    except AblateError as error:
        words.notice(str(error))
    keep(
        {"study": name, "view": view or ""}
        | {f"f.{factor}": level for factor, level in chosen.items()}
        | {key: address_text(st.session_state.get(key)) for key in CHOICES}
    )


def address_text(value: object) -> str:
    """A choice as the address has it; empty if nothing is chosen."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value) if value else ""


def page() -> None:
    """Draws the page."""
    every = studies()
    if not every:
        st.info(
            "The store has no study yet. To create one, run `ablate init` and then `ablate"
            " run space.yaml`."
        )
        return
    name = choose([study.name for study in every])
    status = next(study for study in every if study.name == name)
    unfinished = bool(status.unfinished or not status.finished)
    if st.session_state.get("read") != name:
        # Once, and not at each refresh, which would let the page flicker.
        with st.spinner("Reading the study ..."):
            results(name)
        st.session_state["read"] = name

    def whole() -> None:
        body(name)
        now = next(study for study in studies() if study.name == name)
        if unfinished and now.finished and not now.unfinished:
            st.rerun()

    live(whole, 2 if unfinished else None)()
    report_button(name)


page()
