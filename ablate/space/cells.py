"""The sections that say which cells there are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, cast

from ablate import factors
from ablate.document import Where
from ablate.errors import (
    unknown,
)
from ablate.records import (
    Design,
    Level,
    Limit,
    Strategy,
)
from ablate.space import limits as limit_rules
from ablate.space.context import Context, level_key, literal, shown
from ablate.space.schema import AdaptiveForm, UntilDecidedForm


def read_rows(
    context: Context, design: Design, levels: Mapping[str, tuple[Level, ...]]
) -> tuple[dict[str, Level], ...]:
    """The cells of the design `rows`.

    Notes levels that are not listed under factors, and rows that are duplicates.
    """
    rows = context.form.rows
    if design.name == "rows" and not rows:
        context.wrong(
            ("design",), "design rows needs cells: rows: [{}, {FACTOR: LEVEL}]"
        )
    if design.name != "rows" and rows:
        context.wrong(("rows",), f"rows is read by design rows, not by {design.name}")
    cells: list[dict[str, Level]] = []
    numbers: dict[frozenset[tuple[str, Level]], int] = {}
    for number, row in enumerate(rows):
        for name, level in row.items():
            where: Where = ("rows", number, name)
            if name not in levels:
                context.wrong(where, partial(not_varied, name, levels))
            elif level_key(level) not in context.listed[name]:
                context.wrong(
                    where, partial(not_listed, "rows", name, level, levels[name])
                )
        # Rows are equal if their levels are, in any order.
        first = numbers.setdefault(frozenset(row.items()), number)
        if first != number:
            context.wrong(
                ("rows", number),
                f"rows: row {number} is a duplicate of row {first}",
            )
        cells.append(_row(context, row, levels))
    return tuple(cells)


def _row(
    context: Context, row: Mapping[str, Level], levels: Mapping[str, tuple[Level, ...]]
) -> dict[str, Level]:
    """All levels of a listed cell.

    A factor that the row does not name is at its level in the unmodified backbone. A
    factor without such a level, such as a field of the recipe, is at its first level.
    """
    full: dict[str, Level] = {}
    for name, listed in levels.items():
        if name in row:
            full[name] = context.listed[name].get(level_key(row[name]), row[name])
        elif context.trainer is not None:
            full[name] = context.trainer.defaults().get(name, listed[0])
        elif name == "pretrained":
            full[name] = False
        elif name not in factors.parameters():
            full[name] = listed[0] if listed else ""
        else:
            default = factors.parameters()[name][1].default
            # Without a default, the backbone itself has the level.
            full |= {} if default is None else {name: default}
    return full


def read_published(context: Context, head: str) -> str:
    """The name of the published table that the study reproduces; may be empty."""
    from ablate.published import tables

    name = context.form.published
    if name and name not in tables():
        context.wrong(("published",), unknown("published table", name, tables()))
        return name
    other = tables()[name].rows[0].head if name else head
    if other != head:
        context.wrong(
            ("published",),
            f"{name} is a table of {_networks(other)}, and this study trains"
            f" {_networks(head)}; leave published out",
        )
    return name


def _networks(head: str) -> str:
    if head:
        return f"networks with head {head}"
    return "classifiers"


def read_corner(
    context: Context,
    key: str,
    said: Mapping[str, Level],
    levels: Mapping[str, tuple[Level, ...]],
    otherwise: dict[str, Level],
) -> dict[str, Level]:
    """The levels of the baseline or of the full model.

    Args:
        key: the section, `baseline` or `full`.
        said: the levels in the section, which must be listed under factors.
        otherwise: the levels of the factors that the section does not name.
    """
    for name, level in said.items():
        if name not in levels:
            context.wrong((key, name), partial(not_varied, name, levels))
        elif level_key(level) not in context.listed[name]:
            context.wrong(
                (key, name), partial(not_listed, key, name, level, levels[name])
            )
    # The level as it is listed: 64 and 64.0 are one.
    chosen = {
        name: context.listed[name].get(level_key(level), level)
        for name, level in said.items()
        if name in levels
    }
    return {**otherwise, **chosen}


def read_design(context: Context) -> Design:
    """Which cells are trained."""
    form: Any = context.form.design
    if isinstance(form, str):
        names = literal(Design, "name")
        if form not in names:
            context.wrong(("design",), unknown("design", form, names))
            return Design()
        design = Design(name=cast(Any, form))
    else:
        design = Design(**form.model_dump(exclude_none=True))
    if isinstance(form, str):
        said = {}
    else:
        said = form.model_dump(exclude_none=True, exclude={"name"})
    if design.name == "random" and design.cells is None:
        context.wrong(
            ("design",),
            "design random needs a number of cells: design: {name: random, cells: 20}",
        )
    ignored = [name for name in said if name not in design.read]
    if ignored:
        # `resolution` belongs to fractional, the other fields belong to random.
        reader = "fractional" if ignored[0] == "resolution" else "random"
        context.wrong(
            ("design",),
            f"{', '.join(ignored)} is read by design {reader}, not by {design.name};"
            " leave it out",
        )
    return design


def read_strategy(
    context: Context, levels: Mapping[str, tuple[Level, ...]]
) -> Strategy | None:
    """The strategy of a search; None for a design.

    Notes other sections that the strategy cannot be combined with.
    """
    form: Any = context.form.strategy
    if form is None:
        _check_no_search(context)
        return None
    if "design" in context.form.model_fields_set:
        context.wrong(
            ("strategy",),
            "strategy and design are two ways to choose cells; write one of them",
        )
    said: dict[str, Any] = {"name": form}
    if not isinstance(form, str):
        said = form.model_dump(exclude_none=True)
    if said["name"] not in literal(Strategy, "name"):
        context.wrong(
            ("strategy",),
            unknown("strategy", said["name"], literal(Strategy, "name")),
        )
        return None
    strategy = Strategy(**said)
    if strategy.cells is None and strategy.name != "brute-force":
        example = f"strategy: {{name: {strategy.name}, cells: 40}}"
        context.wrong(
            ("strategy",),
            f"strategy {strategy.name} needs a number of cells: {example}",
        )
    if strategy.confirm_cells is not None and strategy.confirm is None:
        context.wrong(
            ("strategy",),
            f"confirm_cells = {strategy.confirm_cells} needs a number of fresh seeds:"
            f" strategy: {{name: {strategy.name}, confirm: 5, confirm_cells:"
            f" {strategy.confirm_cells}}}",
        )
    if isinstance(context.form.seeds, UntilDecidedForm):
        context.wrong(
            ("seeds",),
            "seeds: {until_decided: N} works for designs only; in a search write"
            " seeds: {adaptive: N}",
        )
    if len(context.form.metric) > 1:
        _check_several_objectives(context)
    if strategy.name == "cmaes":
        _check_cmaes(context, levels)
    return strategy


def _check_no_search(context: Context) -> None:
    """Notes sections that only a search may have."""
    if isinstance(context.form.seeds, AdaptiveForm):
        context.wrong(
            ("seeds",),
            "adaptive seeds belong to a search; write a number of seeds, or a"
            " `strategy`",
        )
    if len(context.form.metric) > 1:
        context.wrong(
            ("metric",),
            "a design has one metric; several belong to a search: keep one, or add a"
            " `strategy`",
        )


def _check_several_objectives(context: Context) -> None:
    """Notes sections that cannot be combined with several objectives."""
    if context.form.scheduler != "fifo":
        context.wrong(
            ("metric",),
            "a scheduler that stops trials compares one metric; leave out the scheduler"
            " or the further objectives",
        )
    if isinstance(context.form.seeds, AdaptiveForm):
        context.wrong(
            ("seeds",), "adaptive seeds compare one metric; write a number of seeds"
        )


def read_control(
    context: Context, levels: Mapping[str, tuple[Level, ...]]
) -> Literal["", "iso-params", "iso-flops"]:
    """The cost at which each variant gets a control; empty if none does."""
    if context.form.control is None:
        return ""
    if context.form.strategy is not None:
        context.wrong(
            ("control",),
            "control works for designs only, and this space is a search; leave control"
            " out",
        )
    for name in ("size.width", "backbone"):
        if name in levels:
            context.wrong(
                ("control",),
                f"a control is the baseline in another width, but {name} varies;"
                " leave one of them out",
            )
    return context.form.control


def _check_cmaes(context: Context, levels: Mapping[str, tuple[Level, ...]]) -> None:
    """Notes factors and metrics that CMA-ES cannot search.

    It needs levels that are numbers, two factors or more, and one metric.
    """
    for name, listed in levels.items():
        # Exact types, because `isinstance` takes true for an integer.
        kinds = {type(level) for level in listed}
        if not kinds <= {int, float}:
            context.wrong(
                ("strategy",),
                f"cmaes needs levels that are numbers, {name} has others; use tpe",
            )
            break
    if len(levels) < 2 or len(context.form.metric) > 1:
        context.wrong(
            ("strategy",),
            "cmaes needs two factors or more, and one metric; use tpe",
        )


def read_limits(context: Context) -> tuple[Limit, ...]:
    """The bounds on cost, from a list or from a mapping by cost."""
    form = context.form.limits
    limits: list[Limit | None] = []
    if isinstance(form, list):
        for index, text in enumerate(form):
            limits.append(limit_rules.parse(text))
            if limits[-1] is None:
                context.wrong(
                    ("limits", index),
                    f"limits: {shown(text)} is not a bound on costs; write one like"
                    f" {limit_rules.FULL_EXAMPLES}",
                )
    else:
        for cost, text in form.items():
            limits.append(limit_rules.parse(text, cost))
            if limits[-1] is None:
                context.wrong(
                    ("limits", cost),
                    f"limits.{cost}: {shown(text)} is not a bound; write one like"
                    f" {limit_rules.EXAMPLES}",
                )
    return tuple(limit for limit in limits if limit is not None)


def not_varied(name: str, levels: Mapping[str, tuple[Level, ...]]) -> str:
    return unknown("factor", name, levels) + "; it must vary under factors"


def not_listed(key: str, name: str, level: Level, listed: tuple[Level, ...]) -> str:
    return (
        f"{key}: {shown(level)} is not among the levels of {name}:"
        f" {', '.join(map(str, listed))}"
    )
