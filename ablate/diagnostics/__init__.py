"""What a network looks like inside.

One file of this package is one diagnostic: its record `DIAGNOSTIC` is found there.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Mapping
from functools import cache

from ablate.diagnostics.diagnostic import Diagnostic
from ablate.errors import DiagnosticError, UnknownName, unknown
from ablate.provenance import install_extra

HELPERS = ("diagnostic", "observe")


@cache
def catalogue() -> Mapping[str, Diagnostic]:
    """Every diagnostic by name, in alphabetical order."""
    modules = sorted(
        module.name
        for module in pkgutil.iter_modules(__path__)
        if module.name not in HELPERS
    )
    found = (
        importlib.import_module(f"{__name__}.{name}").DIAGNOSTIC for name in modules
    )
    return {diagnostic.name: diagnostic for diagnostic in found}


def find(name: str) -> Diagnostic:
    """The diagnostic of that name. Raises UnknownName."""
    if name not in catalogue():
        raise UnknownName(unknown("diagnostic", name, catalogue()))
    return catalogue()[name]


def require(names: Iterable[str]) -> None:
    """Raises DiagnosticError where a diagnostic needs a package that is not installed."""
    for name in names:
        package = find(name).requires
        if (
            package
            and package not in sys.modules
            and importlib.util.find_spec(package) is None
        ):
            raise DiagnosticError(
                f"the diagnostic {name} needs {package}: {install_extra('sdp')}"
            )


def usual() -> tuple[str, ...]:
    """Those that cost little to take and to store: all but matrices and the
    semidefinite program.
    """
    return tuple(
        name
        for name, found in catalogue().items()
        if found.form != "matrix" and name != "lipschitz"
    )


__all__ = ["Diagnostic", "catalogue", "find", "require", "usual"]
