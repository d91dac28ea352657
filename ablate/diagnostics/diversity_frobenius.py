"""Diversity of tokens in the Frobenius norm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns `||Z - 1 z^T||_F`; in this norm the mean token is the nearest z."""
    return {
        "": (layer.tokens - layer.tokens.mean(1, keepdim=True)).flatten(1).norm(dim=1)
    }


DIAGNOSTIC = Diagnostic(
    name="diversity_frobenius",
    about=(
        "distance of the tokens that leave a layer from equal tokens, Frobenius norm; 0"
        " where all are equal"
    ),
    source="augmented-shortcuts, eq. 5",
    axis="r(Z), Frobenius",
    measure=measure,
)
