"""Reads a YAML document into a `Space`.

First pydantic checks the shape (`schema`, `shape`). Then each section checks names,
levels and combinations (`backbone`, `levels`, `cells`, `training`). A section notes its
mistakes in the `Context` and goes on, so that one error lists all of them, each with
its line. Nothing is dropped, converted or guessed: a key or level that is accepted is
read somewhere.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from ablate.advice import option
from ablate.document import parse, read_text
from ablate.errors import (
    AblateError,
    SpaceError,
)
from ablate.metrics import METRICS
from ablate.records import (
    Looks,
    Space,
)
from ablate.space.backbone import read_backbone, read_pretrained, read_teacher
from ablate.space.cells import (
    read_control,
    read_corner,
    read_design,
    read_limits,
    read_looks,
    read_published,
    read_rows,
    read_seeds,
    read_strategy,
)
from ablate.space.context import Context
from ablate.space.levels import check_listed, check_names
from ablate.space.schema import (
    AdaptiveForm,
    SpaceForm,
)
from ablate.space.shape import shape_problems
from ablate.space.training import (
    check_shares,
    read_data,
    read_diagnostics,
    read_recipe,
    read_resources,
    read_scheduler,
    warmup_fits,
)

# The longest name of a study, which is the size of the column in the store. Not every
# database enforces that size.
LONGEST_NAME = 200
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
        AblateError: the space is a search, stops trials early, or lists its seeds.
    """
    name = option("until_decided")
    if space.strategy is not None:
        raise AblateError(
            f"{name} {most} works for designs only, and {space.name} is a search;"
            " write seeds: {adaptive: N} instead"
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
    # The first metric decides; a search may have further objectives.
    metric = next(iter(form.metric), "top1")
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
        data=read_data(context),
        recipe=read_recipe(context),
        metric=metric,
        direction=next(iter(form.metric.values()), "max"),
        objectives={str(name): direction for name, direction in form.metric.items()},
        strategy=read_strategy(context, levels),
        adaptive=isinstance(form.seeds, AdaptiveForm),
        looks=read_looks(context),
        margin=_margin(context, metric),
        control=read_control(context, levels),
        limits=read_limits(context),
        resources=read_resources(context),
        keep=form.keep,
        scheduler=read_scheduler(context),
        rows=rows,
        published=read_published(context),
        pretrained=read_pretrained(context),
        teacher=read_teacher(context),
        diagnostics=read_diagnostics(context),
        warmup_fits=warmup_fits(context),
    )
    _check_metrics(context)
    # These two checks need a space that is otherwise correct.
    if rows and not context.problems:
        check_listed(context, rows, levels)
    if not context.problems:
        check_shares(context, space)
    if context.problems:
        # Two sections may note the same mistake.
        raise SpaceError(dict.fromkeys(context.problems))
    return space


def _check_metrics(context: Context) -> None:
    """Notes a first metric that training does not yield, and a later one that it does.

    A search optimises one metric of training. Its further objectives are costs.
    """
    names = [str(name) for name in context.form.metric]
    first = names[0] if names else "nothing"
    if first not in METRICS:
        context.wrong(
            ("metric",),
            f"the first metric must be one of {', '.join(METRICS)}, as in"
            f" {{top1: max}}; found {first}",
        )
    if context.form.strategy is None:
        # A design with several metrics is a mistake that `read_strategy` notes.
        return
    for name in names[1:]:
        if name in METRICS:
            context.wrong(
                ("metric", name),
                f"metric: {name} is a second metric of training beside {first}; further"
                " objectives must be costs, as in {top1: max, flops: min}",
            )


def _margin(context: Context, metric: str) -> float:
    """The margin of the space, else that of its metric."""
    if context.form.margin is not None:
        return context.form.margin
    if metric in METRICS:
        return METRICS[metric].margin
    # `_check_metrics` has noted that this is no metric.
    return 0.0


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
