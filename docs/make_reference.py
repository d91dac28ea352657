"""Writes the pages of docs/reference from the code.

    make reference

A test compares the pages with what this program would write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

import ablate
from ablate import errors
from ablate.cli.app import app
from ablate.cli.tables import backbones_table
from ablate.cli.verbs import GROUPS
from ablate.factors import catalogue
from ablate.factors.factor import Factor
from ablate.families import families
from ablate.records import MOST_WHOLE, Recipe
from ablate.report.summary import level_text
from ablate.space.recipes import RECIPES
from ablate.space.schema import AcrossForm, TuneForm, json_schema

FOLDER = Path(__file__).parent / "reference"
NOTE = "<!-- Written by `make reference`; do not edit. -->"

# The keys of a space in the order of a file, by what they are for, each with a line to
# copy. A test reads each line in a space.
EXAMPLES: dict[str, dict[str, str]] = {
    "What is asked": {
        "question": "question: Do shortcuts help a small ViT?",
        "expect": "expect: Two shortcuts help more than one.",
        "source": "source: augmented-shortcuts, table 3",
        "name": "name: shortcuts/first",
    },
    "What varies": {
        "backbone": "backbone: {family: vit, patch_size: 2, width: 32, depth: 3, heads: 4}",
        "factors": "factors: {shortcuts.count: [0, 1, 2], recipe.lr: [1e-3, 3e-3]}",
        "fixed": "fixed: {drop.path: 0.1}",
        "baseline": "baseline: {shortcuts.count: 1}",
        "control": "control: iso-flops",
        "limits": 'limits: ["flops <= 1.1 * baseline.flops"]',
        "pretrained": "pretrained: true",
    },
    "Which cells are trained": {
        "design": "design: one-at-a-time",
        "together": "together: [[size.width, size.heads]]",
        "exclude": "exclude: [{shortcuts.count: 2, ffn.kernel: 3}]",
        "full": "full: {shortcuts.count: 2}",
        "rows": "rows: [{}, {shortcuts.count: 1}, {shortcuts.count: 2, shortcuts.b: 1}]",
        "strategy": "strategy: {name: tpe, cells: 20}",
        "tune": "tune: {recipe.lr: {low: 3e-4, high: 1e-2, scale: log}, settings: 8}",
        "across": "across: {size.width: [192, 384]}",
        "published": "published: augvit/table3",
    },
    "How they are trained": {
        "seeds": "seeds: 5",
        "data": "data: {name: digits, validation: 0.2}",
        "recipe": "recipe: {preset: small, epochs: 30, lr: 2e-3}",
        "scheduler": "scheduler: {name: asha, grace_epochs: 5}",
        "resources": "resources: {cpus: 2}",
        "keep": "keep: none",
        "teacher": "teacher: {backbone: regnety_160.deit_in1k, weights: timm}",
        "trainer": "trainer: mine",
        "task": "task: detection",
        "head": "head: mask-rcnn-small",
    },
    "What is measured": {
        "metric": "metric: {loss: min}",
        "margin": "margin: 0.3",
        "primary": "primary: [{shortcuts.count: 2}]",
        "diagnostics": "diagnostics: [diversity, token_cosine]",
        "labels": "labels: {shortcuts.count: shortcuts, 'shortcuts.count:0': none}",
    },
}
# Forms of a mapping: the key that it stands under, and its schema.
OPEN = {"TuneForm": TuneForm, "AcrossForm": AcrossForm}
FORMS = {
    "a range": "RangeForm",
    "backbone": "BackboneForm",
    "data": "DataForm",
    "design": "DesignForm",
    "strategy": "StrategyForm",
    "tune": "TuneForm",
    "across": "AcrossForm",
    "scheduler": "SchedulerForm",
    "resources": "ResourcesForm",
    "seeds": "SeedsForm",
    "seeds (design)": "UntilDecidedForm",
    "seeds (search)": "AdaptiveForm",
    "teacher": "TeacherForm",
    "diagnostics": "DiagnosticsForm",
    "metric": "MetricForm",
}
SNIPPET = """\
import ablate

study = ablate.run("search_spaces/quickstart.yaml")
print(study.table())
# One row per cell and seed, a column for each factor, metric and cost.
frame = study.frame()
# A notebook shows studies, tables, effects and figures, and a bar while
# `ablate.run` trains.
study.plot("effects").savefig("effects.pdf")
model = ablate.create_model("deit_small_patch16_224", {"shortcuts.count": 2})
"""
# Recipes in which every field is unread once, so that each says when it is read.
UNLIKE = (
    Recipe(),
    Recipe(optimizer="sgd"),
    Recipe(weight_decay=0),
    Recipe(schedule="constant"),
    Recipe(loss="of a file"),
)


# What values are called, one and several.
KINDS = {
    "string": ("text", "texts"),
    "integer": ("whole number", "whole numbers"),
    "number": ("number", "numbers"),
    "boolean": ("`true` or `false`", "`true` or `false`"),
    "object": ("mapping", "mappings"),
}


def allowed(schema: dict[str, Any], *, several: bool = False) -> str:
    """Returns what a value may be, in words.

    A list is described by its items; a mapping of known keys is called a mapping.

    Args:
        several: whether the words are for the items of a list.
    """
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        words = [
            allowed(one, several=several)
            for one in choices
            if one.get("type") != "null"
        ]
        return " or ".join(dict.fromkeys(words))
    if "enum" in schema:
        return ", ".join(f"`{level}`" for level in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        return " or ".join(allowed({**schema, "type": one}) for one in kind)
    if kind == "array":
        of = allowed(schema.get("items", {}), several=True)
        return f"list{'s' if several else ''} of {of}"
    return KINDS[kind][several] + bounds(schema)


def bounds(schema: dict[str, Any]) -> str:
    """Returns the limits of a number, such as " from 1 to 1000"."""
    # The largest whole number is no limit that anybody meets.
    limits = {key: limit for key, limit in schema.items() if limit != MOST_WHOLE}
    least = limits.get("minimum")
    most = limits.get("maximum")
    above = limits.get("exclusiveMinimum")
    below = limits.get("exclusiveMaximum")
    text = ""
    if least is not None:
        text = f" from {least}"
    if above is not None:
        text = f" above {above}"
    if most is not None:
        text += f" to {most}" if least is not None else f", at most {most}"
    if below is not None:
        link = " and" if above is not None else ","
        text += f"{link} below {below}" if text else f" below {below}"
    return text


def default(schema: dict[str, Any]) -> str:
    """Returns the value that a missing key has; empty if there is none."""
    level = schema.get("default")
    if level in (None, "", {}, []) or isinstance(level, dict):
        return ""
    return f"`{json.dumps(level).strip(chr(34))}`"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    heads = tuple(heads)
    lines = [heads, ("---",) * len(heads), *(tuple(row) for row in rows)]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def space_page() -> str:
    """Every key of a space."""
    schema = json_schema()
    required = set(schema["required"])
    parts = [
        "# Keys of a space",
        "A space is one YAML file. Unknown keys are errors that name the nearest known"
        " one. `question` and `factors` are required. A space also needs a `backbone`"
        " or a `trainer`; if the backbone is a factor, leave out the key `backbone`."
        " `ablate init` writes a commented space. `ablate schema` prints this page as"
        " a JSON Schema for editors.",
    ]
    for heading, examples in EXAMPLES.items():
        parts.append(f"## {heading}")
        for key, example in examples.items():
            parts += described(key, schema["properties"][key], example, key in required)
    parts.append("## Mappings")
    parts.append(
        "Where a key takes a name or a mapping, these are the keys of the mapping."
        " [Recipes](recipe.md) have a page of their own."
    )
    for key, form in FORMS.items():
        rows = [
            (f"`{name}`", allowed(value), default(value), value["description"])
            for name, value in schema["$defs"][form]["properties"].items()
            # A mapping may also have the names of factors.
            if form not in OPEN or name in OPEN[form].model_fields
        ]
        parts.append(f"### Keys of {key}")
        parts.append(table(("key", "value", "default", "meaning"), rows))
    return page(parts)


def described(
    key: str, schema: dict[str, Any], example: str, is_required: bool
) -> list[str]:
    """One key of a space: its meaning, what it may be, and an example."""
    told = schema["description"].rstrip()
    if key in ("factors", "fixed", "baseline", "full"):
        kinds = "mapping of [factors](factors.md) to levels"
    elif key in ("rows", "exclude"):
        kinds = "list of mappings of [factors](factors.md) to levels"
    else:
        kinds = allowed(schema)
    facts = f"{kinds[0].upper()}{kinds[1:]}."
    if is_required:
        facts += " Required."
    elif default(schema):
        facts += f" Default: {default(schema)}."
    return [f"### `{key}`", told, facts, f"```yaml\n{example}\n```"]


def recipe_page() -> str:
    """Every field of a recipe, and the presets."""
    properties = json_schema()["$defs"]["RecipeForm"]["properties"]
    standard = Recipe()
    conditions: dict[str, str] = {}
    for recipe in UNLIKE:
        conditions |= recipe.unread()
    rows = []
    for field in fields(Recipe):
        schema = properties[field.name]
        rows.append(
            (
                f"`{field.name}`",
                allowed(schema),
                f"`{level_text(getattr(standard, field.name))}`",
                schema["description"],
                conditions.get(field.name, "always"),
            )
        )
    parts = [
        "# Recipes",
        "A recipe says how a network is trained. `recipe: NAME` takes a preset,"
        " `recipe: {preset: NAME, lr: 2e-3}` changes one, and `recipe: {lr: 2e-3}`"
        " changes the preset `small`. Every key can also be a"
        " factor, such as `recipe.lr: [1e-3, 3e-3]`. A key that training does not read"
        " in any cell is an error.",
        table(("key", "value", "default", "meaning", "read when"), rows),
        "## Presets",
        "What each preset changes in the defaults above.",
    ]
    for name, recipe in RECIPES.items():
        changed = [
            f"`{field.name}: {level_text(getattr(recipe, field.name))}`"
            for field in fields(Recipe)
            if getattr(recipe, field.name) != getattr(standard, field.name)
        ]
        parts += [f"### `{name}`", ", ".join(changed) + "."]
    return page(parts)


def factors_page() -> str:
    """Every built-in factor."""
    parts = [
        "# Factors",
        "To vary a factor, write its name (the first column of the tables) as a key"
        " under `factors`, with a list of levels. If all factors have their neutral"
        " levels, the network is that of timm, bit for bit. The last column says when"
        " a factor has an effect (*read when*); otherwise its level is not part of the"
        " identity of a trial. Every key of the [recipe](recipe.md) is a factor too,"
        " and so are `backbone`, `pretrained` and `data.image_size`. [Your own"
        " parts](../own.md) can add factors.",
        "The kind of a factor says what it changes:",
        table(
            ["kind", "what it changes"],
            [
                ["`edit`", "the attention"],
                ["`replace`", "the FFN"],
                ["`arrange`", "how branches join"],
                ["`path`", "paths beside the branches"],
                ["`head`", "what comes before the classifier"],
                ["`loss`", "terms of the loss"],
                [
                    "`recipe`",
                    "drop rates (the keys of the recipe are factors of their own)",
                ],
                ["`size`", "the numbers of the backbone, such as its depth"],
            ],
        ),
    ]
    for factor in catalogue().values():
        parts += [
            f"## {factor.name}",
            f"{factor.claim} Source: {factor.source}. Kind: {factor.kind}.",
            table(
                ("factor", "levels", "default", "meaning", "read when"), rows_of(factor)
            ),
        ]
    return page(parts)


def rows_of(factor: Factor) -> Iterator[tuple[str, ...]]:
    """The parameters of a factor."""
    for parameter in factor.parameters:
        if parameter.default is None:
            usual = "that of the backbone"
        else:
            usual = f"`{level_text(parameter.default)}`"
        yield (
            f"`{factor.full_name(parameter.name)}`",
            str(parameter.allowed),
            usual,
            parameter.about,
            parameter.when or "always",
        )


def backbones_page() -> str:
    """Every family of backbones with its names."""
    parts = [
        "# Backbones",
        "`backbone: NAME` in a space. Each section below is a family of backbones,"
        " with the factors that it has, those that it does not have, and the sizes and"
        " drop rates that can change.",
    ]
    for family in families():
        found = backbones_table(family)
        (row,) = found.rows
        _, about, names, _, factors = row
        listed = ", ".join(f"`{name}`" for name in names.split(", "))
        if family == "timm":
            listed = "see `ablate backbones timm`"
        if family == "own":
            listed = "those that your files give them"
        parts += [
            f"## {family}",
            f"{about[0].upper()}{about[1:]}. Names: {listed}.",
            f"Factors: {factors or 'none'}.",
            *(
                [
                    'With `@ablate.backbone(like="vit")`, a backbone has the factors of'
                    " that family ([Your own parts](../own.md))."
                ]
                if family == "own"
                else []
            ),
            *(
                f"{note.removeprefix(f'{family}: ').capitalize()}"
                for note in found.notes
            ),
        ]
    return page(parts)


def verbs_page() -> str:
    """The help of every verb, as a terminal of 80 columns shows it."""
    parts = [
        "# Verbs",
        "What `ablate VERB --help` prints. After a user error, a verb prints one"
        " message and exits with code 2. After Ctrl-C, it exits with code 130.",
        "Every verb that prints a table accepts `--format"
        " table|md|latex|html|csv|json`. Every verb that uses a store accepts `--store"
        " URL` and `--runs DIR`.",
        table(
            ("verb", "what it does"),
            (
                (f"[`{verb.name}`](#{verb.name})", verb.line)
                for verbs in GROUPS.values()
                for verb in verbs
            ),
        ),
    ]
    for group, verbs in GROUPS.items():
        parts.append(f"## {group}")
        for verb in verbs:
            shown = CliRunner().invoke(
                app, [verb.name, "--help"], prog_name="ablate", env={"COLUMNS": "80"}
            )
            parts += [f"### `{verb.name}`", f"```text\n{shown.output.strip()}\n```"]
    return page(parts)


def python_page() -> str:
    """The public names of the package, which Sphinx documents from their docstrings."""
    parts = [
        "# Python",
        f"```python\n{SNIPPET}```",
        "The names below, `ablate.errors` and `ablate.report.paper_table.PaperStyle` are the"
        " public interface. Everything else may change.",
    ]
    groups = {
        "Studies": (
            "run",
            "preview",
            "open_study",
            "open_chain",
            "Study",
            "judge",
            "use",
        ),
        "Models": ("create_model", "model_cost"),
        "Parts of your own": (
            *("Factor", "Parameter", "Whole", "Real", "OneOf", "Metric"),
            "Diagnostic",
            *(
                "backbone",
                "dataset",
                "loss",
                "optimizer",
                "schedule",
                "augmentation",
                "metric",
                "operator",
                "trainer",
                "command",
            ),
        ),
    }
    for heading, names in groups.items():
        parts.append(f"## {heading}")
        for name in names:
            thing = getattr(ablate, name)
            directive = "autofunction"
            options = ""
            if isinstance(thing, type):
                directive = "autoclass"
                options = "\n   :members:"
            parts.append(
                f"```{{eval-rst}}\n.. {directive}:: ablate.{name}{options}\n```"
            )
    return page(parts)


def errors_page() -> str:
    """The exceptions, and the exit codes of verbs."""
    rows = []
    for name, thing in vars(errors).items():
        if isinstance(thing, type) and issubclass(thing, errors.AblateError):
            meaning = " ".join((thing.__doc__ or "").split())
            rows.append((f"`{name}`", f"`{thing.__mro__[1].__name__}`", meaning))
    codes = (
        ("0", "The verb did what it was asked for. `gate`: the row helps."),
        (
            "1",
            "A trial failed, Ray did not start, or a verb that checks something (such as"
            " `review` or `reproduce`) found a problem.",
        ),
        (
            "2",
            "A user error, the store cannot be used (for example, the disk is full), or a"
            " process of Ray died: one message says what is wrong and what to do.",
        ),
        ("3", "A budget is used up (`run`, `resume`). `gate`: the row hurts."),
        ("4", "`gate`: the row makes no difference."),
        ("5", "`gate`: the verdict is inconclusive."),
        ("130", "Ctrl-C or SIGTERM interrupted the verb; the store is intact."),
    )
    return page(
        [
            "# Errors",
            "## Exit codes",
            table(("code", "meaning"), codes),
            "## Exceptions",
            "Functions of the package raise these, all in `ablate.errors`. Their text is"
            " the message that a verb prints.",
            table(("exception", "is a", "meaning"), rows),
        ]
    )


def page(parts: Iterable[str]) -> str:
    """A page of these blocks. The note stands below the heading."""
    heading, *rest = parts
    return "\n\n".join([heading, NOTE, *rest]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "space.md": space_page,
    "recipe.md": recipe_page,
    "factors.md": factors_page,
    "backbones.md": backbones_page,
    "verbs.md": verbs_page,
    "python.md": python_page,
    "errors.md": errors_page,
}


def example_space(example: str) -> dict[str, Any]:
    """A space in which one example stands, beside what every space needs."""
    least = {
        "question": "Does it parse?",
        "backbone": {
            "family": "vit",
            "patch_size": 2,
            "width": 32,
            "depth": 3,
            "heads": 4,
        },
        "factors": {"shortcuts.count": [0, 2]},
    }
    found: dict[str, Any] = yaml.safe_load(example)
    return {**least, **found}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write())
