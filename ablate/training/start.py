"""The weights that a trial starts from: timm's published ones, or a file's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ablate.errors import CheckpointError
from ablate.models.weights import State
from ablate.records import Trial


def read_start(trial: Trial) -> State:
    """The tensors that a trial starts from, by name; empty where its weights are drawn anew. Random states stay as they are.

    Raises:
        CheckpointError: they cannot be had; the message says how.
    """
    if trial.start is None:
        return {}
    with torch.random.fork_rng(devices=[]):
        return _file(Path(trial.start.path)) if trial.start.path else _published(trial.architecture.backbone)


def _published(backbone: str) -> State:
    """timm's weights of the unmodified backbone, in timm's own names, downloaded unless they are in its cache."""
    import timm

    try:
        model = timm.create_model(backbone, pretrained=True)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"pretrained: the weights of {backbone} could not be fetched ({reason}); where there is no network, fetch them "
            "elsewhere and name the file: pretrained: FILE.safetensors"
        ) from error
    state: State = model.state_dict()
    return state


def _file(file: Path) -> State:
    """The tensors of a checkpoint: timm's, torch's or safetensors', or a trial's own (its EMA weights where it has them)."""
    from timm.models import load_state_dict

    try:
        if file.suffix == ".safetensors":
            found: Any = load_state_dict(str(file))
        else:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # Pickled code, a cut file, another format: each raises its own kind.
        raise CheckpointError(f"pretrained: {file} is no checkpoint that can be read safely: {type(error).__name__}") from error
    for key in ("ema", "model_ema", "state_dict_ema", "model", "state_dict"):
        if isinstance(found, dict) and isinstance(found.get(key), dict) and found[key]:
            found = found[key]
            break
    state = {name.removeprefix("module."): tensor for name, tensor in found.items() if isinstance(tensor, Tensor)}
    if not state:
        raise CheckpointError(f"pretrained: {file} holds no tensors by name")
    return state
