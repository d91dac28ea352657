"""What networks are trained for.

Each file of this package is one task: its metrics, and where its data, heads, loss and
evaluation are. It is found through its record `TASK`. Only the file of a task knows the
names of its metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ablate.errors import UnknownName, unknown
from ablate.own import discovery
from ablate.records import Architecture
from ablate.tasks.task import Task

# The task of a space that names none.
USUAL = "classification"


@cache
def tasks() -> Mapping[str, Task]:
    """Returns every task by name."""
    return discovery.parts(__name__, __path__, "TASK", ("task",))


def find(name: str) -> Task:
    """Returns the task of that name. Raises UnknownName if there is none."""
    if name not in tasks():
        raise UnknownName(unknown("task", name, tuple(tasks())))
    return tasks()[name]


def with_head(head: str) -> Task | None:
    """Returns the task that has a head; None if no task has it."""
    return next((task for task in tasks().values() if head in task.heads), None)


def chance_of(task: str, classes: int, metric: str) -> float | None:
    """Returns the metric of a network that has learnt nothing, in %.

    None if it is unknown: for a task or a metric of the user, or for one class.
    """
    if task not in tasks() or classes < 2:
        return None
    return tasks()[task].chance(classes).get(metric)


def of(architecture: Architecture) -> Task:
    """Returns the task that a network is made for, by its head.

    Raises UnknownName if no task has this head.
    """
    if not architecture.head:
        return tasks()[USUAL]
    task_of_head = with_head(architecture.head)
    if task_of_head is not None:
        return task_of_head
    head_names = [head for task in tasks().values() for head in task.heads]
    raise UnknownName(unknown("head", architecture.head, head_names))


__all__ = ["USUAL", "Task", "find", "of", "tasks", "with_head"]
