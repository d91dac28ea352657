"""The initial weights of a trial or its teacher: timm's published ones, or a file."""

from __future__ import annotations

from pathlib import Path

import torch

from ablate.errors import CheckpointError
from ablate.models.weights import State, file_identity, read_file
from ablate.records import InitialWeights, Trial


def read_start(trial: Trial) -> State:
    """Returns the initial weights of a trial by name; empty if they are random.

    Random states do not change.

    Raises:
        CheckpointError: the weights are not available; the message says how to get
            them.
    """
    if trial.start is None:
        return {}
    return read_weights(trial.start, trial.architecture.backbone, key="pretrained")


def read_weights(start: InitialWeights, backbone: str, *, key: str) -> State:
    """Returns the tensors that `start` refers to, by name.

    Random states do not change.

    Args:
        key: the space's key that names the weights, for messages.

    Raises:
        CheckpointError: the weights are not available; the message says how to get
            them.
    """
    with torch.random.fork_rng(devices=[]):
        if start.path:
            return _same_file(start, key)
        # The identity says which of the published weights are meant.
        return _published(start.identity.removeprefix("timm ") or backbone, key)


def _same_file(start: InitialWeights, key: str) -> State:
    """Returns the tensors of a file, which must be the one used for the plan."""
    if file_identity(Path(start.path)) != start.identity:
        raise CheckpointError(
            f"{key}: {start.path} has changed since the trial was planned; run the"
            " study again"
        )
    return read_file(Path(start.path), key)


def _published(backbone: str, key: str) -> State:
    """Returns timm's weights of the unmodified backbone, under timm's own names.

    They are downloaded unless they are in timm's cache.
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
            f"{key}: the weights of {backbone} could not be fetched ({reason});"
            " without an internet connection, fetch them on another machine and name"
            f" the file: {example}"
        ) from error
    state: State = model.state_dict()
    return state
