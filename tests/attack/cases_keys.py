"""Each key of a space, with values that it does not take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ablate.records import Design, Recipe, Resources, Scheduler, Strategy
from tests.attack.case import SPACE, Case, document

# A space that is good, one line a key.
LINES = {
    "question": "question: Does it help?",
    "backbone": "backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}",
    "factors": "factors: {shortcuts.count: [0, 1], layout: [serial, parallel]}",
    "seeds": "seeds: 2",
    "data": "data: digits",
    "recipe": "recipe: {epochs: 2, warmup_epochs: 0}",
}

HOSTILE = {
    "null": "null",
    "list of lists": "[[[]]]",
    "mapping": "{surprise: {of: all}}",
    "beyond 64 bits": "9223372036854775808",
    "beyond 64 bits below": "-9223372036854775809",
    "forty digits": "9" * 40,
    "not a number": ".nan",
    "infinity": "-.inf",
    "overflowing float": "1e999",
    "negative": "-1",
    "empty text": '""',
    "300 characters": "x" * 300,
    "NUL": r'"a\0b"',
    "line break": r'"a\nb"',
    "emoji": "\N{PARTY POPPER}",
    "truth": "true",
    "date": "2026-01-01",
    "python object": "!!python/object/apply:os.system [true]",
    "python name": "!!python/name:os.system",
    "tag of its own": "!surprise x",
    "set": "!!set {a, b}",
    "binary": "!!binary aGk=",
    "unknown alias": "*nowhere",
    "alias of itself": "&a [*a]",
    "bomb": (
        "&a [&b [&c [&d"
        " [x,x,x,x,x,x],*d,*d,*d,*d,*d,*d],*c,*c,*c,*c,*c,*c],"
        "*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]"
    ),
    "half of a surrogate": r'"\ud83d"',
}

TEXT = {"300 characters", "line break", "emoji", "date"}
FREE_TEXT = {*TEXT, "empty text"}
# What a key takes, or what is no mistake of its value.
HARMLESS: dict[str, set[str]] = {
    "question": TEXT,
    "expect": FREE_TEXT,
    "source": FREE_TEXT,
    "name": {"null", "date"},
    "backbone": set(),
    "strategy": {"null"},
    "published": {"empty text"},
    # Whether timm publishes weights is found out when the cells are planned:
    # tests/attack/cases_levels.py has it.
    "pretrained": {"truth", "empty text"},
    "diagnostics": {"truth"},
    "teacher": {"null"},
    "margin": {"null"},
    "control": {"null"},
    "tune": {"null"},
    "across": {"null"},
}

# A policy of RandAugment is tried out only on image files.
HARMLESS_IN_RECIPES = {
    "rand_augment": FREE_TEXT,
    "optimizer_options": {"empty text"},
    "schedule_options": {"empty text"},
    "compile": {"truth"},
    "channels_last": {"truth"},
    "checkpointing": {"truth"},
    "tf32": {"truth"},
}

TOP = (
    "expect",
    "source",
    "name",
    "fixed",
    "baseline",
    "full",
    "design",
    "strategy",
    "rows",
    "together",
    "exclude",
    "published",
    "pretrained",
    "teacher",
)
TOP += (
    "diagnostics",
    "metric",
    "margin",
    "limits",
    "resources",
    "control",
    "scheduler",
    "tune",
    "across",
)

NESTED: dict[str, tuple[str, ...]] = {
    "backbone": (
        "family",
        "patch_size",
        "width",
        "depth",
        "heads",
        "mlp_ratio",
        "pool",
    ),
    "data": (
        "name",
        "path",
        "image_size",
        "train_images",
        "test_images",
        "workers",
        "validation",
    ),
    "recipe": ("preset", *(field.name for field in fields(Recipe))),
    "resources": tuple(field.name for field in fields(Resources)),
    "scheduler": tuple(field.name for field in fields(Scheduler)),
    "design": tuple(field.name for field in fields(Design)),
    "strategy": tuple(field.name for field in fields(Strategy)),
    "diagnostics": ("names", "images", "every"),
    "seeds": ("adaptive", "until_decided", "start", "step", "baseline"),
    "teacher": ("backbone", "weights", "settings"),
    "across": ("per", "seeds", "size.depth", "data.train_images"),
    "tune": ("settings", "seeds", "repeat", "draw", "metric", "at", "recipe.lr"),
}
# What stands beside a key in its mapping.
AROUND: dict[str, dict[str, str]] = {
    "backbone": {
        "family": "vit",
        "patch_size": "4",
        "width": "16",
        "depth": "1",
        "heads": "2",
    },
    "data": {"name": "digits"},
    "recipe": {"epochs": "2", "warmup_epochs": "0"},
    "scheduler": {"name": "asha"},
    "design": {"name": "random", "cells": "2"},
    "strategy": {"name": "tpe", "cells": "2"},
    "teacher": {"backbone": "deit_tiny_patch16_224", "weights": "timm"},
    "tune": {"recipe.weight_decay": "[0.1, 0.2]"},
}
# In a mapping of keys that may be left out, null is as if it were.
LEFT_OUT = "null"
MUST = {
    ("backbone", "family"),
    ("data", "name"),
    ("data", "workers"),
    ("diagnostics", "images"),
}
MUST |= {(key, "name") for key in ("scheduler", "design", "strategy")} | {
    ("seeds", name) for name in NESTED["seeds"]
}
# Every so many of the hostile values meets a nested key, each key beginning with
# another one.
STRIDE = 8


def top_level() -> Iterator[Case]:
    """Every key of a space with every hostile value."""
    for key in (*LINES, *TOP):
        others = [line for other, line in LINES.items() if other != key]
        for name, value in HOSTILE.items():
            if name in HARMLESS.get(key, ()):
                continue
            text = "\n".join([*others, f"{key}: {value}"]) + "\n"
            yield document(
                text, f"{key} is {name}", f"error: {SPACE}:{len(others) + 1}: "
            )


def nested() -> Iterator[Case]:
    """Every key of the mappings in a space with some of the hostile values."""
    number = 0
    for key, inner in NESTED.items():
        others = [line for other, line in LINES.items() if other != key]
        for name in inner:
            number += 1
            for which, (hostile, value) in enumerate(HOSTILE.items()):
                taken = hostile == LEFT_OUT and (key, name) not in MUST
                taken |= hostile in HARMLESS_IN_RECIPES.get(name, ())
                if taken or (which + number) % STRIDE:
                    continue
                said = {**AROUND.get(key, {}), name: value}
                line = ", ".join(f"{one}: {other}" for one, other in said.items())
                text = "\n".join([*others, f"{key}: {{{line}}}"]) + "\n"
                yield document(
                    text,
                    f"{key}.{name} is {hostile}",
                    f"error: {SPACE}:{len(others) + 1}: ",
                )


CASES = [*top_level(), *nested()]
