"""Which patches the class token attends to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the attention to each patch, as a mean over heads; (batch, h, w).

    The query is the class token, or the mean over all patches if there is none. A layer
    that attends within windows has no such map.
    """
    if layer.attention is None:
        return {}
    weights = layer.attention[1].weights
    height, width = layer.grid
    prefix = weights.shape[-1] - height * width
    if prefix < 0 or weights.shape[-2] != weights.shape[-1]:
        return {}
    # A prefix begins with the class token.
    queries = weights[..., :1, :] if prefix else weights
    patches = queries[..., prefix:].float().mean((1, 2))
    return {"": patches.unflatten(-1, (height, width))}


DIAGNOSTIC = Diagnostic(
    name="attention_map",
    about="attention to each patch of the image: that of the class token, or of all"
    " patches if there is none; take it of one image (--images 1)",
    source="anti-oversmoothing, Figure 8",
    axis="patches",
    measure=measure,
    form="matrix",
    colours="panel",
)
