"""Options of optimizers and schedules as one text, such as `caution=true betas=[0.9, 0.95]`.

A level of a factor is one value, so the options of a recipe are one text too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_OPTION = re.compile(r"([A-Za-z_]\w*)=(\[[^\[\]]*\]|[^\s,\[\]]+)(?:[\s,]+|$)")


def parse_options(text: str) -> dict[str, Any]:
    """Returns the options of a text by name; a list becomes a tuple.

    Raises:
        ValueError: the text is not `NAME=VALUE NAME=VALUE ...`, or has a name twice.
    """
    options: dict[str, Any] = {}
    text = text.strip()
    start = 0
    while start < len(text):
        match = _OPTION.match(text, start)
        if match is None:
            raise ValueError(
                f"'{text[start:]}' is not NAME=VALUE, as in caution=true"
                " betas=[0.9,0.95]"
            )
        if match[1] in options:
            raise ValueError(f"'{match[1]}' is given twice")
        options[match[1]] = _value(match[2])
        start = match.end()
    return options


def options_text(options: Mapping[str, Any]) -> str:
    """Returns the text of options, in the order of their names."""
    return " ".join(
        f"{name}={_written(value)}" for name, value in sorted(options.items())
    )


def canonical_options(text: str) -> str:
    """Returns the same options in one spelling; a text that is none stays as it is."""
    try:
        return options_text(parse_options(text))
    except ValueError:
        return text


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        # As YAML writes it.
        words = {"True": True, "False": False, "None": None}
        return words.get(text, text)
    return tuple(value) if isinstance(value, list) else value


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_written, value))}]"
    return json.dumps(value)
