"""What the families of timm's models share.

There are functions for names, for models without weights from which to read numbers,
and for creating models.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ablate.errors import Infeasible, shortened
from ablate.factors.factor import Dimensions

if TYPE_CHECKING:
    from torch import nn


@cache
def names(*modules: str) -> list[str]:
    """Returns the names of the models that these modules of timm define."""
    import timm

    models: list[str] = []
    for module in modules:
        models += timm.list_models(module=module)
    return models


@cache
def all_names() -> list[str]:
    """Returns the names of all models of timm, and of those that ablate adds."""
    import timm

    import ablate.backbones  # noqa: F401  (registers those that timm has not)

    models: list[str] = timm.list_models()
    return models


@cache
def tags(name: str) -> list[str]:
    """Returns the tags of the weights that timm publishes for a model."""
    import timm

    if not timm.is_model(name) or "." in name:
        return []
    published = timm.list_pretrained(f"{name}.*")
    return [model.removeprefix(f"{name}.") for model in published]


@cache
def unmodified(name: str) -> Any:
    """Returns the backbone of that name on the meta device, to read its numbers."""
    import timm
    import torch

    import ablate.backbones  # noqa: F401  (registers those that timm has not)

    with torch.device("meta"):
        return timm.create_model(name, pretrained=False)


def parameters(name: str) -> int:
    """Returns the number of parameters of the backbone of that name.

    It is 0 if timm cannot build it without memory.
    """
    try:
        return sum(weight.numel() for weight in unmodified(name).parameters())
    except Exception:
        # Each network raises its own type of error on the meta device.
        return 0


def image_size(name: str) -> int:
    """Returns the side of the input that the backbone was made for, in pixels."""
    side: int = unmodified(name).pretrained_cfg["input_size"][1]
    return side


def create(name: str, channels: int, classes: int, **arguments: Any) -> nn.Module:
    """Returns timm's model of that name."""
    import timm

    import ablate.backbones  # noqa: F401  (registers those that timm has not)

    model: nn.Module = timm.create_model(
        name, pretrained=False, in_chans=channels, num_classes=classes, **arguments
    )
    return model


def creator(
    *dropouts: str, attention: bool = True, takes_side: bool = True
) -> Callable[[str, int, int, int, Dimensions], nn.Module]:
    """Returns `create` of a family whose stride is 32 and whose sizes are fixed.

    Args:
        dropouts, attention: as for `rates`.
        takes_side: whether the model is built for an image side. If not, it gets the
            side as its attribute `image_side`.
    """

    def create_staged(
        name: str,
        image_size: int,
        channels: int,
        classes: int,
        dimensions: Dimensions,
    ) -> nn.Module:
        require_multiple(image_size, 32, name)
        arguments: dict[str, Any] = rates(dimensions, *dropouts, attention=attention)
        if takes_side:
            return create(name, channels, classes, img_size=image_size, **arguments)
        model: Any = create(name, channels, classes, **arguments)
        model.image_side = image_size
        staged: nn.Module = model
        return staged

    return create_staged


def plain_dimensions(patch_size: int, width: int, blocks: Any) -> Dimensions:
    """Returns the numbers of a backbone of alike blocks."""
    return Dimensions(
        patch_size=patch_size,
        width=width,
        depth=len(blocks),
        heads=blocks[0].attn.num_heads,
        mlp_ratio=blocks[0].mlp.fc1.out_features / width,
    )


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message; without one, its type."""
    lines = str(error).splitlines()
    return shortened(lines[0]) if lines else type(error).__name__


def refuse_unreadable(
    model: nn.Module, name: str, image_size: int, channels: int, classes: int
) -> None:
    """Raises Infeasible if a network cannot classify such images."""
    import torch

    image = torch.zeros(1, channels, image_size, image_size)
    was_training = model.training
    try:
        with torch.no_grad():
            logits = model.eval()(image)
    except Exception as error:
        # Each network raises its own type of error.
        raise Infeasible(
            f"{name} cannot read images of {image_size} x {image_size} pixels:"
            f" {first_line(error)}"
        ) from error
    finally:
        model.train(was_training)
    if not isinstance(logits, torch.Tensor) or logits.shape != (1, classes):
        raise Infeasible(f"{name} gives no logits of {classes} classes")


def rates(
    numbers: Dimensions, *dropouts: str, attention: bool = True
) -> dict[str, float]:
    """Returns timm's arguments for the drop rates.

    `dropouts` has the names of the arguments that mean dropout in this model.
    """
    arguments = {"drop_path_rate": numbers.drop_path} | dict.fromkeys(
        dropouts, numbers.dropout
    )
    return arguments | (
        {"attn_drop_rate": numbers.attention_dropout} if attention else {}
    )


def require_multiple(image_size: int, of: int, name: str) -> None:
    """Raises Infeasible unless the image side is a multiple of the total stride."""
    if image_size % of:
        raise Infeasible(
            f"{name} needs an image side that is a multiple of {of}; data.image_size is"
            f" {image_size}"
        )


def norm_like(norm: nn.Module) -> partial[nn.Module]:
    """Returns a factory of norms of the same class and epsilon."""
    kind = type(norm)
    if "eps" in inspect.signature(kind).parameters:
        return partial(kind, eps=norm.eps)
    return partial(kind)
