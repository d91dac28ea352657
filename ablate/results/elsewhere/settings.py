"""What files beside the metrics of a run declare: YAML and JSON of any tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ablate.errors import AblateError, shortened
from ablate.readers.words import SETTING_FILES
from ablate.text.document import TooLarge, node_of

# The most settings of a run, and the most bytes of a file with settings.
MOST_SETTINGS = 1_000
MOST_BYTES = 1_000_000
# The most values that are looked at. Those of an alias count at each of its uses.
MOST_VALUES = 20_000
# Settings that are nested deeper are not read.
DEEPEST = 4
# The longest text that can be a level.
LONGEST = 2_000


def settings_beside(folder: Path) -> dict[str, Any]:
    """Returns what the files of a folder declare; the first file that names a setting counts.

    A name with dots and one without may mean the same, such as `model.norm` and `norm`:
    that with dots is left out if the files give both the same value.

    Raises:
        AblateError: a file is damaged, or has too many settings.
    """
    settings: dict[str, Any] = {}
    for name in SETTING_FILES:
        file = folder / name
        if file.is_file():
            settings = {**_settings_of(file), **settings}
    for name, value in list(settings.items()):
        last = name.rpartition(".")[2]
        if last != name and settings.get(last, _NOTHING) == value:
            del settings[name]
    return settings


_NOTHING = object()


def _settings_of(file: Path) -> dict[str, Any]:
    if file.stat().st_size > MOST_BYTES:
        raise AblateError(
            f"{file} has more than {MOST_BYTES:,} bytes; settings are shorter"
        )
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        # JSON is YAML, too.
        root = node_of(text)
        settings = dict(_Walk().settings(root))
    except TooLarge as error:
        raise AblateError(f"{file} cannot be read: {error.text}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = shortened(" ".join(str(error).split()), 200)
        raise AblateError(f"{file} cannot be read: {said}") from None
    if len(settings) > MOST_SETTINGS:
        raise AblateError(f"{file} has more than {MOST_SETTINGS:,} settings")
    return settings


class _Walk:
    """Reads settings from nodes. Nothing is made of tags, so none can run code."""

    def __init__(self) -> None:
        self._seen = 0

    def settings(
        self, node: yaml.Node | None, prefix: str = "", depth: int = 0
    ) -> Iterator[tuple[str, Any]]:
        """Yields nested settings by dotted names."""
        for key, value in self._pairs(node):
            name = f"{prefix}{key.value}"
            if key.value == "<<" and isinstance(key, yaml.ScalarNode):
                # Settings that are merged; those of the mapping itself come later.
                merged = (
                    value.value if isinstance(value, yaml.SequenceNode) else [value]
                )
                for each in merged:
                    yield from self.settings(each, prefix, depth + 1)
            elif isinstance(value, yaml.MappingNode) and depth < DEEPEST:
                wrapped = _wrapped(value)
                if wrapped is None:
                    yield from self.settings(value, f"{name}.", depth + 1)
                elif isinstance(wrapped, yaml.MappingNode):
                    yield from self.settings(wrapped, f"{name}.", depth + 1)
                else:
                    yield from self._plain(name, wrapped)
            else:
                yield from self._plain(name, value)

    def _pairs(self, node: yaml.Node | None) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            return
        first = [pair for pair in node.value if pair[0].value == "<<"]
        for pair in (*first, *(pair for pair in node.value if pair[0].value != "<<")):
            self._count()
            yield pair

    def _count(self) -> None:
        self._seen += 1
        if self._seen > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values")

    def _plain(self, name: str, node: yaml.Node) -> Iterator[tuple[str, Any]]:
        if isinstance(node, yaml.ScalarNode):
            yield name, _value(node)
        elif isinstance(node, yaml.SequenceNode):
            items = node.value
            for _ in items:
                self._count()
            if all(isinstance(item, yaml.ScalarNode) for item in items):
                yield name, str([_value(item) for item in items])[:LONGEST]


def _wrapped(node: yaml.MappingNode) -> yaml.Node | None:
    """Returns the value of `{value: 0.1, desc: null}`, as Weights & Biases writes it."""
    keys = {str(key.value): value for key, value in node.value}
    return keys.get("value") if set(keys) <= {"value", "desc"} else None


def _value(node: yaml.ScalarNode) -> Any:
    """Returns a scalar as a number or truth value where it is one, otherwise as text."""
    text = str(node.value)
    kind = node.tag.rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind in ("int", "float") and len(text) <= 40:
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            return text
    return text[:LONGEST]
