"""Takes diagnostics of a trained network from its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ablate import tasks
from ablate.data.share import WHOLE
from ablate.diagnostics.observe import measure
from ablate.models import build
from ablate.records import Data, Diagnostics, Measurement, Trained, Trial
from ablate.training.checkpoint import CheckpointFolder, has_checkpoint


def take_diagnostics(
    trial: Trained, data: Data, folder: str | Path, diagnostics: Diagnostics
) -> tuple[Measurement, ...] | None:
    """Takes diagnostics of a trial's network on the CPU.

    The weights are those of the checkpoint, the EMA weights if the recipe keeps them.
    Returns None if there is no checkpoint.

    Raises:
        CheckpointError: the checkpoint belongs to another trial, or another process is
            training it.
        DataError: the test images are missing.
    """
    if not has_checkpoint(folder):
        return None
    checkpoint = CheckpointFolder(folder, trial.hash)
    try:
        state = checkpoint.load()
    finally:
        checkpoint.release()
    if state is None:
        return None
    with torch.random.fork_rng(devices=[]):
        model = build(trial.architecture)
        model.load_state_dict(state["ema"] or state["model"])
        data = replace(data, image_size=trial.architecture.image_size)
        images = _first_images(trial, data, diagnostics.images)
        return measure(
            model,
            trial.architecture.backbone,
            images,
            diagnostics.names,
            len(state["epochs"]),
        )


def _first_images(trained: Trained, data: Data, count: int) -> Iterator[Tensor]:
    """Yields the first test images, as training prepares them."""
    trial = Trial(
        architecture=trained.architecture, recipe=trained.recipe, data=data, seed=0
    )
    task = tasks.of(trained.architecture)
    return task.work(trial, torch.device("cpu"), WHOLE).first_images(count)
