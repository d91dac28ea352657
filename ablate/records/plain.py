"""A declared study as plain data, and back: the records themselves say how.

The metadata of a field tell what its type does not (`ablate.records.base`). So a new
field of a section is stored, read back and compared without another line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import (
    Any,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from ablate.records.base import DESCRIPTIVE, INLINE, key_of
from ablate.records.space import Space

T = TypeVar("T")


@dataclass(frozen=True)
class _Plain:
    """How a field of a record stands in plain data.

    Attributes:
        default: as plain data; None if the field has none.
        inner: the record that its value may be.
        convert: returns a JSON value as a value of the field's type; None: it is one.
    """

    name: str
    key: str
    kind: Any
    inline: bool
    descriptive: bool
    needed: bool
    default: Any
    inner: type | None
    convert: Callable[[Any], Any] | None


@cache
def _fields(record: type) -> tuple[_Plain, ...]:
    """Returns how the fields of a record stand in plain data."""
    hints = get_type_hints(record)
    plain = []
    for field in fields(record):
        kind = hints[field.name]
        inline = INLINE in field.metadata
        plain.append(
            _Plain(
                name=field.name,
                key=key_of(field),
                kind=kind,
                inline=inline,
                descriptive=DESCRIPTIVE in field.metadata,
                needed=field.default is MISSING and field.default_factory is MISSING,
                default=_default(field),
                inner=next(filter(_is_record, _members(kind)), None),
                convert=None if inline else _converter(kind),
            )
        )
    return tuple(plain)


def to_data(space: Space) -> dict[str, Any]:
    """Returns a space as JSON values, without its YAML text."""
    data = asdict(space)
    del data["document"]
    for section in _fields(Space):
        if section.inline:
            values = data.pop(section.name)
            for field in _fields(section.kind):
                data[field.key] = values[field.name]
    return data


def build(record: type[T], data: Mapping[str, Any]) -> T:
    """Returns the record that plain data describe.

    A field that the record does not have is ignored, and a missing one has its default.
    A value of a wrong type stays as it is.

    Raises TypeError if a field without a default is missing.
    """
    values: dict[str, Any] = {}
    of_record: type = record
    for field in _fields(of_record):
        if field.inline:
            values[field.name] = build(field.kind, data)
        elif field.key in data:
            value = data[field.key]
            values[field.name] = field.convert(value) if field.convert else value
    return record(**values)


def decisive(record: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of plain data that decides the results.

    A field that the data lack has its default, because an older version stored them: a
    new field changes nothing.
    """
    values: dict[str, Any] = {}
    for field in _fields(record):
        if field.descriptive:
            continue
        if field.inline:
            values |= decisive(field.kind, data)
            continue
        value = data.get(field.key, field.default)
        if field.inner is not None and isinstance(value, Mapping):
            value = decisive(field.inner, value)
        values[field.key] = value
    return values


def _converter(kind: Any) -> Callable[[Any], Any] | None:
    """Returns what makes a value of a type from a JSON value; None: nothing is to do."""
    records = list(filter(_is_record, _members(kind)))
    arguments = {get_origin(member): get_args(member) for member in _members(kind)}
    if not records and not arguments.keys() & {tuple, Mapping}:
        return None
    of_item = _converter(arguments[tuple][0]) if tuple in arguments else None
    of_value = _converter(arguments[Mapping][1]) if Mapping in arguments else None

    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            for record in records:
                needed = {field.key for field in _fields(record) if field.needed}
                if needed <= value.keys():
                    return build(record, value)
            if of_value is not None:
                return {key: of_value(item) for key, item in value.items()}
        # JSON has lists only; the fields of records are tuples.
        elif isinstance(value, list | tuple) and tuple in arguments:
            return tuple(map(of_item, value) if of_item is not None else value)
        return value

    return convert


def _members(kind: Any) -> tuple[Any, ...]:
    """Returns the types of a union; otherwise the type itself."""
    if get_origin(kind) in (Union, UnionType):
        return get_args(kind)
    return (kind,)


def _is_record(kind: Any) -> TypeGuard[type]:
    return isinstance(kind, type) and is_dataclass(kind)


def _default(field: Field[Any]) -> Any:
    """Returns the default of a field as plain data; None if it has none."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    if field.default is MISSING:
        return None
    if isinstance(field.default, tuple):
        return list(field.default)
    return field.default
