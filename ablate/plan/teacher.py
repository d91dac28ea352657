"""Resolves a space's `teacher` for a cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ablate.data.sets import find
from ablate.errors import Infeasible
from ablate.plan.start import find_start, read_start_file
from ablate.records import (
    Architecture,
    Data,
    DeclaredTeacher,
    InitialWeights,
    Recipe,
    Teacher,
)


def find_teacher(
    declared: DeclaredTeacher | None, recipe: Recipe, data: Data
) -> Teacher | None:
    """Returns the teacher of a cell; None if the cell's recipe does not distil.

    Raises:
        Infeasible: the teacher cannot be built for these images and classes, or the
            weights belong to another network.
        CheckpointError: the file is not a checkpoint.
    """
    if declared is None or not recipe.distils:
        return None
    from ablate import families

    if families.is_known(declared.backbone):
        architecture = families.resolve(
            declared.backbone,
            data.image_size,
            data.channels,
            data.classes,
            declared.settings,
        )
    else:
        architecture = Architecture(
            backbone=declared.backbone,
            image_size=data.image_size,
            channels=data.channels,
            classes=data.classes,
        )
    weights = find_start(declared.weights, declared.backbone, key="teacher")
    assert weights is not None
    if not weights.path:
        _refuse_other_images(declared.backbone, data)
    _refuse_strange(architecture, weights)
    return Teacher(architecture, weights)


def _refuse_other_images(backbone: str, data: Data) -> None:
    """Raises Infeasible if timm's weights have other classes than the data."""
    from timm.models import get_pretrained_cfg

    weights: Any = get_pretrained_cfg(backbone)
    if find(data.name).kind == "memory":
        raise Infeasible(
            "teacher: timm's weights are for image files; name a checkpoint of a"
            f" teacher trained on {data.name}"
        )
    if weights.num_classes != data.classes:
        raise Infeasible(
            f"teacher: timm's weights of {backbone} predict {weights.num_classes}"
            f" classes, the data have {data.classes}; name a checkpoint of a teacher"
            " trained on these data"
        )


def _refuse_strange(architecture: Architecture, weights: InitialWeights) -> None:
    """Raises Infeasible unless the teacher accepts the images and the file is complete.

    A complete file has all weights of the teacher.
    """
    key = f"{architecture.hash} {weights.identity}"
    if key not in _problems:
        _problems[key] = _problem(architecture, weights)
    if _problems[key]:
        raise Infeasible(_problems[key])


# By teacher and weights: why they cannot be used, or an empty text. This is a cache,
# because building a teacher takes seconds.
_problems: dict[str, str] = {}


def _problem(architecture: Architecture, weights: InitialWeights) -> str:
    from ablate.learning.teacher import problem_with, with_weights

    # timm's weights fit their own network, so they are only downloaded for training.
    if weights.path:
        state = read_start_file(weights.path, key="teacher")
    else:
        state = {}
    try:
        network, loaded = with_weights(architecture, state)
    except Infeasible as error:
        return f"teacher: {error}"
    if weights.path and loaded.new:
        return (
            f"teacher: {Path(weights.path).name} is of another network than"
            f" {architecture.backbone}: {loaded}"
        )
    problem = problem_with(network, architecture)
    if problem:
        return f"teacher: {problem}"
    return ""
