"""The learnt scales of FeatScale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the means over channels of s (low frequencies) and t (high ones)."""
    from ablate.layers.attention import ScaledFrequencies

    if layer.attention is None:
        return {}
    for edit in layer.attention[0].edits.output:
        if isinstance(edit, ScaledFrequencies):
            low, high = (scale.detach()[None] for scale in (edit.s, edit.t))
            return {"low": low.mean(1), "high": high.mean(1)}
    return {}


DIAGNOSTIC = Diagnostic(
    name="feature_scale",
    about=(
        "s (low frequencies) and t (high frequencies) of FeatScale, mean over channels;"
        " 0 leaves tokens as they are"
    ),
    source="anti-oversmoothing, Figure 7",
    axis="s and t of FeatScale",
    measure=measure,
)
