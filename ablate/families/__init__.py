"""Where factors attach.

One file of this package is one family of backbones: its record `FAMILY` is found by
being there.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import fields
from functools import cache

from ablate import factors
from ablate.errors import UnknownName, shortened, unknown
from ablate.factors.factor import Dimensions
from ablate.families.family import Family
from ablate.records import Architecture, Settings


@cache
def families() -> Mapping[str, Family]:
    """Every family by name."""
    helpers = ("family", "timm_models")
    modules = sorted(
        module.name
        for module in pkgutil.iter_modules(__path__)
        if module.name not in helpers
    )
    found = (importlib.import_module(f"{__name__}.{name}").FAMILY for name in modules)
    return {family.name: family for family in found}


@cache
def find(backbone: str) -> Family:
    """The family that a backbone's name belongs to.

    Raises:
        UnknownName: no family has it; the message names the nearest.
    """
    declared = families().get(backbone)
    if declared is not None and declared.declared:
        return declared
    for family in families().values():
        if backbone in family.members():
            return family
    raise UnknownName(unknown_backbone(backbone))


def is_known(backbone: str) -> bool:
    """Whether any family has a backbone of that name."""
    return backbone in _names()


@cache
def _names() -> frozenset[str]:
    declared = {family.name for family in families().values() if family.declared}
    return frozenset(
        declared.union(*(family.members() for family in families().values()))
    )


def unknown_backbone(name: str) -> str:
    """The message for a backbone that no family has: the nearest known one if there is
    one, else the families.
    """
    nearest = unknown("backbone", name, sorted(_names()))
    if "did you mean" in nearest:
        return nearest
    return (
        f"unknown backbone '{shortened(name)}'; known are the models of the families"
        f" {', '.join(families())}; `ablate backbones` lists them"
    )


def resolve(
    backbone: str, image_size: int, channels: int, classes: int, settings: Settings
) -> Architecture:
    """The canonical architecture: a size that is the backbone's own, and whatever the
    model does not read, is left out.

    Raises:
        UnknownName: no such backbone.
        Infeasible: the backbone is none that factors can attach to.
    """
    own = find(backbone).dimensions(backbone)
    sizes = {f"size.{f.name}": getattr(own, f.name) for f in fields(Dimensions)}
    kept = {
        name: level
        for name, level in factors.canonical(settings).items()
        if name not in sizes or sizes[name] != level
    }
    return Architecture(
        backbone=backbone,
        image_size=image_size,
        channels=channels,
        classes=classes,
        settings=kept,
    )


__all__ = ["Family", "families", "find", "is_known", "resolve", "unknown_backbone"]
