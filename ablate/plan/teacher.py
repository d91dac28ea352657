"""What a space's `teacher` means for a cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ablate.data.catalogue import find
from ablate.errors import Infeasible
from ablate.plan.start import find_start, read_start_file
from ablate.records import Architecture, Data, DeclaredTeacher, Recipe, Start, Teacher


def find_teacher(
    declared: DeclaredTeacher | None, recipe: Recipe, data: Data
) -> Teacher | None:
    """The teacher of a cell; None where the cell's recipe does not distil.

    Raises:
        Infeasible: the teacher cannot be built for these images and classes, or the
            weights are of another network.
        CheckpointError: the file is no checkpoint.
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
    """Raises Infeasible where timm's weights of a backbone know other classes than the
    data have.
    """
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


def _refuse_strange(architecture: Architecture, weights: Start) -> None:
    """Raises Infeasible unless a teacher can read the images, and a file has all its
    weights.
    """
    key = f"{architecture.hash} {weights.identity}"
    if key not in _problems:
        _problems[key] = _problem(architecture, weights)
    if _problems[key]:
        raise Infeasible(_problems[key])


# By teacher and weights: why it cannot teach, or nothing. Building a teacher takes
# seconds.
_problems: dict[str, str] = {}


def _problem(architecture: Architecture, weights: Start) -> str:
    from ablate.training.teacher import problem_with, with_weights

    # timm's weights are fetched when they are needed; they fit.
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
