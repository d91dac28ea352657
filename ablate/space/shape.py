"""A document of the wrong shape: what pydantic found, in our words and with the line."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import partial
from typing import Any

from pydantic import ValidationError

from ablate.errors import Problem, did_you_mean, shortened
from ablate.space.schema import AcrossForm, RangeForm, SpaceForm, TuneForm
from ablate.text.document import Document, Where, unknown_key


def shape_problems(document: Document, error: ValidationError) -> list[Problem]:
    """One problem per place in the document."""
    return [
        _shape_problem(document, details)
        for details in _one_a_place(
            error.errors(include_url=False, include_context=True)
        )
    ]


# What the discriminators of the forms add to a location.
TAGS = (
    "<short>",
    "<full>",
    "<list>",
    "<range>",
    "<flag>",
    "<until>",
    "<count>",
    "<row>",
)


def _one_a_place(errors: list[Any]) -> list[Any]:
    """A level that is of none of the four types is one mistake, not four."""
    kept: dict[tuple[Any, ...], Any] = {}
    for details in errors:
        *where, last = details["loc"]
        # pydantic adds the type that it tried to the location.
        if last in ("int", "float") and where[-1] in ("low", "high"):
            details = {
                **details,
                "loc": tuple(where),
                "type": "number_type",
                "msg": "Input should be a number",
            }
        elif last in ("bool", "int", "float", "str"):
            details = {
                **details,
                "loc": tuple(where),
                "type": "level_type",
                "msg": "Input should be a number, a word, true or false",
            }
        kept.setdefault((details["loc"], details["type"]), details)
    return list(kept.values())


def _shape_problem(document: Document, details: Any) -> Problem:
    """Pydantic's finding in our words."""
    where: Where = tuple(part for part in details["loc"] if part not in TAGS)
    # pydantic adds types of a union to the location too, so parts that are no place in
    # the document are removed. A missing key is no place, but the message needs it.
    while where and where not in document.lines and details["type"] != "missing":
        where = where[:-1]
    kind = details["type"]
    value = details["input"]
    path = ".".join(map(str, where))
    if kind == "extra_forbidden":
        return document.problem(where, partial(_unknown_key, document, where))
    if kind == "missing":
        inside = f" in {'.'.join(map(str, where[:-1]))}" if where[:-1] else ""
        return document.problem(where, f"missing key '{where[-1]}'{inside}")
    if kind == "literal_error":
        return document.problem(
            where, partial(_not_allowed, path, value, details["ctx"]["expected"])
        )
    if (
        where[:1] == ("factors",)
        and len(where) == 2
        and kind == "list_type"
        and _is_level(value)
    ):
        return document.problem(where, _no_list(str(where[1]), value))
    if where[:1] == ("tune",) and len(where) == 2 and kind == "list_type":
        return document.problem(where, _no_levels(str(where[1]), value))
    message = details["msg"].removeprefix("Input ").replace("should be", "must be")
    # The name of a class of ours says nothing to a reader.
    message = re.sub(r" or instance of \w+", "", message)
    if isinstance(value, str) and kind.endswith("_type") and value.strip() == "":
        message += " (found an empty text)"
    return document.problem(
        where,
        f"{path}: {message[:1].lower() + message[1:]}, found {shortened(repr(value))}",
    )


def _is_level(value: object) -> bool:
    return isinstance(value, str | int | float)


def _no_list(factor: str, value: object) -> str:
    """The message for a factor that has one level instead of a list."""
    shown = shortened(str(value))
    section, _, key = factor.partition(".")
    if section in ("recipe", "data"):
        everywhere = f"{section}: {{{key}: {shown}}}"
    elif section in ("backbone", "pretrained"):
        everywhere = f"{section}: {shown}"
    else:
        everywhere = f"fixed: {{{factor}: {shown}}}"
    return (
        f"factors.{factor}: must be a list of levels, the baseline first, found"
        f" {shortened(repr(value))}; write `{factor}: [..., {shown}]`, or, to give all"
        f" cells this level, `{everywhere}`"
    )


def _no_levels(name: str, value: object) -> str:
    """The message for a hyperparameter that has neither a list nor a range."""
    own = list(TuneForm.model_fields)
    # A name with a section is no misspelt key.
    meant = "" if "." in name else did_you_mean(name, own)
    return (
        f"tune.{name}: must be a list of levels, or a range such as {{low: 3e-4, high:"
        f" 1e-2, scale: log}}, found {shortened(repr(value))}; other keys of tune:"
        f" {', '.join(own)}{meant}"
    )


def _unknown_key(document: Document, where: Where) -> str:
    """The message for a key that the form at its place does not have."""
    beside = {
        str(line_key[-1])
        for line_key in document.lines
        if line_key[:-1] == where[:-1] and line_key not in ((), where)
    }
    return unknown_key(str(where[-1]), _keys_of(where[:-1], beside))


def _not_allowed(path: str, value: object, expected: str) -> str:
    """The message for a word that is none of those expected."""
    allowed = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    return (
        f"{path}: {shortened(repr(value))} is not allowed; allowed:"
        f" {', '.join(allowed)}{did_you_mean(value, allowed)}"
    )


def _keys_of(where: Where, given: Set[str]) -> list[str]:
    """The keys that a mapping of the document may have.

    Args:
        given: the keys that it has. Of several forms, the one with most of them counts.
    """
    model: Any = SpaceForm
    for part in where:
        if model in (TuneForm, AcrossForm) and part not in TuneForm.model_fields:
            # A hyperparameter: a mapping is its range.
            model = RangeForm
            continue
        if part not in getattr(model, "model_fields", {}):
            # A key of a mapping, or a place in a list.
            continue
        annotation = model.model_fields[part].annotation
        forms = [
            a
            for a in _flatten(annotation)
            if isinstance(a, type) and hasattr(a, "model_fields")
        ]
        if not forms:
            return []
        model = max(forms, key=lambda form: len(given & set(form.model_fields)))
    return list(model.model_fields)


def _flatten(annotation: Any) -> list[Any]:
    arguments = getattr(annotation, "__args__", ())
    return [
        annotation,
        *(inner for argument in arguments for inner in _flatten(argument)),
    ]
