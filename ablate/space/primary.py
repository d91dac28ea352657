"""The primary comparisons of a space."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ablate.errors import unknown
from ablate.records import Level, Primary
from ablate.records.primary import CONTROLS
from ablate.space.context import Context, level_key
from ablate.space.factors import not_listed, not_varied
from ablate.text.document import Where

EXAMPLE = (
    "primary: [{FACTOR: LEVEL}], primary: [1], primary: [FACTOR] or primary: [controls]"
)


def read_primary(
    context: Context, levels: Mapping[str, tuple[Level, ...]]
) -> tuple[Primary, ...]:
    """The comparisons that are tested one after the other.

    Notes rows and factors that the space cannot have. Whether a row exists is known
    when the space is planned.
    """
    primary = context.form.primary
    if primary and context.form.strategy is not None:
        context.wrong(
            ("primary",),
            "primary names comparisons in advance, but a search chooses its rows; leave"
            " primary out",
        )
    if len({isinstance(comparison, str) for comparison in primary}) > 1:
        context.wrong(
            ("primary",),
            "primary names rows or factors, not both, because they are two families of"
            f" comparisons; write {EXAMPLE}",
        )
    for number, comparison in enumerate(primary):
        where: Where = ("primary", number)
        # A factor of a user can have the name `controls`. It means the comparisons only if
        # it stands alone.
        if comparison == CONTROLS and len(primary) == 1:
            if context.form.control is None:
                context.wrong(
                    where,
                    "primary: [controls] compares variants with controls; add"
                    " `control: iso-flops`",
                )
        elif isinstance(comparison, str):
            if comparison not in levels:
                context.wrong(
                    where, partial(unknown, "factor", comparison, list(levels))
                )
        elif isinstance(comparison, dict):
            _check_levels(context, where, comparison, levels)
        if comparison in primary[:number]:
            context.wrong(where, f"primary: comparison {number + 1} is a duplicate")
    return tuple(primary)


def _check_levels(
    context: Context,
    where: Where,
    row: Mapping[str, Level],
    levels: Mapping[str, tuple[Level, ...]],
) -> None:
    """Notes levels that the space does not list."""
    if not row:
        context.wrong(
            where, "primary: {} is row 0, which the others are compared with; name rows"
        )
    for name, level in row.items():
        if name not in levels:
            context.wrong((*where, name), partial(not_varied, name, levels))
        elif level_key(level) not in context.listed[name]:
            context.wrong(
                (*where, name),
                partial(not_listed, "primary", name, level, levels[name]),
            )
