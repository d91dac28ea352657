"""Networks with random weights that take no time to draw."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ablate.cost.count import Uninitialised
from ablate.models import build
from ablate.records import Architecture

NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d)
DRAWN = 0.02 * torch.randn(1_000_003, generator=torch.Generator().manual_seed(2))


def quickly_built(architecture: Architecture) -> nn.Module:
    """The network of an architecture. Its weights repeat the same random numbers.

    Drawing the initial weights of a network of 28 million parameters takes longer than
    a pass through it. This is for tests to which any weights will do.
    """
    with Uninitialised():
        network = build(architecture)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(_repeated(parameter))
    for module in network.modules():
        if isinstance(module, NORMS):
            module.reset_parameters()
    return network


def _repeated(parameter: Tensor) -> Tensor:
    times = -(-parameter.numel() // len(DRAWN))
    return DRAWN.repeat(times)[: parameter.numel()].view(parameter.shape)
