"""Where factors attach. One file of this package is one family: its record `FAMILY` is found by being there."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from ablate.backbones.family import Family
from ablate.errors import UnknownName, unknown


@cache
def families() -> Mapping[str, Family]:
    """Every family by name."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "family")
    found = (importlib.import_module(f"{__name__}.{name}").FAMILY for name in modules)
    return {family.name: family for family in found}


@cache
def find(backbone: str) -> Family:
    """The family that a backbone's name belongs to.

    Raises:
        UnknownName: no family has it; the message names the nearest.
    """
    for family in families().values():
        if backbone == family.name or backbone in family.members():
            return family
    known = [name for family in families().values() for name in [family.name, *family.members()]]
    nearest = unknown("backbone", backbone, known)
    if "did you mean" not in nearest:
        nearest = (
            f"unknown backbone '{backbone}'; known: timm's ViT and DeiT models by name, and the families {', '.join(families())}"
        )
    raise UnknownName(nearest)


__all__ = ["Family", "families", "find"]
