"""Mean pairwise cosine of the columns of attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the mean of cos(A_i, A_j) over heads and pairs of columns i != j."""
    from torch.nn.functional import normalize

    if layer.attention is None:
        return {}
    weights = layer.attention[1].weights
    unit, m = normalize(weights, dim=-2), weights.shape[-1]
    squares = unit.square().sum((-1, -2))
    if m > 1:
        return {"": ((unit.sum(-1).square().sum(-1) - squares) / (m * (m - 1))).mean(1)}
    return {}


DIAGNOSTIC = Diagnostic(
    name="attention_cosine",
    about=(
        "mean cosine of two different columns of attention; 1 where every token is"
        " attended to alike"
    ),
    source="anti-oversmoothing, eq. 75 and Figure 4",
    axis="mean cosine of attention columns",
    measure=measure,
)
