"""The learnt scales of AttnScale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the mean of w over heads, and the least and the largest w."""
    from ablate.layers.attention import ScaledHighPass

    if layer.attention is None:
        return {}
    for edit in layer.attention[0].edits.weights:
        if isinstance(edit, ScaledHighPass):
            w = edit.w.detach()[None]
            return {"": w.mean(1), "least": w.amin(1), "largest": w.amax(1)}
    return {}


DIAGNOSTIC = Diagnostic(
    name="attention_scale",
    about=(
        "w of AttnScale, mean over heads, and the least and largest head; 0 leaves"
        " attention as it is"
    ),
    source="anti-oversmoothing, Figure 6",
    axis="w of AttnScale",
    measure=measure,
)
