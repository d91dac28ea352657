"""The parts that a recipe names: built-in ones, or those of users' files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ablate.own import registry
from ablate.parts import own_part
from ablate.records import ADAMS, LOSSES, NO_AUGMENTATION, SCHEDULES

# Before the name of an optimizer of timm: slow weights follow it (Zhang et al. 2019).
LOOKAHEAD = "lookahead_"
# The fields of a recipe that name a part, which may be one of a user's file.
NAMING = ("loss", "optimizer", "schedule", "augmentation")


def named_part(field: str, name: str) -> Any | None:
    """The user's part that a field of a recipe names; None if it is built in.

    Args:
        field: one of NAMING.

    Raises:
        UnknownName: it is neither built in nor in a loaded file.
        AblateError: a user's part has a built-in name.
    """
    if field == "optimizer" and name in (*ADAMS, "sgd") and not registry.of_kind(field):
        return None
    built_in = _built_in(field)
    registry.besides(field, built_in)
    if _is_built_in(field, name):
        return None
    return own_part(field, name, built_in)


def is_part(field: str, name: str) -> bool:
    """Whether a name of a field is built in, or declared by a loaded file."""
    if field == "optimizer" and name in (*ADAMS, "sgd"):
        return True
    return name in registry.of_kind(field) or _is_built_in(field, name)


def _is_built_in(field: str, name: str) -> bool:
    if field == "optimizer":
        # timm wraps any optimizer of its own.
        name = name.removeprefix(LOOKAHEAD)
    return name in _built_in(field)


@cache
def _built_in(field: str) -> Sequence[str]:
    if field == "optimizer":
        # Imports torch and timm, which most plans need not.
        from timm.optim import list_optimizers

        return tuple(list_optimizers())
    return {
        "loss": LOSSES,
        "schedule": SCHEDULES,
        "augmentation": (NO_AUGMENTATION,),
    }[field]


# What timm's optimizers call it that weight decay is no part of the gradient.
DECOUPLED = ("decoupled", "decoupled_decay", "decoupled_weight_decay", "adam_w_mode")


def decoupled(optimizer: str) -> str:
    """Returns the optimizer of timm that is like this one and decouples weight decay.

    Empty if there is none. Adaptive steps make the decay of the others far too strong or
    too weak (Loshchilov and Hutter 2019): with a decay of 0.05, `adopt` learns nothing.
    """
    if optimizer in (*ADAMS, "sgd", "momentum", "nesterov"):
        return ""
    from timm.optim import get_optimizer_info, list_optimizers

    other = f"{optimizer}w"
    if other not in list_optimizers():
        return ""
    defaults = get_optimizer_info(other).defaults or {}
    is_one = optimizer in ("adam", "nadam") or any(map(defaults.get, DECOUPLED))
    return other if is_one else ""
