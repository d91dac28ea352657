"""The learning rate of matrices by the width of their block (`recipe.lr_width`).

Adam moves each weight by about the learning rate, whatever its gradient. So the change of
a sum over n inputs grows with n, unless the rate falls as 1 / n. This is the rule for
hidden weights with Adam in table 3 of Yang et al. (arXiv 2203.03466); the other rules of
that table, for initial weights and outputs, are not applied.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeGuard, cast

import torch
from torch import nn

from ablate.models import places_of
from ablate.records import Recipe


def _is_linear(module: nn.Module) -> TypeGuard[nn.Linear | nn.Conv2d]:
    if isinstance(module, nn.Conv2d):
        return module.kernel_size == (1, 1) and module.groups == 1
    return isinstance(module, nn.Linear)


def scale_by_width(
    optimizer: torch.optim.Optimizer, model: nn.Module, recipe: Recipe
) -> None:
    """Gives the weights of linear layers in blocks the rate lr * lr_width / width.

    A convolution of 1 x 1 is a linear layer. The width is the number of channels of the
    block. Biases, norms, other convolutions, parameters of other modules, embeddings and
    the head keep their rate.
    """
    if not recipe.lr_width:
        return
    scales: dict[nn.Parameter, float] = {}
    for place in places_of(model):
        for module in model.get_submodule(place.name).modules():
            if _is_linear(module):
                scales[cast(nn.Parameter, module.weight)] = (
                    recipe.lr_width / place.site.width
                )
    for group in list(optimizer.param_groups):
        by_scale: defaultdict[float, list[nn.Parameter]] = defaultdict(list)
        for parameter in group["params"]:
            by_scale[scales.get(parameter, 1.0)].append(parameter)
        of_layer = group.get("lr_scale", 1.0)
        first, *others = by_scale
        group["params"] = by_scale[first]
        # The schedule multiplies the rate of the recipe by it.
        group["lr_scale"] = of_layer * first
        for scale in others:
            optimizer.add_param_group(
                {**group, "params": by_scale[scale], "lr_scale": of_layer * scale}
            )
