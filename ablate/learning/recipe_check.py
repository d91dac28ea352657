"""Whether an optimizer and a schedule can train; light for the usual ones."""

from __future__ import annotations

from ablate.records import Recipe


def optimizer_problem(recipe: Recipe) -> str:
    """Returns why no trial can train with a recipe's optimizer and schedule.

    Empty if one can.
    """
    if recipe.has_usual_optimizer:
        return ""
    # Imports torch and timm, which most plans need not.
    from ablate.learning.optimizers import refusal

    return refusal(recipe)
