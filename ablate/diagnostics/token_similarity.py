"""The matrix of cosines between tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer
from ablate.errors import DiagnosticError

if TYPE_CHECKING:
    from torch import Tensor


# The most tokens for which a matrix is stored.
MOST = 1024


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """cos(h_i, h_j) for all tokens; (batch, n, n)."""
    from torch.nn.functional import normalize

    if layer.tokens.shape[1] > MOST:
        raise DiagnosticError(
            f"token_similarity: {layer.tokens.shape[1]} tokens make too large a matrix;"
            f" at most {MOST} are allowed; leave token_similarity out"
        )
    unit = normalize(layer.tokens, dim=-1)
    return {"": unit @ unit.transpose(1, 2)}


DIAGNOSTIC = Diagnostic(
    name="token_similarity",
    about="cosines of all pairs of tokens that leave a layer",
    source="augmented-shortcuts, Figure 3",
    axis="token",
    measure=measure,
    form="matrix",
    colours="cosines",
)
