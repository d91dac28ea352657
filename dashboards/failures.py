"""Shows the errors of a page on that page, with what to do about them."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable

import streamlit as st
import words

from ablate.errors import AblateError, MissingStore
from ablate.text import escape


def tell(error: Exception) -> None:
    """Shows an error and how to fix it."""
    if not isinstance(error, AblateError):
        st.error("This page has an error; the other pages still work.")
        st.code(
            escape.terminal("".join(traceback.format_exception(error, limit=-5))),
            language=None,
        )
        return
    words.notice(str(error), "error")
    if isinstance(error, MissingStore):
        st.info(
            "There is no store yet. To create one, run `ablate init` and then `ablate run"
            " space.yaml`; this page will show it."
        )
    else:
        st.info("`ablate doctor` checks the store and the machine.")


def live(body: Callable[..., None], seconds: float | None = 2) -> Callable[..., None]:
    """A part of a page that is refreshed every `seconds`.

    With None, it is refreshed only after a user interaction.
    """

    @functools.wraps(body)
    def guarded(*arguments: object) -> None:
        try:
            body(*arguments)
        except Exception as error:
            tell(error)

    made: Callable[..., None] = st.fragment(guarded, run_every=seconds)
    return made
