"""Finds the plug-ins of a package: each module is one, without registration."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterable
from typing import Any


def parts(
    package: str, path: Iterable[str], attribute: str, helpers: Collection[str]
) -> dict[str, Any]:
    """The records that the modules of a package define, by their names.

    Args:
        package: the package's full name.
        path: the folders of the package.
        attribute: the name of the record in each module, such as `FACTOR`.
        helpers: modules that define none.

    Raises:
        ValueError: two modules hold a record of the same name.
    """
    records: dict[str, Any] = {}
    modules = sorted(pkgutil.iter_modules(path), key=lambda module: module.name)
    for module in modules:
        if module.name in helpers:
            continue
        part = getattr(importlib.import_module(f"{package}.{module.name}"), attribute)
        if part.name in records:
            raise ValueError(f"two files declare a {attribute.lower()} '{part.name}'")
        records[part.name] = part
    return records


def listed(package: str, attribute: str) -> list[Any]:
    """The records in the tuples of this name that modules of a package define.

    A module without such a tuple is left out. Modules whose names end in `_network`
    are not imported: they import what others import only when they need it.
    """
    imported_package = importlib.import_module(package)
    records: list[Any] = []
    modules = sorted(
        pkgutil.iter_modules(imported_package.__path__), key=lambda module: module.name
    )
    for module in modules:
        if module.name.endswith("_network"):
            continue
        imported = importlib.import_module(f"{package}.{module.name}")
        records += getattr(imported, attribute, ())
    return records
