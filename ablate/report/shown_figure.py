"""A matplotlib figure that looks alike everywhere, and that a notebook shows."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.figure import Figure


def own_settings() -> AbstractContextManager[None]:
    """Overrides the user's settings of matplotlib while a figure is made or written."""
    return matplotlib.rc_context(
        {
            # Equal figures give equal bytes in SVG.
            "svg.hashsalt": "ablate",
            # Text stays text, which can be searched, selected and edited. Publishers
            # refuse the bitmap-like Type 3 fonts that are matplotlib's default in PDF.
            "svg.fonttype": "none",
            "pdf.fonttype": 42,
            # With TeX, any text of a study could run as a program.
            "text.usetex": False,
        }
    )


class ShownFigure(Figure):
    """A figure that is drawn with our settings, without changing those of the user."""

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        """Writes the figure to a file, as matplotlib does."""
        with own_settings():
            super().savefig(*args, **kwargs)

    def svg(self) -> str:
        """Returns the figure as an SVG element that can be embedded in a page."""
        stream = io.StringIO()
        self.savefig(stream, format="svg", metadata={"Date": None})
        text = stream.getvalue()
        return text[text.index("<svg") :]

    def _repr_svg_(self) -> str:
        return self.svg()
