"""Optimizers and schedules of the learning rate: those of timm, by its names, and those
of users' files.

A recipe has fields for what the usual optimizers share. What one optimizer or schedule
has for itself stands in `optimizer_options` and `schedule_options`, and is passed on.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from timm.optim import (
    create_optimizer_v2,
    get_optimizer_class,
    get_optimizer_info,
    param_groups_layer_decay,
    param_groups_weight_decay,
)
from timm.scheduler import create_scheduler_v2
from torch import nn

from ablate.errors import AblateError, PartError, shortened, unknown
from ablate.learning.named_parts import LOOKAHEAD, named_part
from ablate.own.mistakes import error_text
from ablate.records import ADAMS, Recipe
from ablate.records.options import parse_options
from ablate.records.own_parts import OwnOptimizer, OwnSchedule

# Options that fields of the recipe set, each with that field.
_FIELDS = {"lr": "lr", "weight_decay": "weight_decay"}
_ADAM_FIELDS = {"eps": "eps", "betas": "beta1 and recipe.beta2"}
# What the optimizer gets from timm or from the loop.
_INTERNAL = frozenset(("params", "capturable", "differentiable"))
# The options of timm that each schedule reads.
_SCHEDULE_OPTIONS: Mapping[str, tuple[str, ...]] = {
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
    own = named_part("optimizer", recipe.optimizer)
    if own is not None:
        return _own_optimizer(own, model, recipe, options)
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


def _own_optimizer(
    own: OwnOptimizer, model: nn.Module, recipe: Recipe, options: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """Returns a user's optimizer of the groups of parameters that timm's optimizers get."""
    no_decay: set[str] = getattr(model, "no_weight_decay", set)()
    if recipe.layer_decay < 1:
        groups = param_groups_layer_decay(
            model,
            recipe.weight_decay,
            no_weight_decay_list=no_decay,
            layer_decay=recipe.layer_decay,
        )
    else:
        groups = param_groups_weight_decay(
            model, recipe.weight_decay, no_weight_decay_list=no_decay
        )
    optimizer = own(groups, lr=recipe.rate, **options)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise AblateError(
            f"optimizer {own.name} must return a torch.optim.Optimizer; found"
            f" {type(optimizer).__name__}"
        )
    return optimizer


class OwnScheduler:
    """A user's schedule, which is stepped like those of timm."""

    def __init__(
        self,
        own: OwnSchedule,
        recipe: Recipe,
        optimizer: torch.optim.Optimizer,
        updates: int,
    ) -> None:
        self._own = own
        self._options = parse_options(recipe.schedule_options)
        self._optimizer = optimizer
        # An optimizer may give its groups rates of their own.
        self._peaks = [group["lr"] for group in optimizer.param_groups]
        self._start = recipe.warmup_lr or recipe.rate / 1000
        self._warmup = recipe.warmup_epochs * updates
        self._total = recipe.epochs * updates

    def step_update(self, number: int) -> None:
        """Sets the learning rate that follows so many updates."""
        groups = zip(self._optimizer.param_groups, self._peaks, strict=True)
        for group, peak in groups:
            # Decay by layer gives groups a scale.
            group["lr"] = self._rate(number, peak) * group.get("lr_scale", 1.0)

    def _rate(self, number: int, peak: float) -> float:
        if number < self._warmup:
            return self._start + number / self._warmup * (peak - self._start)
        share = number / self._total
        factor = float(self._own(share, **self._options))
        if not 0 <= factor < math.inf:
            raise AblateError(
                f"schedule {self._own.name} returns {factor} at {share:g}; it must return"
                " a finite number from 0"
            )
        return factor * peak


def make_schedule(
    recipe: Recipe, optimizer: torch.optim.Optimizer, updates: int
) -> Any:
    """Returns timm's schedule, stepped at each update.

    Its value depends only on the number of the update.
    """
    own = named_part("schedule", recipe.schedule)
    if own is not None:
        schedule = OwnScheduler(own, recipe, optimizer, updates)
        schedule.step_update(0)
        return schedule
    options = parse_options(recipe.schedule_options)
    name = recipe.schedule
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


def refusal(recipe: Recipe) -> str:
    """Returns why no trial can train with a recipe's optimizer and schedule, which exist.

    Empty if one can.

    Raises:
        PartError: a user's optimizer or schedule has a mistake.
    """
    optimizer = named_part("optimizer", recipe.optimizer)
    return _refusal(recipe, optimizer, named_part("schedule", recipe.schedule))


@cache
def _refusal(
    recipe: Recipe, optimizer: OwnOptimizer | None, schedule: OwnSchedule | None
) -> str:
    """The same, kept for each recipe and the user's parts that it names."""
    for field, own, try_out, check in (
        ("optimizer", optimizer, _try_out, _optimizer_refusal),
        ("schedule", schedule, _try_schedule, _schedule_refusal),
    ):
        try:
            problem = _own_refusal(recipe, own, try_out) if own else check(recipe)
        except ValueError as error:
            problem = f"{field}_options: {error}"
        if problem:
            return f"recipe.{problem}"
    return ""


def _optimizer_refusal(recipe: Recipe) -> str:
    name = recipe.optimizer.removeprefix(LOOKAHEAD)
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
    fields = {**_FIELDS, **(_ADAM_FIELDS if recipe.optimizer in ADAMS else {})}
    if recipe.optimizer == "sgd":
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


def _try_schedule(recipe: Recipe) -> None:
    """Takes ten learning rates per epoch."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=recipe.rate)
    schedule = make_schedule(recipe, optimizer, updates=10)
    for update in range(10 * recipe.epochs):
        schedule.step_update(update)


def _own_refusal(
    recipe: Recipe,
    own: OwnOptimizer | OwnSchedule,
    try_out: Callable[[Recipe], None],
) -> str:
    """Returns why a user's optimizer or schedule cannot have the recipe's options.

    Raises:
        PartError: it has a mistake.
    """
    field = f"{own.part}_options"
    parameters = dict(inspect.signature(own.function).parameters)
    takes_all = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    allowed = [
        name
        for name, parameter in list(parameters.items())[1:]
        if name != "lr" and parameter.kind is not parameter.VAR_KEYWORD
    ]
    for option in parse_options(getattr(recipe, field)):
        if option == "lr":
            return f"{field}: write recipe.lr instead of lr"
        if option not in allowed and not takes_all:
            if not allowed:
                return f"{field}: {own.part} {own.name} has no option {option}"
            what = f"option of {own.part} {own.name}"
            return f"{field}: {unknown(what, option, allowed)}"
    try:
        try_out(recipe)
    except AblateError as error:
        return str(error)
    except Exception as error:
        # Any error of the user's function would come in each trial.
        raise PartError(
            f"{own.part} {own.name} cannot be used: {error_text(error)}"
        ) from error
    return ""


def _schedule_refusal(recipe: Recipe) -> str:
    name = recipe.schedule
    options = parse_options(recipe.schedule_options)
    allowed = _SCHEDULE_OPTIONS[name]
    for option in options:
        if option not in allowed:
            if not allowed:
                return f"schedule_options: schedule {name} has no option {option}"
            what = f"option of schedule {name}"
            return f"schedule_options: {unknown(what, option, allowed)}"
    needed = _NEEDED.get(name, "")
    if needed not in ("", *options):
        return (
            f"schedule {name} needs {needed}, as in schedule_options:"
            f" {{{needed}: {_EXAMPLES[needed]}}}"
        )
    try:
        _try_schedule(recipe)
    except Exception as error:
        return f"schedule {name} cannot be used: {shortened(str(error))}"
    return ""


_EXAMPLES = {
    "decay_rate": "2.0",
    "decay_epochs": "30",
    "decay_milestones": "[10, 15]",
}
