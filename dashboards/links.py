"""Addresses of pages. The address of a page contains its state, so it can be shared."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st
import words

_PAGES: dict[str, st.Page] = {}


def register(name: str, page: st.Page) -> None:
    """Makes a page known by the name of its file."""
    _PAGES[name] = page


def link(label: str, name: str, icon: str | None = None, **query: str) -> None:
    """A link to a page with its state."""
    st.page_link(
        _PAGES[name], label=words.label(label), icon=icon, query_params=dict(query)
    )


def go(name: str, **query: str) -> None:
    """Goes to a page with its state."""
    st.switch_page(_PAGES[name], query_params=dict(query))


def state(key: str, default: str = "") -> str:
    """A part of this page's address."""
    value: str = st.query_params.get(key, default)
    return value


def number(key: str, low: float, high: float) -> float:
    """A number in this page's address; the lowest one if there is no such number."""
    try:
        number = float(state(key) or low)
    except ValueError:
        return low
    # Not a number compares as false.
    return number if low <= number <= high else low


def keep(values: Mapping[str, str]) -> None:
    """Puts a page's state into its address; what is empty is left out."""
    kept = {key: value for key, value in values.items() if value}
    if dict(st.query_params) != kept:
        st.query_params.from_dict(kept)
