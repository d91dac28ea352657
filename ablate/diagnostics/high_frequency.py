"""Share of high frequencies in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """`||HC[X]||_F / ||X||_F` with HC[X] = X - 1 1^T X / n."""
    x = layer.tokens
    rest = (x - x.mean(1, keepdim=True)).flatten(1).norm(dim=1)
    return {"": rest / x.flatten(1).norm(dim=1).clamp_min(1e-12)}


DIAGNOSTIC = Diagnostic(
    name="high_frequency",
    about="share of the tokens that leave a layer which is not their mean, 0 to 1",
    source="anti-oversmoothing, appendix G.3 and Figure 12",
    axis="share of high frequencies",
    measure=measure,
)
