"""The verdict on each row: a forest plot, and a sentence each."""

from __future__ import annotations

import streamlit as st
import words
from stored import chart, verdicts

from ablate.report.numbers import fixed
from ablate.report.palette import VERDICTS
from ablate.report.summary import shown_levels
from ablate.report.wording import (
    change_text,
    error_rate,
    no_difference_sentence,
    policy,
    sentence,
)
from ablate.statistics.numbers import mean_of
from views.shown import Shown, only, show_chart

MOST_SENTENCES = 60


def show(study: Shown) -> None:
    """Draws the view."""
    margin = study.declared.criterion.margin
    results = study.results
    first = results.cells[0]
    mean = ""
    if first.values:
        value = mean_of(first.values.values())
        mean = f"; mean {fixed(value, results.metric.digits)}"
    levels = change_text(shown_levels(first), results.labels)
    words.caption(f"{results.metric.title} compared with row 0 ({levels}{mean}):")
    effects = [effect for effect in verdicts(study.name) if effect.row in study.rows]
    if any(effect.mean is not None for effect in effects):
        show_chart(only(chart(study.name, "effects"), study.rows), key="forest")
    if not effects:
        st.info("There is no row to compare with row 0.")
    for effect in effects[:MOST_SENTENCES]:
        words.verdict(
            sentence(effect, results.metric, margin),
            VERDICTS[str(effect.verdict)],
        )
    if len(effects) > MOST_SENTENCES:
        st.caption(
            f"More verdicts on the tab `effects`: {len(effects) - MOST_SENTENCES}."
        )
    words.note(
        f"{results.metric.title}: {policy(study.declared)}. {error_rate(results)}"
        f" {no_difference_sentence(results.metric, margin)}"
    )
