"""YAML text to plain values, remembering the line of each.

YAML 1.2: only `true` and `false` are booleans, and `1e-3` is a number. Nothing that is read can run code: nodes are composed
with PyYAML's safe loader and turned into plain values here; tags are refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from ablate.errors import Problem, SpaceError, did_you_mean

Where = tuple[str | int, ...]

MOST_BYTES = 1_000_000
MOST_VALUES = 20_000
MOST_DEPTH = 30


class _Yaml12(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.0123456789")),
):
    _Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


@dataclass
class Document:
    """A parsed document: its values, and the line of each by its place, as in `("factors", "drop.path", 1)`."""

    file: str
    text: str
    values: dict[str, Any]
    lines: dict[Where, int] = field(default_factory=dict)

    def line(self, where: Where) -> int:
        """The line of a value, or of the nearest thing around it that has one."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, 1)

    def problem(self, where: Where, text: str) -> Problem:
        return Problem(self.file, self.line(where), text)


def parse(text: str, file: str) -> Document:
    """Parses one YAML document.

    Raises:
        SpaceError: it is not one mapping of YAML 1.2 with plain values, or is absurdly large.
    """

    def refuse(line: int, message: str) -> SpaceError:
        return SpaceError([Problem(file, line, message)])

    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise refuse(1, f"the document is larger than {MOST_BYTES:,} bytes")
    try:
        loader = _Yaml12(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        # What was never closed is found at the end, but stands where it was opened.
        unclosed = error.context_mark is not None and any(word in str(error.context) for word in ("flow", "quoted"))
        mark = error.context_mark if unclosed else error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise refuse(mark.line + 1 if mark else 1, f"not valid YAML: {what}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise refuse(1, f"not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise refuse(1, "not valid YAML: nested too deeply") from None
    if root is None:
        raise refuse(1, "the document is empty; a space needs at least question, backbone and factors")
    if not isinstance(root, yaml.MappingNode):
        raise refuse(root.start_mark.line + 1, "a space is a mapping of keys to values, as in `question: ...`")
    document = Document(file, text, {})
    document.values = _Reader(document).read(root, ())
    return document


class _Reader:
    """Nodes to plain values."""

    def __init__(self, document: Document) -> None:
        self._document, self._values = document, 0

    def read(self, node: yaml.Node, where: Where) -> Any:
        line = node.start_mark.line + 1
        self._document.lines.setdefault(where, line)
        self._values += 1
        if self._values > MOST_VALUES or len(where) > MOST_DEPTH:
            raise SpaceError([Problem(self._document.file, line, "the document is too large or refers to itself")])
        if isinstance(node, yaml.MappingNode) and node.tag.endswith(":map"):
            return self._mapping(node, where)
        if isinstance(node, yaml.SequenceNode) and node.tag.endswith(":seq"):
            return [self.read(item, (*where, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        raise SpaceError([Problem(self._document.file, line, f"the tag {node.tag} is not allowed")])

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node, line) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise SpaceError(
                    [Problem(self._document.file, line, f"a key must be text, found {getattr(key_node, 'value', key_node)!r}")]
                )
            if key in found:
                raise SpaceError([Problem(self._document.file, line, f"the key '{key}' stands twice")])
            self._document.lines[(*where, key)] = line
            found[key] = self.read(value_node, (*where, key))
        return found

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Any:
        tag, text = node.tag.rpartition(":")[2], str(node.value)
        if not node.tag.startswith("tag:yaml.org,2002:") or tag not in ("null", "bool", "int", "float", "str"):
            raise SpaceError([Problem(self._document.file, line, f"the tag {node.tag} is not allowed")])
        try:
            return _plain(tag, text)
        except (ValueError, KeyError):
            raise SpaceError([Problem(self._document.file, line, f"'{text}' is no finite {tag}")]) from None


def _plain(tag: str, text: str) -> bool | int | float | str | None:
    if tag == "null":
        return None
    if tag == "bool":
        return {"true": True, "false": False}[text.lower()]
    if tag == "int":
        if len(text) > 18:
            raise ValueError(text)
        return int(text)
    if tag == "float":
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(text)
        return number
    return text


def unknown_key(found: str, known: list[str]) -> str:
    """The message for a key that a mapping does not have."""
    hint = did_you_mean(found, known)
    return f"unknown key '{found}'" + (hint or f"; known: {', '.join(known)}")
