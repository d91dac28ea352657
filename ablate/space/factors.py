"""The sections `factors`, `fixed`, `baseline`, `full` and `rows`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ablate import factors
from ablate.errors import unknown
from ablate.factors.remove import NONE
from ablate.records import Design, Factors, Level
from ablate.space.context import Context, level_key, parameters_of, shown
from ablate.space.levels import check_names
from ablate.text.document import Where

# The most levels that a message names.
MOST_NAMED = 20


def read_factors(
    context: Context, design: Design, sizes: Mapping[str, Level]
) -> Factors:
    """What varies, and the levels of the baseline and of the full model.

    Args:
        sizes: the sizes that the section `backbone` declares; they do not vary.
    """
    form = context.form
    levels = {name: tuple(listed) for name, listed in context.levels.items()}
    check_names(context, design, levels, sizes)
    rows = _read_rows(context, design, levels)
    if design.name == "rows" and form.baseline:
        context.wrong(
            ("baseline",),
            "with design rows, row 0 is the baseline; leave `baseline` out",
        )
    first = {name: listed[0] for name, listed in levels.items() if listed}
    last = {name: listed[-1] for name, listed in levels.items() if listed}
    removes = removes_parts(context)
    removed = [level for level in levels.get("remove", ()) if level != NONE]
    if design.two_levels and removed and removes:
        # The full model has all its parts.
        first["remove"], last["remove"] = removed[0], NONE
    baseline = _read_corner(context, "baseline", form.baseline, levels, first)
    full = _read_corner(context, "full", form.full, levels, last)
    if form.full and not design.two_levels:
        context.wrong(
            ("full",),
            "full is read by the designs leave-one-out, add-one-in, fractional and"
            f" plackett-burman, not by {design.name}; leave it out",
        )
    together = _read_together(context, design, levels)
    read = Factors(
        levels=levels,
        fixed={**sizes, **form.fixed},
        baseline=rows[0] if rows else baseline,
        full=full,
        rows=rows,
        together=together,
        removes_parts=removes,
        exclude=_read_exclude(context, levels),
        ranges=context.scales,
    )
    _check_corners(context, read, design)
    return read


def removes_parts(context: Context) -> bool:
    """Whether the factor `remove` varies, and is the built-in one."""
    if "remove" not in context.levels or context.form.trainer is not None:
        return False
    return not any(
        factors.find("remove", backbone)[0].switch for backbone in context.backbones
    )


def _read_together(
    context: Context, design: Design, levels: Mapping[str, tuple[Level, ...]]
) -> tuple[tuple[str, ...], ...]:
    """The groups of factors whose levels change together; empty if one is wrong."""
    groups = context.form.together
    if not groups:
        return ()
    problems = len(context.problems)
    if design.name == "rows" or context.form.strategy is not None:
        reader = "a search" if context.form.strategy is not None else "design rows"
        context.wrong(
            ("together",),
            f"together is read by designs of levels, not by {reader}; leave it out",
        )
    names = [name for group in groups for name in group]
    for number, group in enumerate(groups):
        where: Where = ("together", number)
        for name in group:
            if names.count(name) > 1:
                context.wrong(where, f"together: {name} is named twice")
            if name not in levels:
                context.wrong(where, partial(not_varied, name, levels))
        if len(group) < 2:
            context.wrong(where, "together: a group has two factors or more")
        elif all(name in levels for name in group):
            _check_pairs(context, where, {name: levels[name] for name in group})
    if len(context.problems) > problems:
        return ()
    return tuple(tuple(group) for group in groups)


def _check_pairs(
    context: Context, where: Where, levels: Mapping[str, tuple[Level, ...]]
) -> None:
    """Checks that factors have equally many levels, and no two equal pairs of them."""
    if len(set(map(len, levels.values()))) > 1:
        numbers = ", ".join(f"{name} has {len(of)}" for name, of in levels.items())
        context.wrong(
            where, f"together: factors need equally many levels, but {numbers}"
        )
        return
    pairs = list(zip(*levels.values(), strict=True))
    if len(set(pairs)) < len(pairs):
        context.wrong(where, "together: two pairs of levels are equal; leave one out")


def _read_exclude(
    context: Context, levels: Mapping[str, tuple[Level, ...]]
) -> tuple[dict[str, Level], ...]:
    """The combinations of levels that are not trained."""
    combinations = []
    for number, combination in enumerate(context.form.exclude):
        if not combination:
            context.wrong(
                ("exclude", number), "exclude: name levels, as in [{a: 1, b: 2}]"
            )
        chosen: dict[str, Level] = {}
        for name, level in combination.items():
            where: Where = ("exclude", number, name)
            if name not in levels:
                context.wrong(where, partial(not_varied, name, levels))
                continue
            if level_key(level) not in context.listed[name]:
                context.wrong(
                    where, partial(not_listed, "exclude", name, level, levels[name])
                )
            # The level as it is listed: 64 and 64.0 are one.
            chosen[name] = context.listed[name].get(level_key(level), level)
        combinations.append(chosen)
    return tuple(combinations)


def _check_corners(context: Context, factors: Factors, design: Design) -> None:
    """Checks that the cells that all designs need are allowed."""
    corners = {"baseline": factors.baseline}
    if design.two_levels:
        corners["full"] = factors.full
    for key, corner in corners.items():
        excluded = factors.excluded_by(corner)
        if excluded and not context.problems:
            context.wrong(("exclude",), f"exclude: {excluded} excludes the {key}")
        for group in factors.together:
            options = zip(*(factors.levels[name] for name in group), strict=True)
            if tuple(corner[name] for name in group) not in options:
                context.wrong(
                    (key,),
                    f"{key}: {' and '.join(group)} change together, so their levels"
                    " must stand at the same place in their lists",
                )


def _read_rows(
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
        elif not (parameters := parameters_of(context.backbones, name)):
            full[name] = listed[0] if listed else ""
        else:
            first = next(iter(parameters.values()))
            default = parameters.get(str(row.get("backbone")), first).default
            # Without a default, the backbone itself has the level.
            full |= {} if default is None else {name: default}
    return full


def _read_corner(
    context: Context,
    key: str,
    declared: Mapping[str, Level],
    levels: Mapping[str, tuple[Level, ...]],
    otherwise: dict[str, Level],
) -> dict[str, Level]:
    """The levels of the baseline or of the full model.

    Args:
        key: the section, `baseline` or `full`.
        declared: the levels in the section, which must be listed under factors.
        otherwise: the levels of the factors that the section does not name.
    """
    for name, level in declared.items():
        if name not in levels:
            context.wrong((key, name), partial(not_varied, name, levels))
        elif level_key(level) not in context.listed[name]:
            context.wrong(
                (key, name), partial(not_listed, key, name, level, levels[name])
            )
    # The level as it is listed: 64 and 64.0 are one.
    chosen = {
        name: context.listed[name].get(level_key(level), level)
        for name, level in declared.items()
        if name in levels
    }
    return {**otherwise, **chosen}


def not_varied(name: str, levels: Mapping[str, tuple[Level, ...]]) -> str:
    return unknown("factor", name, levels) + "; it must vary under factors"


def not_listed(key: str, name: str, level: Level, listed: tuple[Level, ...]) -> str:
    names = [str(level) for level in listed]
    if len(names) > MOST_NAMED:
        names[MOST_NAMED // 2 : -MOST_NAMED // 2] = ["..."]
    return (
        f"{key}: {shown(level)} is not among the levels of {name}: {', '.join(names)}"
    )
