"""The sections `backbone`, `pretrained` and `teacher` of a space: which networks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ablate import factors, families
from ablate.errors import (
    Infeasible,
    UnknownName,
    shortened,
    unknown,
)
from ablate.factors.remove import EACH, NONE, parts_of
from ablate.records import (
    PUBLISHED_WEIGHTS,
    TRAINER,
    DeclaredTeacher,
    Level,
    Network,
    weights_named,
)
from ablate.space.context import Context
from ablate.space.levels import check_levels, check_weights
from ablate.space.schema import BackboneForm
from ablate.tasks import Task
from ablate.text.document import Where


def read_network(context: Context, backbone: str, task: Task, head: str) -> Network:
    """Which networks are trained.

    Args:
        backbone: the name that `read_backbone` returned.
    """
    trainer = context.form.trainer or ""
    return Network(
        backbone=backbone,
        pretrained=_pretrained(context),
        teacher=None if trainer else _teacher(context),
        task=task.name,
        head=head,
        trainer=trainer,
    )


def read_backbone(context: Context) -> tuple[str, dict[str, Level]]:
    """The backbone's name, and the sizes that its full form declares."""
    if context.form.trainer is not None:
        return f"{TRAINER}{context.form.trainer}", {}
    form = context.form.backbone
    varied = context.levels.get("backbone")
    # Exactly one of the two places must name it.
    if (form is None) == (varied is None):
        context.wrong(
            ("backbone",),
            "name the backbone in one place: `backbone: NAME`, or `backbone: [NAME,"
            " NAME]` under factors",
        )
    if form is None:
        return str((varied or [""])[0]), {}
    name, sizes = _name_and_sizes(form)
    try:
        _check_backbone(form)
    except UnknownName as error:
        context.wrong(("backbone", "family"), str(error))
    return name, sizes


def expand_parts(context: Context, backbone: str, sizes: Mapping[str, Level]) -> None:
    """Replaces a level `each PATTERN` of the factor `remove` by one level per module.

    The full network becomes the first level, unless `none` is listed.
    """
    levels = context.levels.get("remove", [])
    if context.form.trainer is not None or not any(map(_is_each, levels)):
        return
    if backbone and factors.find("remove", backbone)[0].switch:
        return
    expanded: list[Level] = [] if NONE in levels else [NONE]
    for index, level in enumerate(levels):
        if not _is_each(level):
            expanded.append(level)
            continue
        try:
            expanded += _parts(context, backbone, sizes, str(level).removeprefix(EACH))
        except (Infeasible, UnknownName) as error:
            context.wrong(("factors", "remove", index), f"remove: {error}")
    # Two patterns may fit the same module.
    context.levels["remove"] = list(dict.fromkeys(expanded))


def _is_each(level: Level) -> bool:
    return isinstance(level, str) and level.startswith(EACH)


def _parts(
    context: Context, backbone: str, sizes: Mapping[str, Level], pattern: str
) -> list[str]:
    """The names of the modules of the space's network that a pattern fits.

    Raises:
        Infeasible: there is none, or the network cannot be built.
    """
    from ablate.models import build

    if "backbone" in context.levels:
        raise Infeasible(
            "`each` is for one backbone; name it under `backbone`, or list the parts"
        )
    family = families.find(backbone)
    known = factors.parameters(backbone)
    settings = {**sizes, **context.form.fixed}
    settings = {name: level for name, level in settings.items() if name in known}
    side = family.image_size(backbone)
    if not isinstance(context.form.data, str) and context.form.data.image_size:
        side = context.form.data.image_size
    network = build(families.resolve(backbone, side, 3, 10, settings))
    return parts_of(network, pattern)


def _teacher(context: Context) -> DeclaredTeacher | None:
    """The declared teacher; None if there is none."""
    form = context.form.teacher
    levels = context.levels.get("recipe.distillation", [_distillation(context)])
    distils = any(level != "none" for level in levels)
    if form is None:
        if distils:
            if len(levels) > 1:
                where: Where = ("factors", "recipe.distillation")
            else:
                where = ("recipe", "distillation")
            context.wrong(
                where,
                "distillation needs a teacher; write teacher: {backbone: NAME,"
                " weights: FILE}",
            )
        return None
    if not distils:
        context.wrong(
            ("teacher",),
            "no cell learns from the teacher; set recipe.distillation to soft,"
            " soft-code or hard, or remove the teacher",
        )
    name, sizes = _name_and_sizes(form.backbone)
    # A teacher without settings may be any model of timm, as no factor changes it.
    is_known = families.is_known(name)
    try:
        if is_known or not _of_timm(name):
            _check_backbone(form.backbone)
    except UnknownName as error:
        context.wrong(("teacher", "backbone"), str(error))
    if form.settings and not is_known:
        context.wrong(
            ("teacher", "settings"),
            f"factors cannot be applied to {shortened(name)}; leave the settings out",
        )
    elif is_known:
        _check_teacher_settings(context, name, {**sizes, **form.settings}, sizes)
    weights = form.weights
    if weights != PUBLISHED_WEIGHTS and not os.path.isfile(weights):
        context.wrong(
            ("teacher", "weights"),
            f"teacher: no file {shortened(weights)}; name a checkpoint, or write"
            " timm for the weights that timm publishes",
        )
    return DeclaredTeacher(
        backbone=name, weights=weights, settings={**sizes, **form.settings}
    )


def _check_teacher_settings(
    context: Context,
    backbone: str,
    settings: Mapping[str, Level],
    sizes: Mapping[str, Level],
) -> None:
    """Checks that a teacher's settings are levels that change its predictions."""
    for factor, level in settings.items():
        where: Where = ("teacher", "settings", factor)
        if factor.partition(".")[0] in ("recipe", "data", "backbone", "pretrained"):
            context.wrong(
                where,
                f"{factor} is not a setting of an architecture; remove it from the"
                " teacher's settings",
            )
        elif factor.startswith(("drop.", "patch.")):
            context.wrong(
                where,
                f"{factor} is read in training only, and a teacher is not trained;"
                " leave it out",
            )
        elif (
            factor in sizes
            and context.form.teacher is not None
            and factor in context.form.teacher.settings
        ):
            context.wrong(
                where,
                f"{factor} is also among the numbers of the teacher's backbone; say"
                " it in one place",
            )
        else:
            check_levels(context, where, factor, (level,), (backbone,))
            if factor not in factors.parameters(backbone):
                continue
            reason = factors.unread_reason(factor, settings, backbone)
            if reason:
                context.wrong(where, f"{reason}; leave it out")


def _distillation(context: Context) -> str:
    """The level of `distillation` in the recipe."""
    form: Any = context.form.recipe
    if isinstance(form, str):
        # No preset distils.
        return "none"
    return form.distillation or "none"


def _pretrained(context: Context) -> str:
    pretrained = context.form.pretrained
    if context.form.trainer is not None:
        return ""
    check_weights(context, ("pretrained",), pretrained)
    if "pretrained" in context.levels and "pretrained" in context.form.model_fields_set:
        context.wrong(
            ("pretrained",), "pretrained varies under factors; say it in one place"
        )
    return weights_named(pretrained)


def _name_and_sizes(form: str | BackboneForm) -> tuple[str, dict[str, Level]]:
    """The name of a backbone, and the sizes that its full form declares."""
    if isinstance(form, str):
        return form, {}
    given = form.model_dump(exclude={"family"}, exclude_none=True)
    return form.family, {f"size.{key}": level for key, level in given.items()}


def _check_backbone(form: str | BackboneForm) -> None:
    """Raises UnknownName if the backbone is unknown.

    The full form is also refused for a family that cannot be declared by its numbers.
    """
    if isinstance(form, str):
        families.find(form)
        return
    declared = [
        family.name for family in families.families().values() if family.declared
    ]
    if form.family not in declared:
        raise UnknownName(
            unknown("family", form.family, declared)
            + "; other backbones are named, as in `backbone: pvt_small`"
        )


def _of_timm(name: str) -> bool:
    """Whether timm has a model of that name."""
    from timm.models import is_model

    return bool(is_model(name))
