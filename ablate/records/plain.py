"""A declared study as plain data, and back: the records themselves say how.

The metadata of a field tell what its type does not (`ablate.records.base`). So a new
field of a section is stored, read back and compared without another line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import (
    Annotated,
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


def to_data(space: Space) -> dict[str, Any]:
    """Returns a space as JSON values, without its YAML text."""
    data = asdict(space)
    del data["document"]
    for section in fields(Space):
        if INLINE in section.metadata:
            values = data.pop(section.name)
            for field in fields(_type_of(Space, section)):
                data[key_of(field)] = values[field.name]
    return data


def build(record: type[T], data: Mapping[str, Any]) -> T:
    """Returns the record that plain data describe.

    A field that the record does not have is ignored, and a missing one has its default.
    A value of a wrong type stays as it is.

    Raises TypeError if a field without a default is missing.
    """
    values: dict[str, Any] = {}
    for field in fields(record):  # type: ignore[arg-type]
        kind = _type_of(record, field)
        if INLINE in field.metadata:
            values[field.name] = build(kind, data)
        elif key_of(field) in data:
            values[field.name] = _value(kind, data[key_of(field)])
    return record(**values)


def decisive(record: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of plain data that decides the results.

    A field that the data lack has its default, because an older version stored them: a
    new field changes nothing.
    """
    values: dict[str, Any] = {}
    for field in fields(record):
        kind = _type_of(record, field)
        if DESCRIPTIVE in field.metadata:
            continue
        if INLINE in field.metadata:
            values |= decisive(kind, data)
            continue
        value = data.get(key_of(field), _default(field))
        inner = next(filter(_is_record, _members(kind)), None)
        if inner is not None and isinstance(value, Mapping):
            value = decisive(inner, value)
        values[key_of(field)] = value
    return values


def _value(kind: Any, value: Any) -> Any:
    """Returns a JSON value as a value of a field's type."""
    for member in _members(kind):
        if isinstance(value, Mapping):
            if _is_record(member) and _needed(member) <= value.keys():
                return build(member, value)
            if get_origin(member) is Mapping:
                inner = get_args(member)[1]
                return {key: _value(inner, item) for key, item in value.items()}
        # JSON has lists only; the fields of records are tuples.
        elif isinstance(value, list | tuple) and get_origin(member) is tuple:
            return tuple(_value(get_args(member)[0], item) for item in value)
    return value


def _members(kind: Any) -> tuple[Any, ...]:
    """Returns the types of a union; otherwise the type itself."""
    if get_origin(kind) in (Union, UnionType):
        return get_args(kind)
    return (kind,)


def _is_record(kind: Any) -> TypeGuard[type]:
    return isinstance(kind, type) and is_dataclass(kind)


def _needed(record: type) -> set[str]:
    """Returns the keys of the fields that have no default."""
    return {
        key_of(field)
        for field in fields(record)
        if field.default is MISSING and field.default_factory is MISSING
    }


def _default(field: Field[Any]) -> Any:
    """Returns the default of a field as plain data; None if it has none."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    if field.default is MISSING:
        return None
    if isinstance(field.default, tuple):
        return list(field.default)
    return field.default


def _type_of(record: type, field: Field[Any]) -> Any:
    """Returns the type of a field, without the bounds of its values."""
    kind = _hints(record)[field.name]
    if get_origin(kind) is Annotated:
        return get_args(kind)[0]
    return kind


@cache
def _hints(record: type) -> dict[str, Any]:
    return get_type_hints(record, include_extras=True)
