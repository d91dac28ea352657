"""The shape of the activation of a feed-forward network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor

FURTHEST = 3
PER_UNIT = 4


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns the activation at inputs from -3 to 3, averaged over channels; (1, 25).

    Learnt parameters are those of the trained network. A feed-forward network without
    one activation between two linear layers has no such shape.
    """
    import torch
    from torch import nn

    if layer.ffn is None:
        return {}
    first = getattr(layer.ffn[0], "fc1", None)
    activation = getattr(layer.ffn[0], "act", None)
    if activation is None or not isinstance(first, nn.Linear | nn.Conv2d):
        return {}
    width = first.weight.shape[0]
    count = 2 * FURTHEST * PER_UNIT + 1
    inputs = torch.linspace(-FURTHEST, FURTHEST, count, device=first.weight.device)
    shape: Tensor = activation(inputs.unsqueeze(1).expand(count, width)).float().mean(1)
    return {"": shape.unsqueeze(0)}


DIAGNOSTIC = Diagnostic(
    name="activation_shape",
    about=f"the activation of the feed-forward network at inputs from -{FURTHEST} to"
    f" {FURTHEST} in steps of 1/{PER_UNIT}, averaged over channels",
    source="iffn, Figure 3",
    axis=f"input (0: -{FURTHEST}, {2 * FURTHEST * PER_UNIT}: {FURTHEST})",
    measure=measure,
    form="vector",
)
