"""The generated reference is that of the code, and has every key and public name."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

import ablate
from ablate import errors, factors, space
from ablate.cli.verbs import GROUPS
from ablate.families import families
from ablate.records import Recipe
from ablate.space.schema import json_schema
from docs import make_reference

DOCS = Path(make_reference.__file__).parent
FORMS = {
    name: form["properties"]
    for name, form in json_schema()["$defs"].items()
    if name != "RecipeForm"
}
EXAMPLES = [
    (key, example)
    for examples in make_reference.EXAMPLES.values()
    for key, example in examples.items()
]
# What an example needs beside the least space; None: it is read elsewhere.
BESIDE: dict[str, dict[str, Any] | None] = {
    "baseline": {"factors": {"shortcuts.count": [0, 1]}},
    "full": {"design": "leave-one-out"},
    "rows": {
        "design": "rows",
        "factors": {"shortcuts.count": [0, 1, 2], "shortcuts.b": [4, 1]},
    },
    "together": {
        "backbone": "deit_tiny_patch16_224",
        "factors": {"size.width": [192, 384], "size.heads": [3, 6]},
    },
    "across": {"backbone": "deit_tiny_patch16_224"},
    "tune": {"data": {"name": "digits", "validation": 0.15}},
    "exclude": {"factors": {"shortcuts.count": [0, 2], "ffn.kernel": ["none", 3]}},
    "published": None,
    "teacher": {"recipe": {"distillation": "soft"}},
    # With a file of the user (tests/own).
    "trainer": None,
    # With data of their own (tests/tasks).
    "task": None,
    "head": None,
    "pretrained": {"backbone": "deit_tiny_patch16_224"},
}


def read(name: str) -> str:
    return (DOCS / "reference" / name).read_text()


@pytest.mark.parametrize("name", make_reference.PAGES)
def test_pages_are_those_that_the_code_writes(name: str) -> None:
    assert read(name) == make_reference.PAGES[name](), "run `make reference`"


def test_every_key_of_a_space_has_an_example() -> None:
    assert {key for key, _ in EXAMPLES} == set(json_schema()["properties"])


@pytest.mark.parametrize("form", FORMS)
def test_every_key_of_a_mapping_is_described(form: str) -> None:
    page = read("space.md")
    for key, schema in FORMS[form].items():
        mapping = make_reference.OPEN.get(form)
        if mapping is not None and key not in mapping.model_fields:
            # The name of a factor.
            continue
        assert f"| `{key}` | " in page
        assert schema["description"] in page


def test_every_field_of_a_recipe_is_described() -> None:
    page = read("recipe.md")
    for field in fields(Recipe):
        assert re.search(rf"^\| `{field.name}` \| .*\w.* \|$", page, re.M), field.name


def test_every_factor_backbone_verb_error_and_public_name_is_there() -> None:
    for name in factors.parameters():
        assert f"| `{name}` | " in read("factors.md")
    for name in families():
        assert f"\n## {name}\n" in read("backbones.md")
    for verbs in GROUPS.values():
        for verb in verbs:
            assert f"\n### `{verb.name}`\n" in read("verbs.md")
    for name in ablate.__all__:
        assert f":: ablate.{name}\n" in read("python.md")
    for thing in vars(errors).values():
        if isinstance(thing, type) and issubclass(thing, errors.AblateError):
            assert f"| `{thing.__name__}` | " in read("errors.md")


@pytest.mark.parametrize(("key", "example"), EXAMPLES, ids=[key for key, _ in EXAMPLES])
def test_examples_are_read(key: str, example: str) -> None:
    beside = BESIDE.get(key, {})
    if beside is None:
        assert list(yaml.safe_load(example)) == [key]
        return
    declared = make_reference.example_space(example) | beside
    declared = {name: value for name, value in declared.items() if value is not None}
    space.load(yaml.safe_dump(declared), "example.yaml")


def test_a_level_under_factors_is_not_null() -> None:
    levels = json_schema()["properties"]["factors"]["properties"]
    listed, ranged = levels["recipe.lr"]["anyOf"]
    assert listed["items"] == {"exclusiveMinimum": 0, "type": "number"}
    assert ranged == {"$ref": "#/$defs/RangeForm"}


def public_functions() -> list[Any]:
    """The public functions and classes, and the methods of these classes."""
    found: list[Any] = []
    for name in ablate.__all__:
        thing = getattr(ablate, name)
        found.append(thing)
        if inspect.isclass(thing):
            found += [
                method
                for method_name, method in vars(thing).items()
                if inspect.isfunction(method) and not method_name.startswith("_")
            ]
    return found


@pytest.mark.parametrize(
    "thing", public_functions(), ids=lambda thing: thing.__qualname__
)
def test_public_docstrings_name_every_parameter(thing: Any) -> None:
    # What a method of a part takes is in the docstring of the part.
    names = set(inspect.signature(thing).parameters) - {
        "self",
        "parameter",
        "level",
        "values",
    }
    assert names == {name for name in names if name in (thing.__doc__ or "")}
