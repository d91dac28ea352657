"""The weights that a trial starts from, or that its teacher has: timm's published ones,
or a file's.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ablate.errors import CheckpointError
from ablate.models.weights import State, file_identity, read_file
from ablate.records import Start, Trial


def read_start(trial: Trial) -> State:
    """The tensors that a trial starts from, by name; empty where its weights are drawn
    anew.

    Random states stay as they are.

    Raises:
        CheckpointError: they cannot be had; the message says how.
    """
    if trial.start is None:
        return {}
    return read_weights(trial.start, trial.architecture.backbone, key="pretrained")


def read_weights(start: Start, backbone: str, *, key: str) -> State:
    """The tensors that `start` names, by name. Random states stay as they are.

    Args:
        key: the space's key that names the weights, for messages.

    Raises:
        CheckpointError: they cannot be had; the message says how.
    """
    with torch.random.fork_rng(devices=[]):
        if start.path:
            return _same_file(start, key)
        return _published(backbone, key)


def _same_file(start: Start, key: str) -> State:
    """The tensors of a file that is still the one that was planned with."""
    if file_identity(Path(start.path)) != start.identity:
        raise CheckpointError(
            f"{key}: {start.path} has changed since the trial was planned; plan it"
            " again"
        )
    return read_file(Path(start.path), key)


def _published(backbone: str, key: str) -> State:
    """timm's weights of the unmodified backbone, in timm's own names, downloaded unless
    they are in its cache.
    """
    import timm

    try:
        model = timm.create_model(backbone, pretrained=True)
    except (OSError, RuntimeError, ValueError) as error:
        if str(error).strip():
            reason = str(error).strip().splitlines()[0]
        else:
            reason = type(error).__name__
        if key == "pretrained":
            example = "pretrained: FILE.safetensors"
        else:
            example = f"weights: FILE.safetensors under {key}"
        raise CheckpointError(
            f"{key}: the weights of {backbone} could not be fetched ({reason}); where"
            f" there is no network, fetch them elsewhere and name the file: {example}"
        ) from error
    state: State = model.state_dict()
    return state
