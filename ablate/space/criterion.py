"""The sections `metric`, `margin` and `primary`: by what cells are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import get_args

from ablate.errors import shortened, unknown
from ablate.own import registry
from ablate.records import METRIC_NAME, Criterion, Direction, Level, Metric, Space
from ablate.space.context import Context
from ablate.space.primary import read_primary
from ablate.space.schema import Bounded, MetricForm
from ablate.tasks import USUAL, Task, tasks

WORDS = {"max": "larger", "min": "smaller"}


def read_criterion(
    context: Context, levels: Mapping[str, tuple[Level, ...]], task: Task, head: str
) -> Criterion:
    """By what cells are compared."""
    metrics = _metrics(context, task, head)
    objectives = _objectives(context, metrics)
    # The first metric decides; a search may have further objectives.
    name, direction = next(iter(objectives.items()))
    margin = _margin(context, name, metrics)
    over = _over(context, name)
    compared = next((metric for metric in metrics if metric.name == name), None)
    if over is not None and compared is not None:
        mean = compared.over_last(over)
        if any(metric.name == mean.name for metric in metrics):
            context.wrong(
                ("metric", name, "over"),
                f"the column of this mean is called {mean.name}, and there is a metric of"
                " this name; give that metric another name",
            )
        name, metrics = mean.name, (*metrics, mean)
        _, *costs = objectives.items()
        objectives = {name: direction, **dict(costs)}
    return Criterion(
        metric=name,
        direction=direction,
        objectives=objectives,
        metrics=metrics,
        margin=margin,
        primary=read_primary(context, levels),
    )


def _metrics(context: Context, task: Task, head: str) -> tuple[Metric, ...]:
    """What training measures: the metrics of the trainer, else of the task.

    A metric of the user's own is measured only in a study that compares by it.
    """
    if context.form.trainer is not None and context.trainer is not None:
        return context.trainer.metrics
    metrics = task.metrics_with(head)
    own_metrics = registry.besides("metric", [metric.name for metric in metrics])
    # A user's metric receives logits and labels, which only a classifier has.
    if task.name != USUAL:
        return metrics
    chosen = [
        own_metrics[name].shown for name in context.form.metric if name in own_metrics
    ]
    return (*metrics, *chosen)


def _objectives(context: Context, metrics: Sequence[Metric]) -> dict[str, Direction]:
    """The metric that decides and, in a search, the costs beside it.

    Notes names that are neither, and a second metric of training: a search optimises
    one.
    """
    compared = [metric.name for metric in metrics if metric.compared]
    directions = _directions(context, metrics)
    if context.form.trainer is not None and context.trainer is None:
        # The mistake is noted; the metrics are not known.
        return directions or {metrics[0].name: metrics[0].direction}
    if not directions:
        return {metrics[0].name: metrics[0].direction}
    costs = get_args(Bounded)
    first, *others = directions
    if first not in compared:
        context.wrong(
            ("metric",),
            f"the first metric must be one of {', '.join(compared)}, as in"
            f" {{{compared[0]}: {metrics[0].direction}}}; found {shortened(first)}",
        )
    _check_direction(context, metrics, first, directions[first])
    for name in others:
        where = ("metric", name)
        if name in compared and context.form.strategy is None:
            # `read_design` notes that a design has one metric.
            continue
        if name in compared:
            context.wrong(
                where,
                f"metric: {name} is a second metric of training beside {first}; further"
                f" objectives must be costs, as in {{{compared[0]}:"
                f" {metrics[0].direction}, flops: min}}",
            )
        elif name not in costs:
            context.wrong(
                where, partial(unknown, "objective", name, [*compared, *costs])
            )
        elif isinstance(context.form.metric[name], MetricForm):
            context.wrong(
                where,
                f"metric: {name} is a cost, which no epoch changes; write {name}:"
                f" {directions[name]}",
            )
    return directions


def _directions(context: Context, metrics: Sequence[Metric]) -> dict[str, Direction]:
    """The declared metrics with their directions, or those that they have by default."""
    by_default = {metric.name: metric.direction for metric in metrics}
    directions: dict[str, Direction] = {}
    for name, declared in context.form.metric.items():
        if isinstance(declared, MetricForm):
            directions[name] = declared.direction or by_default.get(name, "min")
        else:
            directions[name] = declared
    return directions


def _check_direction(
    context: Context, metrics: Sequence[Metric], name: str, direction: Direction
) -> None:
    """Notes a direction that contradicts what the metric says."""
    built_in = [metric for task in tasks().values() for metric in task.metrics]
    for metric in metrics:
        if metric.name != name or metric.direction == direction:
            continue
        if metric in built_in:
            wrong = "is the wrong way round:"
        else:
            wrong = "contradicts your file, in which"
        context.wrong(
            ("metric", name),
            f"metric: {{{name}: {direction}}} {wrong} {name} is better when it is"
            f" {WORDS[metric.direction]}; write {{{name}: {metric.direction}}}, or leave"
            " `metric` out",
        )


def _over(context: Context, name: str) -> int | None:
    """The number of last epochs whose mean is compared; None: the last epoch counts."""
    declared = context.form.metric.get(name)
    return declared.over if isinstance(declared, MetricForm) else None


def check_over(context: Context, space: Space) -> None:
    """Notes a mean over last epochs that no trial has."""
    metric = space.criterion.compared
    if not metric.of:
        return
    where = ("metric", metric.of, "over")
    if not METRIC_NAME.fullmatch(metric.name):
        context.wrong(
            where,
            f"the column of this mean is called {metric.name}, which has"
            f" {len(metric.name)} characters of at most 20; give the metric a shorter"
            " name",
        )
    if space.data.validation:
        context.wrong(
            where,
            "with data.validation, each epoch is measured on the validation split, and"
            " the test images once, at the end; leave out `over` or data.validation",
        )
    lengths = ("recipe.steps", "recipe.images")
    if (
        space.recipe.steps
        or space.recipe.images
        or {*lengths} & {*space.factors.levels}
    ):
        # The plan knows how many epochs they are.
        return
    levels = space.factors.levels.get("recipe.epochs", (space.recipe.epochs,))
    fewest = min(int(epochs) for epochs in levels)
    if fewest < metric.over:
        context.wrong(
            where,
            f"a mean over the last {metric.over} epochs needs as many, and a trial has"
            f" {fewest} (recipe.epochs); write over: {fewest} at most",
        )


def _margin(context: Context, name: str, metrics: Sequence[Metric]) -> float:
    """The margin of the space, else that of its metric."""
    if context.form.margin is not None:
        return context.form.margin
    # Without a metric of this name, `_objectives` has noted a mistake.
    return next((metric.margin for metric in metrics if metric.name == name), 0.0)
