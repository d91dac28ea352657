"""Standard deviation of the rows of attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the standard deviation of a row, averaged over heads and rows.

    It is over all m weights of the row, divided by m.
    """
    if layer.attention is None:
        return {}
    return {"": layer.attention[1].weights.std(dim=-1, correction=0).mean((1, 2))}


DIAGNOSTIC = Diagnostic(
    name="attention_deviation",
    about="mean standard deviation of a row of attention; 0 where all weights are 1/N",
    source="patch-diversification, section 3 and Figure 2b",
    axis="standard deviation of attention",
    measure=measure,
)
