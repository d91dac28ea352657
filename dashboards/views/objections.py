"""What a referee would object to, with the command that fixes it."""

from __future__ import annotations

import streamlit as st
import words
from stored import URL, WHERE

from ablate.results.review import review
from views.shown import Shown


def show(study: Shown) -> None:
    """Draws the view."""
    findings = review(study.name, URL, WHERE)
    if not findings:
        st.success("No findings.")
    for finding in findings:
        words.notice(
            finding.text, "warning", title=finding.name, command=finding.command
        )
