"""Diagnostics by layer, as the pages of a study and of a trial draw them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import streamlit as st
from links import state

from ablate import diagnostics
from ablate.errors import UnknownName
from ablate.report.charts import layers_chart
from ablate.report.layer_means import Line
from ablate.report.plotly_charts import draw, draw_matrices, draw_vectors

MOST_PANELS = 6


def choose(stored: Sequence[str]) -> str:
    """The diagnostic in the address, or else one that the user chooses."""
    requested = state("diagnostic")
    return st.selectbox(
        "Diagnostic",
        stored,
        index=stored.index(requested) if requested in stored else 0,
        key="diagnostic",
    )


def show(name: str, lines: Sequence[Line]) -> None:
    """Numbers as lines over layers; vectors and matrices as one panel per line."""
    first = next(iter(lines[0].layers.values()))
    drawn = lines[:MOST_PANELS]
    axis, colours = "", "panel"
    # That of a plugin may not be here.
    with contextlib.suppress(UnknownName):
        diagnostic = diagnostics.find(name.partition(".")[0])
        axis, colours = diagnostic.axis, diagnostic.colours
    if not isinstance(first, list):
        st.plotly_chart(draw(layers_chart(name, name.replace("_", " "), lines)))
        return
    if not isinstance(first[0], list):
        st.plotly_chart(draw_vectors(axis, drawn))
        st.caption("One line per layer, from dark (first) to light (last).")
    else:
        layers = sorted({layer for line in drawn for layer in line.layers})
        if len(layers) > 1:
            layer = st.select_slider("Layer", layers, value=layers[-1], key="layer")
        else:
            layer = layers[0]
        st.plotly_chart(draw_matrices(axis, colours, drawn, layer))
    if len(lines) > MOST_PANELS:
        st.caption(
            f"The first {MOST_PANELS} of {len(lines)} rows; use the filter to see"
            " others."
        )
