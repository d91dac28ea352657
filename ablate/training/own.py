"""Which of the user's trainings trains a trial: a function, or a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ablate.own.commits import Checkout
from ablate.parts import trainer_named
from ablate.records import Trial
from ablate.training.energy import EnergyMeter
from ablate.training.own_base import OwnTraining
from ablate.training.own_command import CommandTraining
from ablate.training.own_function import FunctionTraining


def make_own(
    trial: Trial,
    folder: str | Path,
    *,
    device: str,
    threads: int,
    meter: EnergyMeter | None = None,
    hear: Callable[[str], None] | None = None,
    checkout: Checkout | None = None,
) -> OwnTraining:
    """Returns the training of a trial by the user's function or command.

    Args:
        hear: receives each line that a command prints.
        checkout: where the files of its commit are.

    Raises:
        UnknownName: the trainer's file is not loaded.
        TrialBusy: another process trains the trial.
    """
    trainer = trainer_named(trial.architecture.trainer)
    if not trainer.command:
        return FunctionTraining(
            trial, folder, device=device, threads=threads, meter=meter
        )
    return CommandTraining(
        trial,
        folder,
        device=device,
        threads=threads,
        meter=meter,
        hear=hear,
        checkout=checkout,
    )
