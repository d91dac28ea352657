"""Shows the errors of a page on that page, with what to do about them."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable

import streamlit as st
import words

from ablate import escape
from ablate.errors import AblateError


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
    if "brings an older one up to date" in str(error):
        st.info(
            "The dashboard is read-only. Upgrade the store with `ablate run FILE` or"
            " `ablate resume`, then reload."
        )
    elif "no store at" in str(error):
        st.info(
            "There is no store yet; this page will show it once it exists. "
            "`ablate init`, then `ablate run space.yaml` creates one."
        )
    else:
        st.info("`ablate doctor` checks the store and the machine.")


def live(body: Callable[..., None], seconds: float | None = 2) -> Callable[..., None]:
    """A part of a page that is refreshed every `seconds`.

    With None, it is refreshed only after a user interaction.
    """

    @functools.wraps(body)
    def told(*arguments: object) -> None:
        try:
            body(*arguments)
        except Exception as error:
            tell(error)

    made: Callable[..., None] = st.fragment(told, run_every=seconds)
    return made
