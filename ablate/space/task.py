"""The sections `task` and `head` of a space: what the networks are trained for."""

from __future__ import annotations

from functools import partial
from typing import Any

from ablate.data import SETS
from ablate.errors import UnknownName, shortened, unknown
from ablate.records import Recipe, Resources
from ablate.space.context import Context
from ablate.tasks import USUAL, Task, find, tasks, with_head


def read_task(context: Context) -> Task:
    """The task; that of classification if the space names an unknown one."""
    name = context.form.task
    if context.form.trainer is not None:
        return find(USUAL)
    try:
        return find(name)
    except UnknownName as error:
        context.wrong(("task",), str(error))
        return find(USUAL)


def read_head(context: Context, task: Task) -> str:
    """The head; empty for a classifier."""
    head = context.form.head
    if _is_unknown(context):
        # The mistake is noted; what belongs to the task is not known.
        return ""
    if head is None:
        return task.heads[0] if task.heads else ""
    if head in task.heads:
        return head
    other = with_head(head)
    if not task.heads:
        hint = "leave head out"
        if other is not None:
            hint += f", or write task: {other.name}"
        context.wrong(
            ("head",),
            f"task {task.name} has the backbone's own classifier and no other head;"
            f" {hint}",
        )
        return ""
    if other is not None:
        context.wrong(
            ("head",),
            f"head {head} belongs to task {other.name}; task {task.name} has"
            f" {', '.join(task.heads)}",
        )
    else:
        context.wrong(
            ("head",), partial(unknown, f"head of task {task.name}", head, task.heads)
        )
    return task.heads[0]


def _is_unknown(context: Context) -> bool:
    return context.form.task not in tasks()


def check_data(context: Context, task: Task, name: str) -> None:
    """Checks that a data set has what the task learns from."""
    # A data set of the user's own, or one that is unknown, has no scenes.
    shows_scenes = name in SETS and SETS[name].kind == "scenes"
    if _is_unknown(context) or name in task.data or not (task.data or shows_scenes):
        return
    data_sets = task.data or [
        data_set.name for data_set in SETS.values() if data_set.kind != "scenes"
    ]
    if "data" not in context.form.model_fields_set:
        context.wrong(
            ("task",),
            f"task {task.name} needs data; write data: NAME, where NAME is one of"
            f" {', '.join(data_sets)}",
        )
        return
    hint = ""
    if shows_scenes:
        hint = "; for objects or places, write task: detection or task: segmentation"
    where = ("data",) if isinstance(context.form.data, str) else ("data", "name")
    context.wrong(
        where,
        f"data: {shortened(name)} has nothing for task {task.name} to learn from; data"
        f" sets that have it: {', '.join(data_sets)}{hint}",
    )


def unread_of(recipe: Recipe, task: Task) -> list[str]:
    """The fields that differ from their defaults and that the task does not read."""
    default = Recipe()
    return [
        name
        for name in sorted(task.unread)
        if getattr(recipe, name) != getattr(default, name)
    ]


def check_task(context: Context, task: Task, resources: Resources) -> None:
    """Notes what belongs to classification only, in a space of another task."""
    if task.name == USUAL:
        return
    form: Any = context.form
    if not isinstance(form.recipe, str):
        for name in sorted(form.recipe.model_fields_set & task.unread):
            context.wrong(
                ("recipe", name),
                f"task {task.name} does not read recipe.{name}; leave it out",
            )
    for name in context.levels:
        if name.startswith("recipe.") and name.removeprefix("recipe.") in task.unread:
            context.wrong(
                ("factors", name), f"task {task.name} does not read {name}; remove it"
            )
    if form.teacher is not None:
        context.wrong(
            ("teacher",),
            f"task {task.name} does not learn from a teacher; leave it out",
        )
    if resources.processes > 1:
        context.wrong(
            ("resources", "processes"),
            f"task {task.name} trains in one process; leave processes out, and set gpus"
            " to 1 at most",
        )
