"""Checks names and levels of factors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from functools import partial

from pydantic import ValidationError

from ablate import factors, families
from ablate.errors import (
    shortened,
    unknown,
)
from ablate.factors.factor import explain_refusal
from ablate.learning.named_parts import NAMING, is_part
from ablate.learning.recipe_check import name_problem, recipe_problem
from ablate.records import (
    LONGEST_LEVEL,
    MOST_SIDE,
    Design,
    Factors,
    Level,
    Recipe,
    level_text,
)
from ablate.space.context import Context, level_key, parameters_of, shown
from ablate.space.own import check_own_levels, unread_field
from ablate.space.schema import RecipeForm
from ablate.text.document import Where


def check_listed(context: Context, factors: Factors) -> None:
    """Checks that each listed level occurs in some row."""
    for name, listed in factors.levels.items():
        taken = {level_key(row[name]) for row in factors.rows if name in row}
        for index, level in enumerate(listed):
            if level_key(level) not in taken:
                context.wrong(
                    ("factors", name, index),
                    f"{name}: no row is at the level {shown(level)}; leave it out",
                )


def check_names(
    context: Context,
    design: Design,
    levels: Mapping[str, tuple[Level, ...]],
    sizes: Mapping[str, Level],
) -> None:
    """Checks that every factor is known, every level is allowed, and none repeats."""
    if not levels:
        context.wrong(
            ("factors",),
            "factors is empty; name at least one, as in `shortcuts.count: [0, 1, 2]`",
        )
    for name, listed in levels.items():
        where: Where = ("factors", name)
        # In design rows, the second level may be that of the unmodified backbone.
        least = 1 if design.name == "rows" else 2
        if len(listed) < least:
            section = name.partition(".")[0]
            if section not in ("recipe", "data", "backbone", "pretrained"):
                section = "fixed"
            context.wrong(
                where,
                f"{name} needs two levels or more, has {len(listed)}; what does not"
                f" vary belongs under `{section}`",
            )
        check_different(context, where, name, listed)
        check_levels(context, where, name, listed)
        # If `fixed` has it too, `_check_fixed` notes that.
        if name in sizes and name not in context.form.fixed:
            context.wrong(
                where,
                f"{name} varies, but backbone says {name.removeprefix('size.')}"
                " too; say it in one place",
            )
    _check_fixed(context, levels, sizes)


def check_different(
    context: Context, where: Where, name: str, listed: tuple[Level, ...]
) -> None:
    """Notes a level that a table could not tell from another one."""
    by_value: dict[Level, Level] = {}
    by_text: dict[str, Level] = {}
    for index, level in enumerate(listed):
        text = level_text(level)
        # False equals 0 in Python, and in SQL on SQLite.
        other = by_value.get(level, by_text.get(text))
        by_value.setdefault(level, level)
        by_text.setdefault(text, level)
        if other is None:
            continue
        if level_key(other) == level_key(level):
            if any(name in group for group in context.form.together):
                # It may stand beside several levels of the other factor.
                continue
            problem = f"the level {shown(level)} is a duplicate"
        elif other == level:
            problem = (
                f"the levels {level_text(other)} and {text} are equal numbers; write"
                " one of them as a word, such as off or on"
            )
        else:
            problem = (
                f"the levels {shown(other)} and {shown(level)} both print as {text}, so"
                " no table could tell them apart; leave one out"
            )
        context.wrong((*where, index), f"{name}: {problem}")


def _check_fixed(
    context: Context,
    levels: Mapping[str, tuple[Level, ...]],
    sizes: Mapping[str, Level],
) -> None:
    """Checks that what does not vary is declared in one place, and not as a factor."""
    data = context.form.data
    side = None if isinstance(data, str) else data.image_size
    if side is not None and "data.image_size" in levels:
        context.wrong(
            ("data", "image_size"),
            "data.image_size varies under factors; say it in one place",
        )
    for name, level in context.form.fixed.items():
        if name in levels:
            context.wrong(
                ("fixed", name),
                f"{name} is under factors and under fixed; name it in one place",
            )
        if name in sizes:
            context.wrong(
                ("fixed", name),
                f"{name} is under backbone and under fixed; name it in one place",
            )
        outside = name.partition(".")[0]
        if outside in ("recipe", "data", "backbone", "pretrained"):
            context.wrong(
                ("fixed", name),
                f"{name} cannot be under fixed; it belongs under `{outside}`",
            )
        else:
            check_levels(context, ("fixed", name), name, (level,))
    for name, level in sizes.items():
        check_levels(context, ("backbone", name.removeprefix("size.")), name, (level,))


def check_levels(
    context: Context,
    where: Where,
    name: str,
    levels: tuple[Level, ...],
    backbones: tuple[str, ...] = (),
) -> None:
    """Checks that a factor is known, and that it allows these levels.

    Args:
        backbones: whose factors they are; by default, the backbones of the space.
    """
    has_trainer = context.form.trainer is not None
    if has_trainer and not name.startswith("recipe."):
        check_own_levels(context, where, name, levels)
    elif name.startswith("recipe."):
        _check_recipe_levels(context, where, name, levels)
    elif name == "backbone":
        _check_backbones(context, where, levels)
    elif name == "pretrained":
        _check_starts(context, where, levels)
    elif name == "data.image_size":
        _check_image_sizes(context, where, levels)
    else:
        _check_factor_levels(context, where, name, levels, backbones)


def _check_starts(context: Context, where: Where, levels: tuple[Level, ...]) -> None:
    for index, level in enumerate(levels):
        check_weights(context, (*where, index), level)
        if len(str(level)) > LONGEST_LEVEL:
            context.wrong(
                (*where, index),
                f"pretrained: a level has at most {LONGEST_LEVEL} characters, this one"
                f" has {len(str(level))}; move the file to a shorter path",
            )


def _check_image_sizes(
    context: Context, where: Where, levels: tuple[Level, ...]
) -> None:
    for index, level in enumerate(levels):
        # The exact type, because `isinstance` takes true for an integer.
        if type(level) is not int or not 1 <= level <= MOST_SIDE:
            context.wrong(
                (*where, index),
                f"data.image_size: {shown(level)} is not a level; allowed: whole"
                f" numbers from 1 to {MOST_SIDE}",
            )


def _check_factor_levels(
    context: Context,
    where: Where,
    name: str,
    levels: tuple[Level, ...],
    backbones: tuple[str, ...],
) -> None:
    backbones = backbones or context.backbones
    parameters = list(parameters_of(backbones, name).values())
    if not parameters:
        names = ["backbone", "data.image_size", "pretrained"]
        for backbone in backbones or ("",):
            names += factors.parameters(backbone)
        names += [f"recipe.{field.name}" for field in fields(Recipe)]
        context.wrong(where, partial(factors.unknown_factor, name, names))
        return
    for index, level in enumerate(levels):
        # A level of one backbone may not be one of another; the plan says so.
        if not any(parameter.allowed.accepts(level) for parameter in parameters):
            context.wrong(
                (*where, index), partial(explain_refusal, name, parameters[0], level)
            )


def _check_backbones(context: Context, where: Where, levels: tuple[Level, ...]) -> None:
    for index, level in enumerate(levels):
        if not families.is_known(str(level)):
            context.wrong(
                (*where, index), partial(families.unknown_backbone, str(level))
            )


def check_named(context: Context, where: Where, field: str, level: Level) -> None:
    """Checks that a loss, an optimizer, ... is built in, or declared by a user's file."""
    if not isinstance(level, str) or context.form.trainer is not None:
        return
    if not is_part(field, level):
        context.wrong(where, partial(name_problem, field, level))
        return
    problem = name_problem(field, level)
    if not problem and field == "optimizer":
        problem = recipe_problem(Recipe(optimizer=level))
    if problem:
        context.wrong(where, problem)


def check_weights(context: Context, where: Where, level: Level) -> None:
    """Checks that initial weights are true, false, or an existing file."""
    if isinstance(level, bool):
        return
    if not isinstance(level, str):
        context.wrong(
            where,
            f"pretrained: {shown(level)} is not a level; allowed: true, false, or a"
            " checkpoint file",
        )
    # Unlike Path.is_file, this is False for names that no file can have.
    elif not os.path.isfile(level):
        context.wrong(
            where,
            f"pretrained: no file {shortened(level)}; write true for the weights"
            " that timm publishes",
        )


def _check_recipe_levels(
    context: Context, where: Where, name: str, levels: tuple[Level, ...]
) -> None:
    field = name.removeprefix("recipe.")
    names = [f.name for f in fields(Recipe)]
    if field not in names:
        context.wrong(
            where, partial(unknown, "factor", name, [f"recipe.{k}" for k in names])
        )
        return
    if context.form.trainer is not None:
        reason = unread_field(context, field)
        if reason:
            context.wrong(where, reason)
            return
    for index, level in enumerate(levels):
        if field in NAMING:
            check_named(context, (*where, index), field, level)
        try:
            RecipeForm.model_validate({field: level})
        except ValidationError as error:
            context.wrong(
                (*where, index),
                f"{name}: {error.errors()[0]['msg'].removeprefix('Input ')}, found"
                f" {shown(level)}",
            )
