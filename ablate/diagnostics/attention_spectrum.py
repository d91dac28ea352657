"""Response of attention to each frequency over tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the norms of the rows of F A F^-1, averaged over heads; (batch, n).

    F is the Fourier matrix over tokens.
    """
    import torch

    if (
        layer.attention is None
        or layer.attention[1].weights.shape[-1] != layer.attention[1].weights.shape[-2]
    ):
        return {}
    weights = layer.attention[1].weights.float()
    response = torch.fft.fft(torch.fft.ifft(weights, dim=-1), dim=-2)
    return {"": response.abs().square().sum(-1).sqrt().mean(1)}


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
