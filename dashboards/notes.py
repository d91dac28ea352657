"""Tags and notes: what people wrote on a study or a trial, and the form to change it."""

from __future__ import annotations

import stored
import streamlit as st
import words

from ablate.errors import AblateError
from ablate.store.notes import STUDY, Note, tags_of


def written(study: str, trial: str = STUDY) -> None:
    """Shows the tags and the note, if there are any."""
    note = stored.note(study, trial)
    if note.tags:
        words.tags(note.tags)
    if note.text:
        words.paragraph(note.text)


def edited(study: str, trial: str = STUDY) -> None:
    """A form to change them. Results stay as they are."""
    problem = stored.notes_problem()
    if problem:
        words.notice(problem, "warning")
    note = stored.note(study, trial)
    with st.popover("Your notes"), st.form(f"note-{study}-{trial}", border=False):
        tags = st.text_input(
            "Tags", ", ".join(note.tags), placeholder="separated by commas"
        )
        text = st.text_area("Note", note.text)
        if not st.form_submit_button("Save"):
            return
        try:
            stored.put_note(study, trial, Note(tags_of(tags), text.strip()))
        except AblateError as error:
            words.notice(str(error), "error")
            return
    st.rerun()
