"""What all trainings of users have in common: epochs, checkpoints, signs of life."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path

from ablate.parts import trainer_named
from ablate.records import (
    CorrectImages,
    Diagnostics,
    Epoch,
    Measurement,
    Tested,
    Trial,
)
from ablate.training.checkpoint import CheckpointFolder
from ablate.training.energy import EnergyMeter
from ablate.training.errors import Diverged
from ablate.training.own_trial import not_finite

# How often the driving thread looks whether the training shows a sign of life.
LOOK_SECONDS = 1.0
# How long a training may take to end after it was stopped at a report.
STOP_SECONDS = 10.0


class OwnTraining(ABC):
    """The training of one trial by the user's own code.

    Attributes:
        epochs: all epochs so far, including those of earlier attempts.
        measurements: always empty.
        weights: always empty.
        tested: always None; the last epoch is the result.
        correct: always None; a trainer does not report single images.
    """

    def __init__(
        self, trial: Trial, folder: str | Path, meter: EnergyMeter | None
    ) -> None:
        self._trial = trial
        self._trainer = trainer_named(trial.architecture.trainer)
        self._meter = meter
        self._checkpoint = CheckpointFolder(folder, trial.hash)
        self.epochs: list[Epoch] = []
        self.measurements: list[Measurement] = []
        self.weights = ""
        self.tested: Tested | None = None
        self.correct: CorrectImages | None = None

    @property
    def finished(self) -> bool:
        return len(self.epochs) >= self._trial.recipe.epochs

    def diagnose(self, diagnostics: Diagnostics) -> tuple[Measurement, ...]:
        """Takes no diagnostics: the network is not known."""
        return ()

    def diagnosed(self, names: tuple[str, ...]) -> bool:
        return True

    def _beat(self) -> None:
        if self._meter is not None:
            self._meter.tick()
        self._checkpoint.beat()

    def _finish_epoch(self, metrics: dict[str, float], began: float) -> Epoch:
        """Adds an epoch.

        Raises:
            Diverged: a metric is not a finite number.
        """
        number = len(self.epochs) + 1
        broken = not_finite(metrics)
        if broken:
            raise Diverged(f"{broken} after epoch {number}")
        epoch = Epoch(
            number=number,
            metrics=metrics,
            lr=None,
            seconds=time.perf_counter() - began,
            joules=self._meter.joules() if self._meter is not None else None,
        )
        self.epochs.append(epoch)
        return epoch

    def _begin_epoch(self) -> float:
        if self._meter is not None:
            self._meter.start()
        return time.perf_counter()

    @abstractmethod
    def epoch(self) -> Epoch:
        """Trains one epoch."""

    @abstractmethod
    def save(self, *, weights_only: bool = False) -> None:
        """Writes the checkpoint of the last report."""

    @abstractmethod
    def close(self) -> None:
        """Ends the training, and releases the trial's folder."""
