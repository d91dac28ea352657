"""The sections `data`, `recipe`, `resources`, `scheduler` and `diagnostics`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from ablate import data, diagnostics
from ablate.errors import (
    AblateError,
    DataError,
    DiagnosticError,
    UnknownName,
    shortened,
    unknown,
)
from ablate.learning.named_parts import NAMING
from ablate.learning.recipe_check import recipe_problem
from ablate.records import (
    LENGTHS,
    Data,
    Diagnostics,
    Recipe,
    Resources,
    Scheduler,
    Space,
)
from ablate.space.context import Context, literal
from ablate.space.levels import check_named
from ablate.space.own import own_data, own_recipe
from ablate.space.recipes import RECIPES, preset
from ablate.space.task import check_data, unread_of
from ablate.tasks import Task
from ablate.text.document import Where


def read_diagnostics(context: Context) -> Diagnostics:
    form: Any = context.form.diagnostics
    if isinstance(form, bool):
        if form:
            return Diagnostics(diagnostics.usual())
        return Diagnostics()
    names = form if isinstance(form, list) else form.names
    seen = set[str]()
    for index, name in enumerate(names or ()):
        if name in seen:
            context.wrong(
                ("diagnostics",), f"diagnostics: {shortened(name)} is a duplicate"
            )
            continue
        seen.add(name)
        if name not in diagnostics.catalogue():
            if isinstance(form, list):
                where: Where = ("diagnostics", index)
            else:
                where = ("diagnostics", "names", index)
            context.wrong(
                where, partial(unknown, "diagnostic", name, diagnostics.catalogue())
            )
            continue
        try:
            diagnostics.require([name])
        except DiagnosticError as error:
            context.wrong(("diagnostics",), str(error))
    if isinstance(form, list):
        return Diagnostics(tuple(form))
    return Diagnostics(
        tuple(names) if names else diagnostics.usual(), form.images, form.every
    )


def read_scheduler(context: Context) -> Scheduler:
    form: Any = context.form.scheduler
    if isinstance(form, str):
        names = literal(Scheduler, "name")
        if form not in names:
            context.wrong(("scheduler",), unknown("scheduler", form, names))
            return Scheduler()
        return Scheduler(name=cast(Any, form))
    fields = form.model_dump(exclude_none=True)
    scheduler = Scheduler(**fields)
    for name in fields:
        if name != "name" and name not in scheduler.read:
            context.wrong(
                ("scheduler", name),
                f"{name} is not read by scheduler {scheduler.name}; leave it out",
            )
    return scheduler


def read_data(context: Context, task: Task) -> Data:
    if context.form.trainer is not None:
        return own_data(context.form.trainer)
    options = _data_options(context)
    if not isinstance(context.form.data, str):
        second = context.form.data.path
        if second is not None and second != options["path"]:
            context.wrong(
                ("data", "path"),
                f"data has two files: name {shortened(options['path'])} and path"
                f" {shortened(second)}; leave path out",
            )
    check_data(context, task, options["name"])
    try:
        return data.describe(**options, background=task.background)
    except DataError as error:
        # The message names the wrong key as `data.KEY`.
        key = next((key for key in options if f"data.{key}" in str(error)), "path")
        context.wrong(("data", key), str(error))
    except AblateError as error:
        if isinstance(error, UnknownName):
            where: Where = ("data", "name")
        else:
            where = ("data", "path")
        context.wrong(where, str(error))
    # A placeholder, so that the other sections are still checked.
    return Data(name=options["name"], path="", image_size=1, channels=1, classes=1)


def _data_options(context: Context) -> dict[str, Any]:
    """Returns the options of the data. The name of an .npz file is its path."""
    form = context.form.data
    if isinstance(form, str):
        options: dict[str, Any] = {"name": form}
    else:
        options = form.model_dump(exclude_none=True)
    if options["name"].endswith(".npz"):
        return options | {"name": "npz", "path": options["name"]}
    return options


def _data_name(context: Context) -> str:
    return str(_data_options(context)["name"])


def read_recipe(context: Context, task: Task) -> Recipe:
    if context.form.trainer is not None:
        return own_recipe(context)
    form: Any = context.form.recipe
    if isinstance(form, str):
        if form not in RECIPES:
            context.wrong(("recipe",), unknown("recipe", form, RECIPES))
            return Recipe()
        return _preset(context, form, task, ("recipe",))
    fields = form.model_dump(exclude_none=True, exclude={"preset"})
    begun = _preset(context, form.preset, task, ("recipe", "preset"))
    recipe = replace(begun, **fields)
    _check_fields(context, recipe, fields)
    lengths = {f"recipe.{name}" for name in LENGTHS}
    has_other_length = bool(recipe.steps or recipe.images)
    varies = {*context.levels, *context.tuned}
    if has_other_length or (lengths | {"recipe.warmup_epochs"}) & varies:
        # The plan fits or refuses the recipe of each cell.
        return recipe
    if warmup_fits(context):
        return recipe.fitted()
    if recipe.refusal():
        context.wrong(("recipe", "epochs"), f"recipe: {recipe.refusal()}")
    return recipe


def _check_fields(context: Context, recipe: Recipe, fields: Mapping[str, Any]) -> None:
    """Checks the names in a recipe, and that training reads what it declares."""
    problems = len(context.problems)
    _check_length(context, fields)
    for name in NAMING:
        if name in fields:
            check_named(context, ("recipe", name), name, fields[name])
    varies = (*context.levels, *context.tuned)
    if any(name.startswith("recipe.") for name in varies):
        # The plan checks the recipe of each cell.
        return
    for name, when in recipe.unread().items():
        if name in fields:
            context.wrong(
                ("recipe", name),
                f"recipe.{name} is not read unless {when}; leave it out",
            )
    if len(context.problems) == problems and (problem := recipe_problem(recipe)):
        context.wrong(("recipe",), problem)


def _check_length(context: Context, fields: Mapping[str, Any]) -> None:
    """Checks that the length of a training is given in one way."""
    given = [name for name in LENGTHS if fields.get(name)]
    given += [
        f"recipe.{name}" for name in LENGTHS if f"recipe.{name}" in context.levels
    ]
    if len({name.removeprefix("recipe.") for name in given}) > 1:
        context.wrong(
            ("recipe",),
            f"recipe: {' and '.join(given)} both give the length of the training; leave"
            " one of them out",
        )
    elif given != ["epochs"] and given and context.form.scheduler != "fifo":
        context.wrong(
            ("scheduler",),
            "a scheduler that stops trials compares them by epochs; give the length as"
            " recipe.epochs",
        )


def _preset(context: Context, name: str, task: Task, where: Where) -> Recipe:
    """A preset. Notes what it has and the task does not read."""
    recipe = preset(name, _data_name(context))
    lost = unread_of(recipe, task)
    if lost:
        context.wrong(
            where,
            f"the recipe {name} has {', '.join(lost)}, which task {task.name} does not"
            " read; write the fields instead, as in recipe: {epochs: 12, lr: 1e-4}",
        )
    return recipe


def warmup_fits(context: Context) -> bool:
    """Whether the recipe leaves the warm-up to its preset.

    If so, the warm-up is shortened where it would leave no epoch after it.
    """
    if context.form.trainer is not None:
        return False
    form: Any = context.form.recipe
    return isinstance(form, str) or form.warmup_epochs is None


def read_resources(context: Context) -> Resources:
    form: Any = context.form.resources
    fields = form.model_dump(exclude_none=True)
    if context.form.trainer is not None:
        return _own_resources(context, fields)
    # By default, one process per GPU and one core per process.
    processes = fields.setdefault("processes", max(1, int(fields.get("gpus", 0))))
    fields.setdefault("cpus", processes)
    resources = Resources(**fields)
    _check_whole(context, resources)
    if processes != max(1, int(resources.gpus)) and resources.gpus:
        context.wrong(
            ("resources", "processes"),
            f"resources.processes = {processes}, but with resources.gpus ="
            f" {resources.gpus:g} a trial has one process per GPU; leave out processes"
            " or gpus",
        )
    if resources.cpus < processes > 1:
        context.wrong(
            ("resources", "cpus"),
            f"resources.cpus = {resources.cpus:g} is less than one for each of"
            f" {processes} processes; set cpus: {processes}",
        )
    return resources


def _check_whole(context: Context, resources: Resources) -> None:
    for name, number in (("cpus", resources.cpus), ("gpus", resources.gpus)):
        if number > 1 and number != int(number):
            context.wrong(
                ("resources", name),
                f"resources.{name} = {number:g}: above 1 it must be a whole number",
            )


def _own_resources(context: Context, fields: dict[str, Any]) -> Resources:
    """What a trial of the user's own training occupies: one process, any GPUs."""
    if fields.pop("processes", 1) != 1:
        context.wrong(
            ("resources", "processes"),
            f"trainer {context.form.trainer} runs in one process, and may start others"
            " itself; leave processes out",
        )
    resources = Resources(**fields)
    _check_whole(context, resources)
    return resources


def check_shares(context: Context, space: Space) -> None:
    """Checks that the processes of a trial can share each batch evenly.

    The two images of a mixed pair must belong to the same process.
    """
    processes, levels = space.resources.processes, space.factors.levels
    mixes = space.recipe.mixes or any(
        any(levels.get(name, ())) for name in ("recipe.mixup", "recipe.cutmix")
    )
    # Image i of a batch is mixed with image n - 1 - i. A process gets a part from each
    # half, so that both images of a pair are in one process.
    parts = processes * (2 if mixes else 1)
    modes = {*levels.get("recipe.mixup_mode", ()), space.recipe.mixup_mode} - {"batch"}
    if processes > 1 and mixes and modes:
        if "recipe.mixup_mode" in levels:
            factor: Where = ("factors", "recipe.mixup_mode")
        else:
            factor = ("resources",)
        context.wrong(
            factor,
            f"recipe.mixup_mode = {min(map(str, modes))} does not work with"
            f" {processes} processes that share a batch; use recipe.mixup_mode: batch,"
            " or one process",
        )
    for size in levels.get("recipe.batch_size", (space.recipe.batch_size,)):
        if processes > 1 and int(size) % parts:
            if "recipe.batch_size" in levels:
                where: Where = ("factors", "recipe.batch_size")
            else:
                where = ("resources",)
            context.wrong(
                where,
                f"recipe.batch_size = {size} cannot be shared by {processes}"
                f" processes{' that mix pairs' if mixes else ''}; it must be a"
                f" multiple of {parts}",
            )
