"""Optimizers and schedules of the learning rate: those of timm, by its names.

A recipe has fields for what the usual optimizers share. What one optimizer or schedule
has for itself stands in `optimizer_options` and `schedule_options`, and is passed on.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from timm.optim import (
    create_optimizer_v2,
    get_optimizer_class,
    get_optimizer_info,
    list_optimizers,
)
from timm.scheduler import create_scheduler_v2
from torch import nn

from ablate.errors import UnknownName, shortened, unknown
from ablate.records import ADAMS, Recipe
from ablate.records.options import parse_options

# Options that fields of the recipe set, each with that field.
_FIELDS = {"lr": "lr", "weight_decay": "weight_decay"}
_ADAM_FIELDS = {"eps": "eps", "betas": "beta1 and recipe.beta2"}
# What the optimizer gets from timm or from the loop.
_INTERNAL = frozenset(("params", "capturable", "differentiable"))
# Schedules, each with those options of timm that it reads.
SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "cosine": ("k_decay",),
    "constant": (),
    "linear": (),
    "poly": ("decay_rate", "k_decay"),
    "tanh": (),
    "step": ("decay_epochs", "decay_rate"),
    "multistep": ("decay_milestones", "decay_rate"),
    "wsd": ("decay_epochs", "decay_fn"),
    "rsqrt": ("decay_epochs", "decay_fn", "stable_timescale"),
}
# Options without which timm would take a value for 300 epochs.
_NEEDED = {
    "poly": "decay_rate",
    "step": "decay_epochs",
    "multistep": "decay_milestones",
}


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Returns the optimizer of a recipe; matrices and kernels have weight decay."""
    options = parse_options(recipe.optimizer_options)
    momentum = options.pop("momentum", recipe.momentum)
    if recipe.optimizer in ADAMS:
        if recipe.eps:
            options["eps"] = recipe.eps
        options["betas"] = (recipe.beta1, recipe.beta2)
    if recipe.layer_decay < 1:
        options["layer_decay"] = recipe.layer_decay
    optimizer: torch.optim.Optimizer = create_optimizer_v2(
        model,
        opt=recipe.optimizer,
        lr=recipe.rate,
        weight_decay=recipe.weight_decay,
        momentum=momentum,
        **options,
    )
    return optimizer


def make_schedule(
    recipe: Recipe, optimizer: torch.optim.Optimizer, updates: int
) -> Any:
    """Returns timm's schedule, stepped at each update.

    Its value depends only on the number of the update.
    """
    options = parse_options(recipe.schedule_options)
    name: str = recipe.schedule
    if name == "linear":
        name, options = "poly", {"decay_rate": 1.0}
    schedule, _ = create_scheduler_v2(
        optimizer,
        sched=name,
        num_epochs=recipe.epochs,
        warmup_epochs=recipe.warmup_epochs,
        warmup_lr=recipe.warmup_lr or recipe.rate / 1000,
        warmup_prefix=False,
        min_lr=0.0 if "min_lr" in recipe.unread() else recipe.min_lr,
        step_on_epochs=False,
        updates_per_epoch=updates,
        **options,
    )
    if schedule is not None and recipe.warmup_epochs:
        schedule.step_update(0)
    return schedule


@cache
def refusal(recipe: Recipe) -> str:
    """Returns why no trial can train with a recipe's optimizer and schedule.

    Empty if one can.
    """
    for field, check in (
        ("optimizer", _optimizer_refusal),
        ("schedule", _schedule_refusal),
    ):
        try:
            problem = check(recipe)
        except UnknownName as error:
            problem = str(error)
        except ValueError as error:
            problem = f"{field}_options: {error}"
        if problem:
            return f"recipe.{problem}"
    return ""


def _optimizer_refusal(recipe: Recipe) -> str:
    name = recipe.optimizer
    if name not in list_optimizers():
        raise UnknownName(f"optimizer: {unknown('optimizer', name, list_optimizers())}")
    if get_optimizer_info(name).second_order:
        return (
            f"optimizer {name} needs second derivatives, which training does not give"
        )
    try:
        arguments = inspect.signature(get_optimizer_class(name, bind_defaults=False))
    except Exception as error:
        # A package is missing, or asserts that it needs a GPU.
        return f"optimizer {name} cannot be loaded here: {shortened(str(error))}"
    allowed = set(arguments.parameters) - _INTERNAL - _FIELDS.keys()
    fields = {**_FIELDS, **(_ADAM_FIELDS if name in ADAMS else {})}
    if name == "sgd":
        fields["momentum"] = "momentum"
    for option in parse_options(recipe.optimizer_options):
        if option in fields:
            return (
                f"optimizer_options: write recipe.{fields[option]} instead of {option}"
            )
        if option not in allowed:
            what = f"option of optimizer {name}"
            return f"optimizer_options: {unknown(what, option, sorted(allowed))}"
    try:
        _try_out(recipe)
    except Exception as error:
        # Each optimizer checks its options in its own way.
        return f"optimizer {name} makes no step: {shortened(str(error))}"
    return ""


def _try_out(recipe: Recipe) -> None:
    """Makes two steps on a small network."""
    with torch.random.fork_rng(devices=[]):
        model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 2))
        optimizer = make_optimizer(model, replace(recipe, layer_decay=1.0))
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(1, 1, 3, 3)).square().sum().backward()
            optimizer.step()


def _schedule_refusal(recipe: Recipe) -> str:
    name = recipe.schedule
    if name not in SCHEDULES:
        raise UnknownName(f"schedule: {unknown('schedule', name, list(SCHEDULES))}")
    options = parse_options(recipe.schedule_options)
    for option in options:
        if option not in SCHEDULES[name]:
            if not SCHEDULES[name]:
                return f"schedule_options: schedule {name} has no option {option}"
            what = f"option of schedule {name}"
            return f"schedule_options: {unknown(what, option, SCHEDULES[name])}"
    needed = _NEEDED.get(name, "")
    if needed not in ("", *options):
        return (
            f"schedule {name} needs {needed}, as in schedule_options:"
            f" {{{needed}: {_EXAMPLES[needed]}}}"
        )
    try:
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=recipe.rate)
        schedule = make_schedule(recipe, optimizer, updates=10)
        for update in range(10 * recipe.epochs):
            schedule.step_update(update)
    except Exception as error:
        return f"schedule {name} cannot be used: {shortened(str(error))}"
    return ""


_EXAMPLES = {
    "decay_rate": "2.0",
    "decay_epochs": "30",
    "decay_milestones": "[10, 15]",
}
