"""Text of a study on a page.

Streamlit interprets most texts as Markdown, including links, images and formulas. User
text therefore passes through this module, which escapes it as HTML or shows it
literally in a label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import streamlit as st
from markupsafe import Markup

from ablate.records import Status
from ablate.store.studies import StudyStatus
from ablate.text import escape

COLOURS = {"info": "#0072B2", "warning": "#E69F00", "error": "#D55E00"}
SMALL = "font-size: .875rem; opacity: .65; overflow-wrap: anywhere; margin: 0"
_SOUND = re.compile(
    r"""
    [^\W\d_]                        # a letter first: no list, no heading
    (?: [^\W_]
      | [ ,;()=/%+.±-](?![-.>])     # no arrows, no dashes of two signs
      | (?<=[^\W_])_(?=[^\W_])      # no emphasis
      | :(?=[ ])                    # no emoji, colours or addresses
    )*
    """,
    re.VERBOSE,
)


def heading(text: str, level: int = 1) -> None:
    """A heading of the page."""
    _show(
        Markup('<h{0} style="overflow-wrap: anywhere">{1}</h{0}>').format(
            level, escape.html(text)
        )
    )


def title(text: str) -> None:
    """The heading of a page."""
    style = "font-size: 1.5rem; padding: 0; margin: 0; overflow-wrap: anywhere"
    _show(Markup('<h1 style="{}">{}</h1>').format(style, escape.html(text)))


def tags(texts: Iterable[str]) -> None:
    """Tags, each in a box."""
    style = (
        "display: inline-block; border: 1px solid; border-radius: .6rem; opacity: .8;"
        " padding: 0 .5rem; margin: 0 .3rem .2rem 0; font-size: .875rem"
    )
    boxes = (
        Markup('<span style="{}">{}</span>').format(style, escape.html(text))
        for text in texts
    )
    _show(Markup("").join(boxes))


def paragraph(text: str) -> None:
    """A paragraph."""
    _show(
        Markup('<p style="overflow-wrap: anywhere; margin: 0">{}</p>').format(
            escape.html(text)
        )
    )


def caption(text: str) -> None:
    """A line in small letters."""
    _show(Markup('<p style="{}">{}</p>').format(SMALL, escape.html(text)))


def note(text: str) -> None:
    """A note of a table or a figure in small letters, with words in backticks as code."""
    _show(Markup('<p style="{}">{}</p>').format(SMALL, escape.html_with_code(text)))


def verdict(text: str, colour: str) -> None:
    """A sentence on an effect, beside a line in the colour of its verdict."""
    style = (
        f"border-left: 4px solid {colour}; padding-left: .6rem; margin: .2rem 0;"
        " overflow-wrap: anywhere"
    )
    _show(Markup('<p style="{}">{}</p>').format(style, escape.html(text)))


def notice(
    text: str, kind: str = "info", *, title: str = "", command: str = ""
) -> None:
    """A notice, a warning or an error.

    Args:
        text: words in backticks are shown as code.
        kind: info, warning or error.
        title: printed before the text, in bold.
        command: what to type, below the text.
    """
    colour = COLOURS[kind]
    style = (
        f"border-left: 4px solid {colour}; background: {colour}22; border-radius:"
        " .4rem; padding: .8rem 1rem"
    )
    wrap = "white-space: pre-wrap; overflow-wrap: anywhere"
    if title:
        head = Markup("<b>{}</b>: ").format(escape.html(title))
    else:
        head = Markup()
    if command:
        foot = Markup("<br><code>{}</code>").format(escape.html(command))
    else:
        foot = Markup()
    _show(
        Markup('<div role="alert" style="{}; {}">{}{}{}</div>').format(
            style, wrap, head, escape.html_with_code(text), foot
        )
    )


def progress(study: StudyStatus) -> str:
    """How many trials of a study are completed, and how many have another status."""
    done = study.by_status.get(Status.COMPLETED, 0)
    total = sum(study.by_status.values())
    others = "".join(
        f" · {number:,} {status}"
        for status, number in study.by_status.items()
        if number and status != Status.COMPLETED
    )
    return f"{done:,} of {total:,} trials completed{others}"


def label(text: str) -> str:
    """Text as the label of a link or a field, which Streamlit reads as Markdown.

    Text that could mean anything there becomes inline code.
    """
    shown = escape.line(text)
    if _SOUND.fullmatch(shown) and "www." not in shown.lower():
        return shown
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {shown} {fence}"


def _show(html: Markup) -> None:
    st.html(str(html))
