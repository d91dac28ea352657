"""The sections that say which cells there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from ablate.errors import (
    unknown,
)
from ablate.records import (
    Design,
    Factors,
    Level,
    Limit,
    Strategy,
    is_number,
)
from ablate.space import limits as limit_rules
from ablate.space.context import Context, literal, shown
from ablate.space.schema import AdaptiveForm, UntilDecidedForm


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
        forms = {}
    else:
        forms = form.model_dump(exclude_none=True, exclude={"name"})
    if design.name == "random" and design.cells is None:
        context.wrong(
            ("design",),
            "design random needs a number of cells: design: {name: random, cells: 20}",
        )
    ignored = [name for name in forms if name not in design.read]
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
    fields: dict[str, Any] = {"name": form}
    if not isinstance(form, str):
        fields = form.model_dump(exclude_none=True)
    if fields["name"] not in literal(Strategy, "name"):
        context.wrong(
            ("strategy",),
            unknown("strategy", fields["name"], literal(Strategy, "name")),
        )
        return None
    strategy = Strategy(**fields)
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


def read_limits(context: Context, factors: Factors) -> tuple[Limit, ...]:
    """The bounds on costs and levels, from a list or from a mapping by cost."""
    form = context.form.limits
    limits: list[Limit | None] = []
    numeric = [name for name, level in factors.fixed.items() if is_number(level)]
    for name, levels in factors.levels.items():
        if all(map(is_number, levels)):
            numeric.append(name)
    if isinstance(form, list):
        for index, text in enumerate(form):
            limits.append(limit_rules.parse(text, factors=numeric))
            if limits[-1] is None:
                context.wrong(
                    ("limits", index),
                    f"limits: {shown(text)} is not a bound on costs, or on factors whose"
                    f" levels are numbers ({', '.join(numeric) or 'none here'}); write"
                    f" one like {limit_rules.FULL_EXAMPLES}",
                )
    else:
        for cost, text in form.items():
            limits.append(limit_rules.parse(text, cost, numeric))
            if limits[-1] is None:
                context.wrong(
                    ("limits", cost),
                    f"limits.{cost}: {shown(text)} is not a bound; write one like"
                    f" {limit_rules.EXAMPLES}",
                )
    return tuple(limit for limit in limits if limit is not None)
