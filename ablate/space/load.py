"""Reads a YAML document into a `Space`.

First pydantic checks the shape (`schema`, `shape`). Then each section checks names,
levels and combinations (`backbone`, `levels`, `cells`, `training`). A section notes its
mistakes in the `Context` and goes on, so that one error lists all of them, each with
its line. Nothing is dropped, converted or guessed: a key or level that is accepted is
read somewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from ablate import registry
from ablate.advice import option
from ablate.document import parse, read_text
from ablate.errors import (
    AblateError,
    SpaceError,
    shortened,
    unknown,
)
from ablate.parts import own_metrics
from ablate.records import (
    Direction,
    Looks,
    Metric,
    Space,
)
from ablate.space.backbone import read_backbone, read_pretrained, read_teacher
from ablate.space.cells import (
    read_control,
    read_corner,
    read_design,
    read_limits,
    read_published,
    read_rows,
    read_strategy,
)
from ablate.space.context import Context
from ablate.space.labels import read_labels
from ablate.space.levels import check_listed, check_names
from ablate.space.own import check_own
from ablate.space.primary import read_primary
from ablate.space.schema import (
    AdaptiveForm,
    Bounded,
    FinalForm,
    SpaceForm,
)
from ablate.space.seeds import read_looks, read_seeds, read_vary
from ablate.space.shape import shape_problems
from ablate.space.task import check_task, read_head, read_task
from ablate.space.training import (
    check_shares,
    read_data,
    read_diagnostics,
    read_recipe,
    read_resources,
    read_scheduler,
    warmup_fits,
)
from ablate.tasks import USUAL, Task, tasks

# The longest name of a study, which is the size of the column in the store. Not every
# database enforces that size.
LONGEST_NAME = 200
WORDS = {"max": "larger", "min": "smaller"}
# Seeds between two looks, unless the space says otherwise.
LOOK_STEP = 3


def read(path: Path) -> Space:
    """The space that a file declares.

    Raises:
        SpaceError: the file is missing, or has mistakes; each names its line.
    """
    return load(read_text(path), str(path))


def until_decided(space: Space, most: int) -> Space:
    """The space with seeds that are added until the study is decided.

    Args:
        most: the most seeds of a cell, as `seeds: {until_decided: N}` declares them.

    Raises:
        AblateError: the space is a search, stops trials early, lists its seeds, or
            declares them as final.
    """
    name = option("until_decided")
    if space.strategy is not None:
        raise AblateError(
            f"{name} {most} works for designs only, and {space.name} is a search;"
            " write seeds: {adaptive: N} instead"
        )
    if space.final:
        raise AblateError(
            f"{name} {most} adds seeds, and {space.name} declares its seeds as final:"
            f" write seeds: {{until_decided: {most}}} instead"
        )
    if space.scheduler.name != "fifo":
        raise AblateError(
            f"{name} {most} compares trials that are trained to their end; leave the"
            " scheduler out"
        )
    if space.seeds != tuple(range(len(space.seeds))):
        raise AblateError(
            f"{name} {most} takes seeds 0, 1, ...; {space.name} lists its seeds: write"
            " a number of them"
        )
    looks = space.looks
    if looks is None:
        # A verdict needs a spread, and a spread needs two seeds.
        looks = Looks(first=max(2, len(space.seeds)), most=most, step=LOOK_STEP)
    if looks.first >= most:
        raise AblateError(
            f"{name} {most} is the most seeds of a cell, and must be more than the"
            f" {looks.first} seeds that each cell begins with"
        )
    return replace(space, seeds=tuple(range(most)), looks=replace(looks, most=most))


def load(text: str, file: str) -> Space:
    """The space that a YAML text declares.

    Args:
        file: the name of the text in messages; it names the study, unless the text does.

    Raises:
        SpaceError: the text has mistakes; each names its line.
    """
    document = parse(text, file)
    try:
        form = SpaceForm.model_validate(document.values)
    except ValidationError as error:
        raise SpaceError(shape_problems(document, error)) from None
    return _read(Context(document, form))


def study_name(file: str) -> str:
    """The name of a study that does not declare one.

    It is the file's path below search_spaces/, or else the file's name, without its
    ending.
    """
    parts = Path(file).with_suffix("").parts
    if "search_spaces" in parts:
        # The last folder of that name, if there are several.
        below = parts[len(parts) - parts[::-1].index("search_spaces") :]
    else:
        below = parts[-1:]
    names = [re.sub(r"[^\w.-]", "-", part) for part in below or parts[-1:]]
    return "/".join(name.strip("-.") or "study" for name in names)


def _read(context: Context) -> Space:
    """The space of a document, section by section.

    Raises:
        SpaceError: some section has a mistake; the error lists them all.
    """
    form = context.form
    backbone, sizes = read_backbone(context)
    task = read_task(context)
    head = read_head(context, task)
    metrics = _metrics(context, task, head)
    objectives = _objectives(context, metrics)
    # The first metric decides; a search may have further objectives.
    metric = next(iter(objectives))
    levels = {name: tuple(found) for name, found in form.factors.items()}
    fixed = {**sizes, **form.fixed}
    design = read_design(context)
    check_names(context, design, levels, sizes)
    rows = read_rows(context, design, levels)
    if design.name == "rows" and form.baseline:
        context.wrong(
            ("baseline",),
            "with design rows, row 0 is the baseline; leave `baseline` out",
        )
    first = {name: listed[0] for name, listed in levels.items() if listed}
    last = {name: listed[-1] for name, listed in levels.items() if listed}
    baseline = read_corner(context, "baseline", form.baseline, levels, first)
    full = read_corner(context, "full", form.full, levels, last)
    if form.full and not design.two_levels:
        context.wrong(
            ("full",),
            "full is read by the designs leave-one-out, add-one-in, fractional and"
            f" plackett-burman, not by {design.name}; leave it out",
        )
    resources = read_resources(context)
    check_task(context, task, resources)
    space = Space(
        name=_name(context),
        named=form.name is not None,
        document=context.document.text,
        question=form.question,
        expect=form.expect,
        source=form.source,
        backbone=backbone,
        factors=levels,
        fixed=fixed,
        baseline=rows[0] if rows else baseline,
        full=full,
        design=design,
        seeds=read_seeds(context),
        vary=read_vary(context),
        data=read_data(context, task),
        recipe=read_recipe(context, task),
        metric=metric,
        metrics=metrics,
        direction=objectives[metric],
        objectives=objectives,
        strategy=read_strategy(context, levels),
        adaptive=isinstance(form.seeds, AdaptiveForm),
        final=isinstance(form.seeds, FinalForm),
        looks=read_looks(context),
        margin=_margin(context, metric, metrics),
        primary=read_primary(context, levels),
        labels=read_labels(context, levels),
        control=read_control(context, levels),
        limits=read_limits(context),
        resources=resources,
        keep=form.keep,
        scheduler=read_scheduler(context),
        rows=rows,
        published=read_published(context, head),
        pretrained=read_pretrained(context),
        teacher=None if form.trainer else read_teacher(context),
        diagnostics=read_diagnostics(context),
        warmup_fits=warmup_fits(context),
        trainer=form.trainer or "",
        task=task.name,
        head=head,
        parts=registry.named(),
    )
    if form.trainer is not None:
        check_own(context)
    # These two checks need a space that is otherwise correct.
    if rows and not context.problems:
        check_listed(context, rows, levels)
    if not context.problems and form.trainer is None:
        check_shares(context, space)
    if context.problems:
        # Two sections may note the same mistake.
        raise SpaceError(dict.fromkeys(context.problems))
    return space


def _metrics(context: Context, task: Task, head: str) -> tuple[Metric, ...]:
    """What training measures: the metrics of the trainer, else of the task.

    A metric of the user's own is measured only in a study that compares by it.
    """
    if context.form.trainer is not None and context.trainer is not None:
        return context.trainer.metrics
    metrics = task.metrics_with(head)
    own = own_metrics(metrics)
    # A user's metric receives logits and labels, which only a classifier has.
    if task.name != USUAL:
        return metrics
    chosen = [own[name].shown for name in context.form.metric if name in own]
    return (*metrics, *chosen)


def _objectives(context: Context, metrics: Sequence[Metric]) -> dict[str, Direction]:
    """The metric that decides and, in a search, the costs beside it.

    Notes names that are neither, and a second metric of training: a search optimises
    one.
    """
    known = [metric.name for metric in metrics if metric.compared]
    said = context.form.metric
    if context.form.trainer is not None and context.trainer is None:
        # The mistake is noted; the metrics are not known.
        return dict(said) or {metrics[0].name: metrics[0].direction}
    if not said:
        return {metrics[0].name: metrics[0].direction}
    costs = get_args(Bounded)
    first, *others = said
    if first not in known:
        context.wrong(
            ("metric",),
            f"the first metric must be one of {', '.join(known)}, as in"
            f" {{{known[0]}: {metrics[0].direction}}}; found {shortened(first)}",
        )
    _check_direction(context, metrics, first)
    for name in others:
        where = ("metric", name)
        if name in known and context.form.strategy is None:
            # `read_design` notes that a design has one metric.
            continue
        if name in known:
            context.wrong(
                where,
                f"metric: {name} is a second metric of training beside {first}; further"
                f" objectives must be costs, as in {{{known[0]}:"
                f" {metrics[0].direction}, flops: min}}",
            )
        elif name not in costs:
            context.wrong(where, partial(unknown, "objective", name, [*known, *costs]))
    return dict(said)


def _check_direction(context: Context, metrics: Sequence[Metric], name: str) -> None:
    """Notes a direction that contradicts what the metric says."""
    said = context.form.metric[name]
    built_in = [metric for task in tasks().values() for metric in task.metrics]
    for metric in metrics:
        if metric.name != name or metric.direction == said:
            continue
        if metric in built_in:
            wrong = "is the wrong way round:"
        else:
            wrong = "contradicts your file, in which"
        context.wrong(
            ("metric", name),
            f"metric: {{{name}: {said}}} {wrong} {name} is better when it is"
            f" {WORDS[metric.direction]}; write {{{name}: {metric.direction}}}, or leave"
            " `metric` out",
        )


def _margin(context: Context, name: str, metrics: Sequence[Metric]) -> float:
    """The margin of the space, else that of its metric."""
    if context.form.margin is not None:
        return context.form.margin
    # Without a metric of this name, `_objectives` has noted a mistake.
    return next((metric.margin for metric in metrics if metric.name == name), 0.0)


def _name(context: Context) -> str:
    """The study's name: what the document says, else that of its file."""
    name = context.form.name or study_name(context.document.file)
    if len(name) > LONGEST_NAME:
        reason = (
            f"a name has at most {LONGEST_NAME} characters, this one has {len(name)}"
        )
        if not context.form.name:
            reason += "; the file names the study: give it a name, as in `name: mine`"
        context.wrong(("name",), f"name: {reason}")
    return name
