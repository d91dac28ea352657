"""The sections of a space whose training is the user's own: `trainer: NAME`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ablate.errors import AblateError, did_you_mean, unknown
from ablate.factors.factor import OneOf
from ablate.own.commits import COMMIT
from ablate.parts import Trainer
from ablate.records import TRAINER, Data, Level, Limit, Recipe
from ablate.space.context import Context, shown
from ablate.space.limits import has_cost
from ablate.text.document import Where

# Sections that only built-in training reads.
BUILT_IN = (
    "backbone",
    "pretrained",
    "teacher",
    "data",
    "diagnostics",
    "control",
    "published",
    "task",
    "head",
)


def check_own(context: Context, limits: Sequence[Limit]) -> None:
    """Notes what does not go with the user's own training."""
    form = context.form
    for section in BUILT_IN:
        if section in form.model_fields_set:
            context.wrong(
                (section,),
                f"{section} is read by built-in training, not by trainer"
                f" {form.trainer}; leave it out",
            )
    trainer = context.trainer
    if trainer is None:
        return
    for name, allowed in trainer.factors.items():
        varies = (*context.levels, *context.tuned)
        if isinstance(allowed, OneOf) or name in varies or name in form.fixed:
            continue
        context.wrong(
            ("factors",),
            f"{name} has no default in trainer {trainer.name}; name it under factors or"
            " under fixed",
        )
    if trainer.model is not None:
        return
    if any(has_cost(limit.left) or has_cost(limit.right) for limit in limits):
        context.wrong(("limits",), _no_cost("limits", trainer))
    if len(form.metric) > 1:
        context.wrong(("metric",), _no_cost("further objectives", trainer))


def _no_cost(what: str, trainer: Trainer) -> str:
    return (
        f"{what} are about costs, and trainer {trainer.name} gives no model to count;"
        " add model= and inputs= to it"
    )


def own_data(name: str) -> Data:
    """The data of a trainer, of which only the trainer knows more."""
    return Data(
        name=f"{TRAINER}{name}", path="", image_size=0, channels=0, classes=0, images=0
    )


def own_recipe(context: Context) -> Recipe:
    """The recipe: `epochs`, and the fields that the trainer reads."""
    form: Any = context.form.recipe
    usual = Recipe()
    if context.trainer is not None and context.trainer.reports_once:
        usual = replace(usual, epochs=1)
    if "recipe" not in context.form.model_fields_set:
        return usual
    if isinstance(form, str):
        context.wrong(
            ("recipe",),
            f"the recipe {form} is one of built-in training; write the fields that"
            " trainer"
            f" {context.form.trainer} reads, as in recipe: {{epochs: 10}}",
        )
        return usual
    fields = form.model_dump(exclude_unset=True)
    for field in fields:
        reason = unread_field(context, field)
        if reason:
            context.wrong(("recipe", field), reason)
    return replace(usual, **{name: fields[name] for name in fields if name != "preset"})


def unread_field(context: Context, field: str) -> str:
    """Why the trainer does not read a field of the recipe; empty if it does."""
    trainer = context.trainer
    if trainer is None or field in ("epochs", *trainer.recipe):
        return ""
    return (
        f"trainer {trainer.name} does not read recipe.{field}; it reads"
        f" {', '.join(('epochs', *trainer.recipe))}"
    )


def check_own_levels(
    context: Context, where: Where, name: str, levels: tuple[Level, ...]
) -> None:
    """Checks that the trainer has a factor, and that it allows these levels."""
    trainer = context.trainer
    if trainer is None:
        return
    if name == COMMIT and trainer.takes_commits():
        _check_commits(context, where, trainer, levels)
        return
    if name not in trainer.factors:
        names = [*trainer.factors, *(f"recipe.{field}" for field in trainer.recipe)]
        context.wrong(where, partial(unknown, "factor", name, names))
        return
    allowed = trainer.factors[name]
    for index, level in enumerate(levels):
        if not allowed.accepts(level):
            names = []
            if isinstance(allowed, OneOf):
                names = [str(level) for level in allowed.levels]
            context.wrong(
                (*where, index),
                f"{name}: {shown(level)} is not a level; allowed:"
                f" {allowed}{did_you_mean(level, names)}",
            )


def _check_commits(
    context: Context, where: Where, trainer: Trainer, levels: tuple[Level, ...]
) -> None:
    """Checks that each level is a commit that the trainer can train in."""
    if trainer.model is not None:
        context.wrong(
            where,
            f"{COMMIT}: the model= of trainer {trainer.name} is that of the checkout, so"
            " costs would be wrong; leave model= out",
        )
        return
    for index, level in enumerate(levels):
        place = (*where, index) if len(levels) > 1 else where
        if not isinstance(level, str):
            context.wrong(
                place,
                f"{COMMIT}: {shown(level)} is no text; write it in quotation marks",
            )
            continue
        try:
            trainer.tree(level)
        except AblateError as error:
            context.wrong(place, f"{COMMIT}: {error}")
