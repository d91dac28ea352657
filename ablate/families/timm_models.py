"""What the families of timm's models share: names, models without weights to read
numbers from, creation.
"""

from __future__ import annotations

import inspect
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ablate.errors import Infeasible
from ablate.factors.factor import Dimensions

if TYPE_CHECKING:
    from torch import nn


@cache
def names(*modules: str) -> list[str]:
    """timm's model names that its modules of these names define."""
    import timm

    return [name for module in modules for name in timm.list_models(module=module)]


@cache
def unmodified(name: str) -> Any:
    """The backbone of that name without weights (on the meta device), to read its
    numbers from.
    """
    import timm
    import torch

    import ablate.backbones  # noqa: F401  (registers those that timm has not)

    with torch.device("meta"):
        return timm.create_model(name, pretrained=False)


def image_size(name: str) -> int:
    """Side of the input that the backbone was made for, in pixels."""
    side: int = unmodified(name).pretrained_cfg["input_size"][1]
    return side


def create(name: str, channels: int, classes: int, **arguments: Any) -> nn.Module:
    """timm's model of that name."""
    import timm

    import ablate.backbones  # noqa: F401  (registers those that timm has not)

    model: nn.Module = timm.create_model(
        name, pretrained=False, in_chans=channels, num_classes=classes, **arguments
    )
    return model


def rates(
    wanted: Dimensions, *dropouts: str, attention: bool = True
) -> dict[str, float]:
    """timm's arguments for the drop rates.

    `dropouts` names those that stand for dropout in this model.
    """
    found = {"drop_path_rate": wanted.drop_path} | dict.fromkeys(
        dropouts, wanted.dropout
    )
    return found | ({"attn_drop_rate": wanted.attention_dropout} if attention else {})


def require_multiple(image_size: int, of: int, name: str) -> None:
    """Raises Infeasible unless the image's side is a multiple of the backbone's total
    stride.
    """
    if image_size % of:
        raise Infeasible(
            f"{name} needs an image side that {of} divides; data.image_size is"
            f" {image_size}"
        )


def norm_like(norm: nn.Module) -> partial[nn.Module]:
    """A maker of norms of the same class and epsilon."""
    keep = {
        k: getattr(norm, k)
        for k in ("eps",)
        if k in inspect.signature(type(norm)).parameters
    }
    return partial(type(norm), **keep)
