"""Response of attention to each frequency over tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def response(layer: Layer) -> Tensor | None:
    """Returns the norms of the rows of F A F^-1; (batch, heads, n).

    F is the Fourier matrix over tokens. None if the layer has no square attention.
    """
    import torch

    if layer.attention is None:
        return None
    weights = layer.attention[1].weights
    if weights.shape[-1] != weights.shape[-2]:
        return None
    weights = weights.float()
    spectrum = torch.fft.fft(torch.fft.ifft(weights, dim=-1), dim=-2)
    norms: Tensor = spectrum.abs().square().sum(-1).sqrt()
    return norms


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the response, averaged over heads; (batch, n)."""
    norms = response(layer)
    return {} if norms is None else {"": norms.mean(1)}


DIAGNOSTIC = Diagnostic(
    name="attention_spectrum",
    about=(
        "how strongly attention lets each frequency over tokens pass; an attention of"
        " all 1/N passes frequency 0 alone"
    ),
    source="anti-oversmoothing, Figure 2 and appendix F.2",
    axis="frequency",
    measure=measure,
    form="vector",
)
