"""The verdict on each row, as a sentence."""

from __future__ import annotations

import streamlit as st
import words
from stored import verdicts

from ablate.report.palette import VERDICTS
from ablate.report.wording import policy, sentence
from views.shown import Shown

MOST_SENTENCES = 60


def show(study: Shown) -> None:
    """Draws the view."""
    margin = study.declared.margin
    said = [effect for effect in verdicts(study.name) if effect.row in study.rows]
    if not said:
        st.info("There is no row to compare with row 0.")
    for effect in said[:MOST_SENTENCES]:
        words.verdict(
            sentence(effect, study.results.metric, margin),
            VERDICTS[str(effect.verdict)],
        )
    if len(said) > MOST_SENTENCES:
        st.caption(f"{len(said) - MOST_SENTENCES} more in the table; use the filter.")
    st.caption(
        f"{policy(study.declared)}; verdicts at 5 % for all rows together;"
        f" margin {margin:g}."
    )
