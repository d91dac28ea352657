"""The layers of a network, from first to last, for decay of the rate by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ablate.errors import Infeasible
from ablate.models import places_of


@contextmanager
def layers_said(model: nn.Module) -> Iterator[None]:
    """Within this context, a network reports its layers as timm's models do.

    A network without its own way reports its blocks. Without this, timm would count
    groups of a dozen parameters as layers, wherever they are.
    """
    module: Any = model
    if hasattr(module, "group_matcher"):
        yield
        return
    layer_of = _by_blocks(model) if places_of(model) else None

    def group_matcher(coarse: bool = False) -> Callable[[str], float]:
        if layer_of is None:
            raise Infeasible(
                "recipe.layer_decay: timm does not say which layers this backbone has;"
                " leave it out"
            )
        return layer_of

    module.group_matcher = group_matcher
    try:
        yield
    finally:
        del module.group_matcher


def _by_blocks(model: nn.Module) -> Callable[[str], float]:
    """Returns a function from a parameter's name to its layer.

    Each block is one layer. So is what comes before, between and after the blocks.
    """
    blocks = [f"{place.name}." for place in places_of(model)]
    layers: dict[str, float] = {}
    layer = 0.0
    for name, _ in model.named_parameters():
        block = next(
            (number for number, prefix in enumerate(blocks) if name.startswith(prefix)),
            None,
        )
        if block is not None:
            layer = 2.0 * block + 2
            layers[name] = layer
        elif not layer:
            layers[name] = 0.0
        else:
            layers[name] = layer + 1 if layer < 2.0 * len(blocks) else math.inf
    return layers.__getitem__
