"""Whether a recipe can train; light for the usual ones."""

from __future__ import annotations

from ablate.records import Recipe


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
    # Imports torch and timm, which most plans need not.
    from ablate.learning.optimizers import refusal

    return refusal(recipe)
