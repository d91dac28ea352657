"""The section `across`: the sizes at which every row is trained.

Each size is a study of its own, with the name `STUDY/AXIS-SIZE`. Its space is that of the
document with the size put where its axis belongs: under `fixed`, `recipe`, `data` or
`backbone`. So every other section reads a size like any other level.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from ablate.errors import Problem, did_you_mean, shortened
from ablate.records import LONGEST_NAME, Across, is_number
from ablate.space.context import Context, shown
from ablate.space.levels import check_different
from ablate.space.schema import AcrossForm
from ablate.text.document import Document, Where

# The most sizes of a ladder.
MOST_SIZES = 20
# Sections of a document, in which an axis such as `recipe.epochs` is a key.
SECTIONS = ("recipe", "data")
DATA_AXES = ("train_images", "image_size")
NO_AXES = ("pretrained", "recipe", "data")
# The key that a short form of a section stands for.
SHORT = {"recipe": "preset", "data": "name"}


def problems_of(document: Document) -> list[Problem]:
    """What is wrong with the axis and the sizes of a document, whatever the rest is."""
    across = document.values.get("across")
    if not isinstance(across, dict):
        # The shape of the whole document is checked later.
        return []
    axes = [key for key in across if key not in AcrossForm.model_fields]
    where: Where = ("across",)
    if len(axes) != 1 or not isinstance(axes[0], str):
        meant = [
            f"'{axis}'{hint}"
            for axis in axes
            if (hint := did_you_mean(axis, AcrossForm.model_fields))
        ]
        return [
            document.problem(
                where,
                f"across has one axis, found {len(axes)}; write it with its sizes, as"
                " in across: {size.width: [16, 24, 32, 48]}"
                + "".join(f"; {each}" for each in meant),
            )
        ]
    axis = axes[0]
    where = ("across", axis)
    sizes = across[axis]
    is_list = isinstance(sizes, list) and all(map(is_level, sizes))
    if not is_list or not 2 <= len(sizes) <= MOST_SIZES:
        return [
            document.problem(
                where,
                f"across: {shortened(axis)} needs a list of 2 to {MOST_SIZES} sizes, as"
                f" in [16, 24, 32, 48], found {shortened(repr(sizes))}",
            )
        ]
    section, _, key = axis.partition(".")
    if (section == "data" and key not in DATA_AXES) or axis in NO_AXES:
        return [
            document.problem(
                where,
                f"across: {shortened(axis)} is no size; an axis is a factor such as"
                " size.width, backbone, recipe.epochs, or"
                f" {' or '.join(f'data.{name}' for name in DATA_AXES)}",
            )
        ]
    beside = _declared_in(document, axis)
    if beside:
        return [
            document.problem(
                where,
                f"{axis} is under across and under {beside}; name it in one place",
            )
        ]
    return _problems_of_seeds(document, len(sizes) + ("predict" in across))


def _problems_of_seeds(document: Document, number: int) -> list[Problem]:
    """What is wrong with the numbers of seeds of so many sizes."""
    seeds = document.values["across"].get("seeds")
    where: Where = ("across", "seeds")
    if seeds is not None and "seeds" in document.values:
        return [
            document.problem(
                where,
                "seeds are declared under across and for the whole study; leave one out",
            )
        ]
    if isinstance(seeds, list) and len(seeds) != number:
        return [
            document.problem(
                where,
                f"across: seeds has {len(seeds)} numbers for {number} sizes; write one"
                " for each size, and that of the predicted size last",
            )
        ]
    return []


def _declared_in(document: Document, axis: str) -> str:
    """The other section that declares an axis; empty if none does."""
    values = document.values
    for section in ("factors", "tune", "fixed"):
        declared = values.get(section)
        if isinstance(declared, dict) and axis in declared:
            return section
    section, _, key = axis.partition(".")
    if axis == "backbone":
        return "backbone" if "backbone" in values else ""
    if section == "size":
        section = "backbone"
    declared = values.get(section)
    if isinstance(declared, dict) and key in declared:
        return section
    return ""


def at_size(document: Document, number: int) -> Document:
    """The document with one of its sizes where its axis belongs.

    Args:
        document: one without `problems_of`.
    """
    across = document.values.get("across")
    if not isinstance(across, dict):
        return document
    axis = next(key for key in across if key not in AcrossForm.model_fields)
    is_predicted = number == len(across[axis])
    size = across["predict"] if is_predicted else across[axis][number]
    values = dict(document.values)
    if isinstance(across.get("seeds"), list):
        values["seeds"] = across["seeds"][number]
    where = _place(axis)
    if len(where) == 1:
        values[where[0]] = size
    else:
        section, key = where
        inner = values.get(section, {})
        if isinstance(inner, str) and section in SHORT:
            inner = {SHORT[section]: inner}
        if isinstance(inner, dict):
            values[section] = {**inner, key: size}
    # A mistake in the size is reported where the document has it.
    place: Where = ("across", "predict") if is_predicted else ("across", axis, number)
    line = document.lines.get(place)
    lines = dict(document.lines)
    if line is not None:
        lines[where] = line
    return replace(document, values=values, lines=lines)


def is_level(value: object) -> bool:
    """Whether a value of a document can be a size."""
    return isinstance(value, str | int | float)


def _place(axis: str) -> tuple[str, ...]:
    """Where a size stands in a document."""
    section, _, key = axis.partition(".")
    if section in SECTIONS and key:
        return (section, key)
    if axis == "backbone":
        return (axis,)
    return ("fixed", axis)


def read_across(context: Context, name: str, number: int) -> Across | None:
    """The section `across`; None if there is none, or it has a mistake.

    Args:
        name: the name of the study without its size.
        number: the size that the space is read at.
    """
    form = context.form.across
    if form is None:
        return None
    problems = len(context.problems)
    axis, sizes = next(iter(form.sizes.items()))
    where: Where = ("across", axis)
    all_sizes = [*sizes, *([] if form.predict is None else [form.predict])]
    check_different(context, where, axis, tuple(all_sizes))
    _check_study(context)
    per = _per(context, axis, all_sizes)
    if len(context.problems) > problems or per is None:
        return None
    across = Across(
        ladder=name,
        axis=axis,
        sizes=tuple(sizes),
        number=number,
        per=per,
        predict=form.predict,
    )
    names = across.studies
    for index, study in enumerate(names):
        if study in names[:index] or len(study) > LONGEST_NAME:
            context.wrong(
                (*where, index),
                f"across: the size {shown(all_sizes[index])} makes a study {shortened(study)},"
                f" whose name must be new and have at most {LONGEST_NAME} characters",
            )
    return across


def _check_study(context: Context) -> None:
    """Notes sections that do not go with sizes."""
    form = context.form
    where: Where = ("across",)
    seeds = form.seeds
    if form.strategy is not None:
        context.wrong(
            where,
            "across is for designs, whose rows are known; a search would have other rows"
            " at each size: write a design in the place of the strategy",
        )
    if not isinstance(seeds, int | list):
        for key in ("until_decided", "adaptive", "baseline"):
            if getattr(seeds, key, None):
                context.wrong(
                    ("seeds", key),
                    f"across and seeds.{key} exclude each other: all rows of a size have"
                    " the same seeds, as in seeds: 5",
                )
    if form.primary:
        context.wrong(
            ("primary",),
            "across and primary exclude each other: all rows of a ladder are tested"
            " alike; leave primary out",
        )


def _per(
    context: Context, axis: str, sizes: list[Any]
) -> Literal["compute", "params", "number"] | None:
    """What is doubled along the sizes."""
    form = context.form.across
    assert form is not None, "it is being read"
    is_own = context.form.trainer is not None
    if is_own and form.per == "compute":
        context.wrong(
            ("across", "per"),
            "across: the training compute of a trainer of your own is not known; write"
            " per: params, or per: number",
        )
        return None
    per = form.per or ("number" if is_own else "compute")
    if per == "number" and not all(is_number(size) and size > 0 for size in sizes):
        context.wrong(
            ("across", axis),
            f"across: {shortened(axis)} has sizes that are no numbers above 0, so nothing"
            " is doubled; write per: params",
        )
        return None
    return per
