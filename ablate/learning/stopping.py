"""When a training ends before its last epoch."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.records import Metric, Recipe


def ends_early(recipe: Recipe, metric: Metric, values: Sequence[float]) -> bool:
    """Whether a training ends after these epochs, by `target` or `patience`.

    It depends on nothing else, so a resumed training ends at the same epoch.

    Args:
        metric: the main metric of the task.
        values: its values on the validation split, one per epoch.
    """
    if not values:
        return False
    sign = 1 if metric.direction == "max" else -1
    signed = [sign * value for value in values]
    if recipe.target and signed[-1] >= sign * recipe.target:
        return True
    # The first of several best epochs counts.
    since_best = len(signed) - 1 - signed.index(max(signed))
    return bool(recipe.patience) and since_best >= recipe.patience
