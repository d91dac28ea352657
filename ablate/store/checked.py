"""Types of columns that check what they read.

What it guarantees: a value that is read from a table has the type that the table
declares, even in a store that somebody else has made. SQLite accepts any value in any
column. A wrong value is a `DamagedStore` that names the column.

How: each type wraps a type of SQLAlchemy of the same name, and checks the result after
SQLAlchemy has converted it. NULL passes: `store.structure` checks which columns may be
NULL.

What would break it: a query that reads a column as `text(...)`, which has no type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

import sqlalchemy
from sqlalchemy import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from ablate.errors import DamagedStore, shortened

Check = Callable[[Any], bool]
# Sums of integers pass too.
MOST_INTEGER = 2**53
# Characters of a text: more than the longest YAML document has.
MOST_TEXT = 10_000_000
# Characters of a name.
LONGEST_STRING = 2_000
# Times between these years can be shifted and shown in every time zone.
FIRST_YEAR = 1970
LAST_YEAR = 9000


class Checked(TypeDecorator[Any]):
    """Wraps a type of SQLAlchemy.

    Attributes:
        place: the column, for messages.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = sqlalchemy.Text
    cache_ok = True
    place = "a column"
    expected = ""

    def is_valid(self, value: Any) -> bool:
        """Whether a converted value has this type."""
        raise NotImplementedError

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], Any]:
        """Returns the function that converts and checks a value."""
        convert = self.impl_instance.result_processor(dialect, coltype)
        is_valid = self.is_valid

        def checked(value: Any) -> Any:
            if value is None:
                return None
            try:
                converted = value if convert is None else convert(value)
            except (ValueError, TypeError, RecursionError) as error:
                raise self.damage(value) from error
            # JSON has a null of its own.
            if not is_valid(converted):
                raise self.damage(value)
            return converted

        return checked

    def damage(self, value: Any) -> DamagedStore:
        """Returns the message for a wrong value."""
        # `repr` of a long value takes long.
        start = value[:200] if isinstance(value, str | bytes) else value
        return DamagedStore(
            f"{self.place} has the value {shortened(repr(start))}, which is not"
            f" {self.expected}"
        )


class Integer(Checked):
    """A whole number."""

    impl = sqlalchemy.Integer
    cache_ok = True
    expected = "a whole number of a possible size"

    def is_valid(self, value: Any) -> bool:
        return type(value) is int and abs(value) <= MOST_INTEGER


class BigInteger(Checked):
    """A whole number of up to 64 bits."""

    impl = sqlalchemy.BigInteger
    cache_ok = True
    expected = "a whole number"

    def is_valid(self, value: Any) -> bool:
        return type(value) is int


class Boolean(Checked):
    """True or false."""

    impl = sqlalchemy.Boolean
    cache_ok = True
    expected = "true or false"

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], Any]:
        """Returns the function that checks and converts a value.

        SQLAlchemy would convert any value.
        """

        def checked(value: Any) -> bool | None:
            if value is None:
                return None
            if value is True or value is False or value in (0, 1):
                return bool(value)
            raise self.damage(value)

        return checked


class Float(Checked):
    """A number.

    Args:
        finite: infinity is no value.
    """

    impl = sqlalchemy.Float
    cache_ok = True
    expected = "a number"

    def __init__(self, *, finite: bool = True) -> None:
        super().__init__()
        self.finite = finite
        if finite:
            self.expected = "a finite number"

    def is_valid(self, value: Any) -> bool:
        if type(value) is not float and type(value) is not int:
            return False
        return not self.finite or math.isfinite(value)


class String(Checked):
    """A text of limited length.

    Args:
        length: the most characters.
        among: all values that are allowed; empty: any text.
        form: a regular expression, for texts that become names of files; empty: any text.
    """

    impl = sqlalchemy.String
    cache_ok = True

    def __init__(
        self, length: int, among: Collection[str] = (), form: str = ""
    ) -> None:
        super().__init__(length)
        self.length = length
        self.among = tuple(among)
        self.form = form
        # SQLite does not enforce the length, so an older store may have longer texts.
        self.most = max(length, LONGEST_STRING)
        self.expected = f"a text of at most {self.most} characters"
        if among:
            self.expected = f"one of {', '.join(among)}"
        if form:
            self.expected = f"a name of the form {form}"

    def is_valid(self, value: Any) -> bool:
        if not isinstance(value, str) or len(value) > self.most:
            return False
        if self.form and not re.fullmatch(self.form, value):
            return False
        return not self.among or value in self.among


class Text(Checked):
    """A text.

    Args:
        most: the most characters.
    """

    impl = sqlalchemy.Text
    cache_ok = True

    def __init__(self, most: int = MOST_TEXT) -> None:
        super().__init__()
        self.most = most
        self.expected = f"a text of at most {most:,} characters"

    def is_valid(self, value: Any) -> bool:
        return isinstance(value, str) and len(value) <= self.most


class LargeBinary(Checked):
    """Bytes."""

    impl = sqlalchemy.LargeBinary
    cache_ok = True
    expected = "a sequence of bytes"

    def is_valid(self, value: Any) -> bool:
        return isinstance(value, bytes | bytearray | memoryview)


class DateTime(Checked):
    """A time."""

    impl = sqlalchemy.DateTime
    cache_ok = True
    expected = f"a time between {FIRST_YEAR} and {LAST_YEAR}"

    def is_valid(self, value: Any) -> bool:
        return isinstance(value, datetime) and FIRST_YEAR <= value.year <= LAST_YEAR


class JSON(Checked):
    """A value as JSON.

    Args:
        check: whether a value that is not null has the form that the column needs.
        expected: this form, for messages.
        none_as_null: None is stored as NULL, not as JSON's null.
    """

    impl = sqlalchemy.JSON
    cache_ok = True

    def __init__(
        self, check: Check, expected: str, *, none_as_null: bool = False
    ) -> None:
        super().__init__(none_as_null=none_as_null)
        self.check = check
        self.expected = expected
        self.none_as_null = none_as_null

    def is_valid(self, value: Any) -> bool:
        return self.check(value)
