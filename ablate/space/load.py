"""Reads a YAML document into a `Space`.

First pydantic checks the shape (`schema`, `shape`). Then each section has a function
that checks names, levels and combinations, and returns the section's record
(`read_network`, `read_factors`, `read_seeds`, ...). The function notes mistakes in the
`Context` and goes on, so that one error lists all of them, each with its line. Nothing
is dropped, converted or guessed: a key or level that is accepted is read somewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from ablate.errors import SpaceError
from ablate.own import registry
from ablate.records import LONGEST_NAME, Space
from ablate.space.across import at_size, problems_of, read_across
from ablate.space.cells import (
    read_control,
    read_design,
    read_limits,
    read_strategy,
)
from ablate.space.claim import read_claim
from ablate.space.context import Context
from ablate.space.criterion import check_over, read_criterion
from ablate.space.factors import read_factors
from ablate.space.labels import read_labels
from ablate.space.levels import check_listed
from ablate.space.network import expand_parts, read_backbone, read_network
from ablate.space.own import check_own
from ablate.space.ranges import read_levels
from ablate.space.schema import SpaceForm
from ablate.space.seeds import read_seeds
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
from ablate.space.tuning import read_tune
from ablate.text.document import Document, parse, read_text


def read(path: Path) -> Space:
    """The space that a file declares; with `across`, that of the first size.

    Raises:
        SpaceError: the file is missing, or has mistakes; each names its line.
    """
    return load(read_text(path), str(path))


def read_sizes(path: Path) -> list[Space]:
    """The spaces that a file declares: one for each size, in their order.

    Without `across`, there is one.

    Raises:
        SpaceError: the file is missing, or has mistakes; each names its line.
    """
    return load_sizes(read_text(path), str(path))


def at_sizes(declared: Space, file: str) -> list[Space]:
    """A space at each of its sizes, in their order; the space alone if it has none."""
    if declared.across is None:
        return [declared]
    return load_sizes(declared.document, file)


def load(text: str, file: str) -> Space:
    """The space that a YAML text declares; with `across`, that of the first size.

    Args:
        file: the name of the text in messages; it names the study, unless the text does.

    Raises:
        SpaceError: the text has mistakes; each names its line.
    """
    return load_sizes(text, file)[0]


def load_sizes(text: str, file: str) -> list[Space]:
    """The spaces that a YAML text declares: one for each size, in their order.

    The predicted size is the last one. Without `across`, there is one space.

    Args, Raises: as for `load`.
    """
    document = parse(text, file)
    if problems := problems_of(document):
        raise SpaceError(problems)
    # A document with mistakes has them at each size, so the first one names them.
    first = _load(document, 0)
    if first.across is None:
        return [first]
    spaces = [first]
    problems = []
    for number in range(1, len(first.across.all_sizes)):
        try:
            spaces.append(_load(document, number))
        except SpaceError as error:
            problems += error.problems
    if problems:
        raise SpaceError(problems)
    return spaces


def _load(document: Document, number: int) -> Space:
    """The space of a document at one of its sizes."""
    document = at_size(document, number)
    try:
        form = SpaceForm.model_validate(document.values)
    except ValidationError as error:
        raise SpaceError(shape_problems(document, error)) from None
    return _read(Context(document, form), number)


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


def _read(context: Context, number: int) -> Space:
    """The space of a document, section by section.

    Args:
        number: that of its size.

    Raises:
        SpaceError: some section has a mistake; the error lists them all.
    """
    form = context.form
    read_levels(context)
    if context.problems:
        # Other sections would only repeat what is wrong with a range.
        raise SpaceError(context.problems)
    backbone, sizes = read_backbone(context)
    expand_parts(context, backbone, sizes)
    task = read_task(context)
    head = read_head(context, task)
    design = read_design(context)
    factors = read_factors(context, design, sizes)
    resources = read_resources(context)
    check_task(context, task, resources)
    seeds = read_seeds(context)
    criterion = read_criterion(context, factors.levels, task, head)
    name = _name(context)
    across = read_across(context, name, number)
    space = Space(
        name=across.study if across else name,
        named=form.name is not None,
        document=context.document.text,
        claim=read_claim(context, head),
        network=read_network(context, backbone, task, head),
        factors=factors,
        design=design,
        strategy=read_strategy(context, factors.levels),
        tune=read_tune(context, criterion, seeds, across),
        across=across,
        control=read_control(context, factors.levels),
        limits=read_limits(context, factors),
        seeds=seeds,
        data=read_data(context, task),
        recipe=read_recipe(context, task),
        warmup_fits=warmup_fits(context),
        criterion=criterion,
        diagnostics=read_diagnostics(context),
        resources=resources,
        scheduler=read_scheduler(context),
        keep=form.keep,
        labels=read_labels(context, factors.levels),
        parts=registry.named(),
    )
    if form.trainer is not None:
        check_own(context, space.limits)
    # These checks need a space that is otherwise correct.
    if not context.problems:
        check_over(context, space)
    if factors.rows and not context.problems:
        check_listed(context, factors)
    if not context.problems and form.trainer is None:
        check_shares(context, space)
    if context.problems:
        # Two sections may note the same mistake.
        raise SpaceError(dict.fromkeys(context.problems))
    return space


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
