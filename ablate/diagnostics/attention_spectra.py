"""Response of each head of attention to each frequency over tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.attention_spectrum import response
from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the norms of the rows of F A F^-1 for each head; (batch, heads, n)."""
    norms = response(layer)
    return {} if norms is None else {"": norms}


DIAGNOSTIC = Diagnostic(
    name="attention_spectra",
    about="attention_spectrum of each head: a row for each head, a column for each"
    " frequency",
    source="anti-oversmoothing, Figures 2, 5, 9 and 10, and appendix F.2",
    axis="frequency",
    measure=measure,
    form="matrix",
    colours="logarithm",
)
