"""Mean pairwise cosine of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the mean of cos(h_i, h_j) over i != j.

    No matrix of pairs is needed: the sum over all pairs is the squared norm of the sum
    of unit vectors.
    """
    from torch.nn.functional import normalize

    unit = normalize(layer.tokens, dim=-1)
    n = layer.tokens.shape[1]
    squares = unit.square().sum((1, 2))
    if n > 1:
        return {"": (unit.sum(1).square().sum(1) - squares) / (n * (n - 1))}
    return {}


DIAGNOSTIC = Diagnostic(
    name="token_cosine",
    about=(
        "mean cosine of two different tokens that leave a layer, -1 to 1; 1 where all"
        " point the same way"
    ),
    source="patch-diversification, section 3; anti-oversmoothing, eq. 76",
    axis="mean cosine of tokens",
    measure=measure,
)
