"""Measurements inside a network.

Each file of this package is one diagnostic. It is found through its record
`DIAGNOSTIC`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from functools import cache

from ablate.diagnostics.diagnostic import Diagnostic
from ablate.errors import DiagnosticError, UnknownName, unknown
from ablate.machine.provenance import install_extra
from ablate.own import discovery, registry

HELPERS = ("diagnostic", "observe")


@cache
def _built_in() -> Mapping[str, Diagnostic]:
    return discovery.parts(__name__, __path__, "DIAGNOSTIC", HELPERS)


@registry.cached
def catalogue() -> Mapping[str, Diagnostic]:
    """Returns every diagnostic by name: the built-in ones, then those of the user.

    Raises:
        AblateError: a user's diagnostic has the name of another one.
    """
    return {**_built_in(), **registry.besides("diagnostic", _built_in())}


def find(name: str) -> Diagnostic:
    """Returns the diagnostic of that name. Raises UnknownName."""
    if name not in catalogue():
        raise UnknownName(unknown("diagnostic", name, catalogue()))
    return catalogue()[name]


def require(names: Iterable[str]) -> None:
    """Raises DiagnosticError if a diagnostic needs a package that is not installed."""
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
    """Returns the diagnostics that are cheap to take and to store.

    These are all but matrices and the semidefinite program.
    """
    return tuple(
        name
        for name, diagnostic in catalogue().items()
        if diagnostic.form != "matrix" and name != "lipschitz"
    )


__all__ = ["Diagnostic", "catalogue", "find", "require", "usual"]
