"""What goes wrong on a page is said on the page, with what to do about it."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable

import streamlit as st
import words

from ablate import escape
from ablate.errors import AblateError


def tell(error: Exception) -> None:
    """Says what is wrong, and what helps."""
    if not isinstance(error, AblateError):
        st.error("This page has a mistake in it; the others go on.")
        st.code(
            escape.terminal("".join(traceback.format_exception(error, limit=-5))),
            language=None,
        )
        return
    words.notice(str(error), "error")
    if "brings an older one up to date" in str(error):
        st.info(
            "This page only reads. Bring the store up to date with `ablate run FILE` or"
            " `ablate resume`, then reload."
        )
    elif "no store at" in str(error):
        st.info(
            "There is nothing to see yet; this page shows the store when there is one. "
            "`ablate init`, then `ablate run space.yaml` makes one."
        )
    else:
        st.info("`ablate doctor` looks at the store and the machine.")


def live(body: Callable[..., None], seconds: float | None = 2) -> Callable[..., None]:
    """A part of a page that is made anew every so many seconds; None: only when
    something on it is touched.
    """

    @functools.wraps(body)
    def told(*arguments: object) -> None:
        try:
            body(*arguments)
        except Exception as error:
            tell(error)

    made: Callable[..., None] = st.fragment(told, run_every=seconds)
    return made
