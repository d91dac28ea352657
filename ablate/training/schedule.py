"""The optimiser's options and the schedule of its learning rate."""

from __future__ import annotations

from typing import Any

import torch
from timm.scheduler import create_scheduler_v2

from ablate.records import Recipe


def optimizer_options(recipe: Recipe) -> dict[str, Any]:
    """Returns the options of the optimiser that differ from its defaults."""
    options: dict[str, Any] = {}
    if recipe.optimizer != "sgd":
        if recipe.eps:
            options["eps"] = recipe.eps
        options["betas"] = (recipe.beta1, recipe.beta2)
    if recipe.layer_decay < 1:
        options["layer_decay"] = recipe.layer_decay
    return options


def make_schedule(
    recipe: Recipe, optimizer: torch.optim.Optimizer, updates: int
) -> Any:
    """Returns timm's schedule, stepped at each update.

    Its value depends only on the number of the update.
    """
    schedule, _ = create_scheduler_v2(
        optimizer,
        sched=recipe.schedule,
        num_epochs=recipe.epochs,
        warmup_epochs=recipe.warmup_epochs,
        warmup_lr=recipe.warmup_lr or recipe.rate / 1000,
        warmup_prefix=False,
        min_lr=recipe.min_lr if recipe.schedule == "cosine" else 0.0,
        step_on_epochs=False,
        updates_per_epoch=updates,
    )
    if schedule is not None and recipe.warmup_epochs:
        schedule.step_update(0)
    return schedule
