"""Where factors attach. One file of this package is one family of backbones: its record `FAMILY` is found by being there."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from ablate.errors import UnknownName, unknown
from ablate.families.family import Family


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


__all__ = ["Family", "families", "find"]
