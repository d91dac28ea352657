"""Every classification model of timm that belongs to no other family.

Nothing is known of its blocks, so factors of blocks are not defined on it. The recipe,
the drop rates that the model accepts, and the factors `backbone`, `pretrained` and
`data.image_size` work.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

from ablate.errors import Infeasible
from ablate.factors.factor import BackbonePart, Dimensions
from ablate.families import timm_models
from ablate.families.family import Family, factor_of
from ablate.families.places import Nowhere, no_blocks

if TYPE_CHECKING:
    from torch import nn

# The side of images if timm does not say what the model was made for.
DEFAULT_SIDE = 224
# timm's arguments for the dimensions that factors may change.
ARGUMENTS = {"drop_path": "drop_path_rate", "head_dropout": "drop_rate"}


def dimensions(name: str) -> Dimensions:
    return Dimensions()


def image_size(name: str) -> int:
    import timm

    config = timm.get_pretrained_cfg(name)
    return config.input_size[1] if config is not None else DEFAULT_SIDE


def create(
    name: str, image_size: int, channels: int, classes: int, numbers: Dimensions
) -> nn.Module:
    # A rate of 0 is passed too: some models of timm have other defaults.
    arguments: dict[str, Any] = {"img_size": image_size}
    for dimension, argument in ARGUMENTS.items():
        arguments[argument] = getattr(numbers, dimension)
    try:
        model = _create(name, channels, classes, arguments)
    except Infeasible:
        raise
    except Exception as error:
        # Each network raises its own type of error if the side does not suit it.
        raise Infeasible(
            f"{name} cannot be built for images of {image_size} x {image_size} pixels:"
            f" {timm_models.first_line(error)}"
        ) from error
    timm_models.refuse_unreadable(model, name, image_size, channels, classes)
    return model


def _create(
    name: str, channels: int, classes: int, arguments: dict[str, Any]
) -> nn.Module:
    """Returns the model, without those arguments that it does not have.

    Raises:
        Infeasible: it does not have a rate that is not 0.
    """
    while True:
        try:
            return timm_models.create(name, channels, classes, **arguments)
        except TypeError as error:
            refused = _refused(error) & arguments.keys()
            if not refused:
                raise
        for dimension, argument in ARGUMENTS.items():
            if argument in refused and arguments[argument]:
                raise Infeasible(f"{factor_of(dimension)} cannot be changed on {name}")
        arguments = {
            key: value for key, value in arguments.items() if key not in refused
        }


def _refused(error: TypeError) -> set[str]:
    """Returns the arguments that a model does not have; empty for another error.

    Python and timm word the message differently.
    """
    match = re.search(r"unexpected keyword argument(?:\(s\): )?(.*)", str(error))
    return set(re.findall(r"'(\w+)'", match[1])) if match else set()


REASON = "ablate does not know the blocks of timm's other models"
FAMILY = Family(
    name="timm",
    about="every other classification model of timm",
    members=timm_models.all_names,
    dimensions=dimensions,
    image_size=image_size,
    create=create,
    blocks=no_blocks,
    algebra=Nowhere,
    sizes=frozenset(ARGUMENTS),
    lacks=dict.fromkeys(get_args(BackbonePart), REASON),
    before_head="",
    last_norm="",
    rest=True,
)
