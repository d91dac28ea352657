"""What a network looks like inside. One file of this package is one diagnostic: its record `DIAGNOSTIC` is found there."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from ablate.diagnostics.diagnostic import Diagnostic
from ablate.errors import UnknownName, unknown

HELPERS = ("diagnostic", "observe")


@cache
def catalogue() -> Mapping[str, Diagnostic]:
    """Every diagnostic by name, in alphabetical order."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in HELPERS)
    found = (importlib.import_module(f"{__name__}.{name}").DIAGNOSTIC for name in modules)
    return {diagnostic.name: diagnostic for diagnostic in found}


def find(name: str) -> Diagnostic:
    """The diagnostic of that name. Raises UnknownName."""
    if name not in catalogue():
        raise UnknownName(unknown("diagnostic", name, catalogue()))
    return catalogue()[name]


def usual() -> tuple[str, ...]:
    """Those that cost little to take and to store: all but matrices and the semidefinite program."""
    return tuple(name for name, found in catalogue().items() if found.form != "matrix" and name != "lipschitz")


__all__ = ["Diagnostic", "catalogue", "find", "usual"]
