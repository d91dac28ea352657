"""Levels that are typed beside their names, such as `norm=rms,depth=2`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ablate.errors import AblateError, SpaceError, shortened
from ablate.records.base import Level, level_text
from ablate.text.document import parse


def parts_of(text: str) -> list[str]:
    """Returns the parts of `norm=rms,depth=2`."""
    # A level may have a comma, but what follows the comma between two levels has a `=`.
    return re.split(r",(?=[^,=]+=)", text)


def pairs_of(parts: Iterable[str], what: str) -> dict[str, str]:
    """Returns names with the texts of their levels.

    Args:
        parts: each is a name and a level, with `=` between them.
        what: where they stand, for messages.

    Raises:
        AblateError: a part is something else, or a name is there twice.
    """
    pairs: dict[str, str] = {}
    for part in parts:
        name, sign, level = (each.strip() for each in part.partition("="))
        if not sign or not name:
            raise AblateError(
                f"{what} {shortened(part)}: write a name and its level, as in norm=layer"
            )
        if name in pairs:
            raise AblateError(
                f"{what} {shortened(name)} has two levels; write one of them"
            )
        pairs[name] = level
    return pairs


def levels_of(parts: Iterable[str], what: str) -> dict[str, Level]:
    """Returns levels by name; a level is what it would be in a space.

    Args, Raises: as for `pairs_of`.
    """
    levels: dict[str, Level] = {}
    for name, text in pairs_of(parts, what).items():
        level: Any = None
        # Of several lines, the others would be keys of their own.
        with contextlib.suppress(SpaceError):
            if text.isprintable():
                level = parse(f"level: {text}", what).values.get("level")
        if not isinstance(level, bool | int | float | str):
            raise AblateError(
                f"{what} {shortened(f'{name}={text}')}: a level is a number, a word, true"
                " or false, as in recipe.lr=0.1"
            )
        levels[name] = level
    return levels


def text_of(levels: Mapping[str, Level]) -> str:
    """Returns levels as they are typed."""
    return ",".join(f"{name}={level_text(level)}" for name, level in levels.items())
