"""Diversity of tokens: distance to the nearest matrix of equal rows, composite norm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns `r(Z) = sqrt(||Z - 1 z^T||_1 ||Z - 1 z^T||_inf)` with z the mean token.

    That is the largest column sum times the largest row sum of absolute values. In this
    norm the mean is close to the nearest row, but not exactly it.
    """
    rest = (layer.tokens - layer.tokens.mean(1, keepdim=True)).abs()
    return {"": (rest.sum(1).amax(1) * rest.sum(2).amax(1)).sqrt()}


DIAGNOSTIC = Diagnostic(
    name="diversity",
    about=(
        "r(Z) of the tokens that leave a layer, composite l1/linf norm; 0 where all"
        " tokens are equal"
    ),
    source="augmented-shortcuts, eq. 5 and Figure 4; Dong et al. 2021",
    axis="r(Z)",
    measure=measure,
)
