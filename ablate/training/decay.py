"""Decides which parameters have weight decay.

The rule is timm's: matrices and kernels decay, vectors and parameters named `bias` do
not. Layers declare two kinds of exceptions: parameters whose shape misleads the rule
(`DECAYS`), and what the papers' published code does differently (`DECAYS_AS_PUBLISHED`,
with `recipe.factor_decay: code`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ablate.records import Recipe


def exceptions(model: nn.Module, recipe: Recipe) -> Iterator[tuple[nn.Parameter, bool]]:
    """Yields the parameters that are exceptions, and whether each decays."""
    for module in model.modules():
        declared = dict(getattr(module, "DECAYS", {}))
        if recipe.factor_decay == "code":
            declared |= getattr(module, "DECAYS_AS_PUBLISHED", {})
        for name, decays in declared.items():
            parameter = getattr(module, name, None)
            if isinstance(parameter, nn.Parameter):
                yield parameter, decays


def apply_exceptions(
    optimizer: torch.optim.Optimizer, model: nn.Module, recipe: Recipe
) -> None:
    """Moves parameters between the groups of an optimiser that has not stepped yet."""
    if not recipe.weight_decay:
        return
    for parameter, decays in exceptions(model, recipe):
        groups: list[dict[str, Any]] = optimizer.param_groups
        current = next(group for group in groups if _holds(group, parameter))
        if (current["weight_decay"] > 0) == decays:
            continue
        decay = recipe.weight_decay if decays else 0.0
        current["params"] = [
            other for other in current["params"] if other is not parameter
        ]
        fitting = (group for group in groups if _same_but_decay(group, current, decay))
        # An optimiser may have several groups already, such as one for each learning
        # rate of layer decay. A parameter keeps everything of its group but the decay.
        target = next(fitting, None)
        if target is None:
            optimizer.add_param_group(
                {**current, "params": [parameter], "weight_decay": decay}
            )
        else:
            target["params"].append(parameter)


def _holds(group: dict[str, Any], parameter: nn.Parameter) -> bool:
    # `in` would compare the values of tensors instead of their identity.
    return any(member is parameter for member in group["params"])


def _same_but_decay(
    group: dict[str, Any], other: dict[str, Any], weight_decay: float
) -> bool:
    ignored = ("params", "weight_decay")
    same = all(
        group.get(key) == value for key, value in other.items() if key not in ignored
    )
    return same and group["weight_decay"] == weight_decay
