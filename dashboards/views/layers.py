"""Diagnostics by layer."""

from __future__ import annotations

import inside
import streamlit as st
import words
from stored import URL, WHERE

from ablate.results.review import with_parts
from ablate.results.study import Study
from ablate.text import escape
from views.shown import Shown


def show(study: Shown) -> None:
    """Draws the view."""
    reader = Study(study.name, URL)
    stored = list(reader.diagnostics())
    trainer = study.declared.network.trainer
    if study.results.reported is not None:
        words.notice("Not known: the runs were trained elsewhere.")
        return
    if not stored and trainer:
        words.notice(f"Diagnostics are not available for the trainer {trainer}.")
        return
    if not stored:
        parts = with_parts(study.declared)
        words.notice(
            "No diagnostics are stored. Measure them with:",
            command=f"ablate diagnose {escape.shell(study.name)}{parts}{WHERE}",
        )
        return
    diagnostic = inside.choose(stored)
    lines = [line for line in reader.layers(diagnostic) if line.cell in study.rows]
    if lines:
        inside.show(diagnostic, lines)
    else:
        st.info("None of the rows shown has this diagnostic.")
