"""A space as Python declares it: a file, or an equal mapping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ablate.errors import AblateError
from ablate.records import Space, python_values
from ablate.space.load import load, read

DeclaredSpace: TypeAlias = str | Path | Mapping[str, Any]


def read_declared(declared: DeclaredSpace) -> tuple[Space, str]:
    """Returns a space and its file name, from a file or an equal mapping.

    Raises:
        AblateError: the space has mistakes, or a mapping has no name.
    """
    if not isinstance(declared, Mapping):
        return read(Path(declared)), str(declared)
    import yaml

    if "name" not in declared:
        raise AblateError("a space that is not a file needs a name: add the key `name`")
    name = str(declared["name"])
    text = yaml.safe_dump(python_values(declared), sort_keys=False, allow_unicode=True)
    return load(text, name), name
