"""Resolves a space's `pretrained` for each backbone."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.data.fitting import settled
from ablate.data.sets import find
from ablate.errors import CheckpointError, Infeasible
from ablate.records import PUBLISHED_WEIGHTS, Architecture, Data, InitialWeights, Recipe

if TYPE_CHECKING:
    from ablate.models.weights import State

# If less than this share of a network comes from the file, the file is for another
# network.
LEAST_SHARE = 0.25


def find_start(
    pretrained: str, backbone: str, *, key: str = "pretrained"
) -> InitialWeights | None:
    """Returns the initial weights for a backbone; None if `pretrained` is empty.

    Args:
        key: the space's key that names the weights, for messages.

    Raises:
        Infeasible: timm publishes no weights for the backbone.
        CheckpointError: the file is missing.
    """
    if not pretrained:
        return None
    if pretrained == PUBLISHED_WEIGHTS:
        from timm.models import get_pretrained_cfg, is_model, is_model_pretrained

        if not is_model(backbone) or not is_model_pretrained(backbone):
            if key == "pretrained":
                example = "pretrained: FILE.pth"
            else:
                example = f"weights: FILE.pth under {key}"
            raise Infeasible(
                f"timm publishes no weights for {backbone}; name a checkpoint file:"
                f" {example}"
            )
        configuration: Any = get_pretrained_cfg(backbone)
        return InitialWeights(f"timm {backbone.partition('.')[0]}.{configuration.tag}")
    file = Path(pretrained)
    if not file.is_file():
        raise CheckpointError(f"{key}: no file {file}")
    return InitialWeights(
        _read(file.resolve(), file.stat().st_mtime_ns, key)[0], str(file.resolve())
    )


def read_start_file(path: str, *, key: str) -> State:
    """Returns the tensors of a file. It is read again only if it has changed."""
    file = Path(path)
    return _read(file, file.stat().st_mtime_ns, key)[1]


def prepared(data: Data, recipe: Recipe, pretrained: str, backbone: str) -> Data:
    """Returns the data as a backbone receives them.

    With published weights, image files are prepared as those weights expect, unless the
    data say otherwise. A preparation that changes nothing is removed, so that equal
    data stay equal.
    """
    if pretrained == PUBLISHED_WEIGHTS and find(data.name).kind == "images":
        from timm.models import get_pretrained_cfg

        weights: Any = get_pretrained_cfg(backbone)
        data = replace(
            data,
            mean=data.mean or tuple(weights.mean),
            std=data.std or tuple(weights.std),
        )
        if not recipe.crop_padding:
            data = replace(
                data,
                crop=data.crop or weights.crop_pct,
                crop_mode=data.crop_mode or weights.crop_mode,
                interpolation=data.interpolation or weights.interpolation,
            )
    return settled(data, recipe)


def refuse_strange(start: InitialWeights | None, architecture: Architecture) -> None:
    """Raises Infeasible if a network shares hardly any weights with its file."""
    if start is None or not start.path:
        return
    from ablate.models import build_from

    _, loaded = build_from(architecture, read_start_file(start.path, key="pretrained"))
    if loaded.share < LEAST_SHARE:
        raise Infeasible(
            f"pretrained: {Path(start.path).name} is of another network: {loaded}"
        )


@lru_cache(maxsize=2)
def _read(file: Path, changed: int, key: str) -> tuple[str, State]:
    """Returns a file's identity and tensors.

    The file is read again if `changed`, the time of its last change, differs.
    """
    from ablate.models.weights import file_identity, read_file

    return file_identity(file), read_file(file, key)
