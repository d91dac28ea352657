"""Backbones of users' files.

Nothing is known of their blocks, so factors of blocks are not defined on them. Their
own switches, the recipe and the factors `backbone` and `data.image_size` work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from ablate.errors import Infeasible
from ablate.factors.factor import BackbonePart, Dimensions
from ablate.families import timm_models
from ablate.families.family import Family
from ablate.families.places import Nowhere, no_blocks
from ablate.own import mistakes, registry
from ablate.records import Level

if TYPE_CHECKING:
    from torch import nn


def members() -> list[str]:
    return list(registry.of_kind("backbone"))


def dimensions(name: str) -> Dimensions:
    return Dimensions()


def image_size(name: str) -> int:
    return int(registry.of_kind("backbone")[name].image_size)


def create(
    name: str,
    image_size: int,
    channels: int,
    classes: int,
    numbers: Dimensions,
    **switches: Level,
) -> nn.Module:
    if numbers != Dimensions():
        raise Infeasible(f"sizes and drop rates cannot be changed on {name}")
    try:
        model: nn.Module = registry.of_kind("backbone")[name](
            image_size, channels, classes, **switches
        )
    except Infeasible:
        raise
    except Exception as error:
        pixels = f"images of {image_size} x {image_size} pixels"
        raise mistakes.refusal(f"{name} cannot be built for {pixels}", error) from error
    try:
        timm_models.refuse_unreadable(model, name, image_size, channels, classes)
    except Infeasible as error:
        reason = error.__cause__
        if not isinstance(reason, Exception):
            raise
        what = f"{name} cannot read images of {image_size} x {image_size} pixels"
        if isinstance(reason, RuntimeError):
            # A shape that does not fit.
            what += " (@ablate.backbone(image_size=N) declares for which it is made)"
        raise mistakes.refusal(what, reason) from reason
    return model


def family_like(name: str, base: Family) -> Family:
    """The family of one backbone whose blocks are as in another family."""

    def create_checked(backbone: str, *sizes: Any, **switches: Any) -> nn.Module:
        model = create(backbone, *sizes, **switches)
        try:
            base.blocks(model)
        except (AttributeError, TypeError) as error:
            raise Infeasible(
                f"{backbone} is not built like timm's networks of the family"
                f" {base.name}: {timm_models.first_line(error)}; leave like= out, or give"
                f" the modules of {backbone} the attribute names that timm uses"
            ) from error
        return model

    return replace(
        base,
        members=lambda: [name],
        dimensions=dimensions,
        image_size=image_size,
        create=create_checked,
        sizes=frozenset(),
        declared=False,
        rest=False,
        own=True,
        features=None,
    )


REASON = "ablate does not know the blocks of your own backbones"
FAMILY = Family(
    name="own",
    about="backbones of your own files",
    members=members,
    dimensions=dimensions,
    image_size=image_size,
    create=create,
    blocks=no_blocks,
    algebra=Nowhere,
    sizes=frozenset(),
    lacks=dict.fromkeys(get_args(BackbonePart), REASON),
    before_head="",
    last_norm="",
    own=True,
)
