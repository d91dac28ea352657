"""All studies with their progress, updated while they run."""

from __future__ import annotations

import notes
import streamlit as st
import words
from failures import live
from links import keep, link, state
from stored import URL, note, studies

from ablate.records import Status
from ablate.store.notes import ARCHIVED
from ablate.store.studies import StudyStatus
from ablate.text.masking import masked

SHOWN = 50


def card(study: StudyStatus) -> None:
    """One study."""
    with st.container(border=True):
        link(study.name, "study", icon=":material/analytics:", study=study.name)
        words.paragraph(study.question)
        notes.written(study.name)
        st.progress(
            study.epochs_done / study.epochs if study.epochs else 0.0,
            text=words.progress(study),
        )
        st.caption(
            f"last run {study.updated_at:%Y-%m-%d %H:%M} UTC · {study.epochs_done:,} of"
            f" {study.epochs:,} epochs trained"
        )


def searched(study: StudyStatus) -> str:
    """The text in which the filter looks, in small letters."""
    tags = " ".join(note(study.name).tags)
    return f"{study.name} {study.question} {tags}".lower()


def shown(study: StudyStatus, pattern: str) -> bool:
    """Whether a study is listed: an archived one only if the filter asks for it."""
    return ARCHIVED not in note(study.name).tags or ARCHIVED in pattern.lower()


def overview() -> None:
    """The cards, refreshed every two seconds."""
    st.session_state.setdefault("filter", state("filter"))
    pattern = st.text_input(
        "Filter", placeholder="part of a name, a question or a tag", key="filter"
    )
    keep({"filter": pattern})
    every = [each for each in studies() if shown(each, pattern)]
    if not every and studies():
        st.info("All studies are archived. To see them, filter by archived.")
        return
    if not every:
        st.info(
            "The store has no study yet. To create one, run `ablate init` and then `ablate"
            " run space.yaml`; this page will show it."
        )
        return
    running = sum(study.by_status.get(Status.RUNNING, 0) for study in every)
    trials = sum(sum(study.by_status.values()) for study in every)
    failed = sum(study.by_status.get(Status.FAILED, 0) for study in every)
    with st.container(horizontal=True):
        for title, number in (
            ("studies", len(every)),
            ("trials", trials),
            ("running now", running),
            ("failed", failed),
        ):
            st.metric(title, f"{number:,}", width=110)
    matching = [study for study in every if pattern.lower() in searched(study)]
    for study in matching[:SHOWN]:
        card(study)
    if len(matching) > SHOWN:
        st.caption(f"{len(matching) - SHOWN} more; use the filter to see them.")


words.caption(f"store: {masked(URL)}")
live(overview)()
