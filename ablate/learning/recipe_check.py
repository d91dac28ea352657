"""Whether a recipe can train; light for the usual ones."""

from __future__ import annotations

from ablate.errors import AblateError
from ablate.learning.named_parts import named_part
from ablate.records import Recipe


def name_problem(field: str, name: str) -> str:
    """Returns why a field of a recipe cannot have this name; empty if it can."""
    try:
        named_part(field, name)
    except AblateError as error:
        return f"recipe.{field}: {error}"
    return ""


def recipe_problem(recipe: Recipe) -> str:
    """Returns why no trial can train with a recipe's optimizer and schedule, compiled or
    not.

    Empty if one can.
    """
    if recipe.compile:
        from ablate.learning.speed import compile_problem

        if problem := compile_problem():
            return problem
    if recipe.has_usual_optimizer:
        return ""
    from ablate.learning.optimizers import refusal

    return refusal(recipe)
