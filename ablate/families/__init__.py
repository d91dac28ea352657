"""Where factors attach. One file of this package is one family of backbones: its record `FAMILY` is found by being there."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import fields
from functools import cache

from ablate import factors
from ablate.errors import UnknownName, unknown
from ablate.factors.factor import Dimensions
from ablate.families.family import Family
from ablate.records import Architecture, Settings


@cache
def families() -> Mapping[str, Family]:
    """Every family by name."""
    helpers = ("family", "timm_models")
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in helpers)
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
    known = [name for family in families().values() for name in family.members()]
    known += [family.name for family in families().values() if family.declared]
    nearest = unknown("backbone", backbone, known)
    if "did you mean" not in nearest:
        nearest = (
            f"unknown backbone '{backbone}'; known are the models of the families {', '.join(families())}; "
            "`ablate backbones` lists them"
        )
    raise UnknownName(nearest)


def resolve(backbone: str, image_size: int, channels: int, classes: int, settings: Settings) -> Architecture:
    """The canonical architecture: a size that is the backbone's own, and whatever the model does not read, is left out.

    Raises:
        UnknownName: no such backbone.
        Infeasible: the backbone is none that factors can attach to.
    """
    own = find(backbone).dimensions(backbone)
    sizes = {f"size.{f.name}": getattr(own, f.name) for f in fields(Dimensions)}
    kept = {name: level for name, level in factors.canonical(settings).items() if name not in sizes or sizes[name] != level}
    return Architecture(backbone, image_size, channels, classes, kept)


__all__ = ["Family", "families", "find", "resolve"]
