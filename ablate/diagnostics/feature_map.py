"""Channels of the tokens that leave a layer, on the grid of the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor

# The number of channels side by side.
CHANNELS = 4


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the first channels side by side; (batch, h, CHANNELS * w)."""
    maps = layer.tokens[..., :CHANNELS].float().unflatten(1, layer.grid)
    return {"": maps.permute(0, 1, 3, 2).flatten(2)}


DIAGNOSTIC = Diagnostic(
    name="feature_map",
    about=f"the first {CHANNELS} channels of the tokens that leave a layer, side by side"
    " on the grid of the image; take it of one image (--images 1)",
    source="augmented-shortcuts, Figure 5",
    axis="patches",
    measure=measure,
    form="matrix",
)
