"""Which patches of the image get attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the attention to each patch, as a mean over queries and heads.

    A layer that attends within windows, or to a coarser grid, has no such map.

    Shape:
        (batch, h, w).
    """
    if layer.attention is None:
        return {}
    weights = layer.attention[1].weights
    height, width = layer.grid
    prefix = weights.shape[-1] - height * width
    if prefix < 0 or weights.shape[-2] != weights.shape[-1]:
        return {}
    patches = weights[..., prefix:].float().mean((1, 2))
    return {"": patches.unflatten(-1, (height, width))}


DIAGNOSTIC = Diagnostic(
    name="attention_map",
    about="attention to each patch of the image, as a mean over queries and heads; take"
    " it of one image (--images 1)",
    source="anti-oversmoothing, Figure 8",
    axis="patches",
    measure=measure,
    form="matrix",
)
