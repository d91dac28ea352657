"""What a user's training receives: the trial, and how to report and to resume."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError, shortened
from ablate.parts import Trainer
from ablate.records import Level, Trial

if TYPE_CHECKING:
    from torch import nn

Saver = Callable[[Path], object]


class Stopped(BaseException):
    """The trial is to stop: it was interrupted or pruned.

    It is a BaseException, so that `except Exception` in the training lets it pass.
    """


@dataclass(frozen=True)
class Report:
    """What the training measured after an epoch, and how to save its state."""

    metrics: Mapping[str, float]
    save: Saver | None


@dataclass(frozen=True)
class Returned:
    """The training has ended; `error` is what it raised, if anything."""

    error: BaseException | None = None


class OwnTrial:
    """One trial, as a user's training sees it.

    Attributes:
        levels: the level of each factor of the trainer.
        recipe: `epochs`, and the fields of the recipe that the trainer reads.
        seed: the trial's seed. All random states are seeded with it before the training
            begins.
        device: `cpu` or `cuda`.
        threads: torch's number of threads.
    """

    def __init__(
        self,
        trial: Trial,
        trainer: Trainer,
        device: str,
        threads: int,
        resume_with: Callable[[Callable[[Path], object]], int],
    ) -> None:
        self.levels: Mapping[str, Level] = dict(trial.architecture.settings)
        self.recipe: Mapping[str, Level] = recipe_of(trial, trainer)
        self.seed = trial.seed
        self.device = device
        self.threads = threads
        self._trainer = trainer
        self._epochs = trial.recipe.epochs
        self._resume_with = resume_with
        self._messages: SimpleQueue[Report | Returned] = SimpleQueue()
        self._go_on = threading.Event()
        self._stopping = False
        # Whether the training began where its checkpoint ends.
        self.resumed = False

    def model(self) -> nn.Module:
        """Builds the network of `model=` on the trial's device.

        torch is seeded first, so equal levels and seeds give equal weights.

        Raises:
            AblateError: the trainer has no `model=`.
        """
        if self._trainer.model is None:
            raise AblateError(
                f"trainer {self._trainer.name} has no model=; build the network in the"
                " function instead"
            )
        import torch

        torch.manual_seed(self.seed)
        return self._trainer.model(self.levels).to(self.device)

    def epochs(
        self, *, resume: Callable[[Path], object] | None = None
    ) -> Iterator[int]:
        """The numbers of the epochs that are left to train, from 1 in a new trial.

        Args:
            resume: loads what `save` of the last report wrote. It receives a path.
                Random states are restored after it. Without it, a trial that was
                interrupted starts again.
        """
        done = 0
        if resume is not None:
            done = self._resume_with(resume)
            self.resumed = done > 0
        yield from range(done + 1, self._epochs + 1)

    def report(self, *, save: Saver | None = None, **metrics: float) -> None:
        """Reports the metrics after an epoch.

        Args:
            save: writes everything that `resume` needs to a path, as a file or as a
                folder. It is called only if a checkpoint is due, before this returns.
            metrics: every metric that the trainer declares, by name.

        Raises:
            AblateError: a metric is missing, unknown or not a number.
        """
        if self._stopping:
            # The function went on although it was told to stop.
            raise Stopped
        self._messages.put(Report(checked(metrics, self._trainer), save))
        self._go_on.wait()
        self._go_on.clear()
        if self._stopping:
            raise Stopped

    # The following belong to the other thread, which drives the training.

    def go_on(self) -> None:
        """Lets the training continue after its report."""
        self._go_on.set()

    def stop(self) -> None:
        """Ends the training at its last report."""
        self._stopping = True
        self._go_on.set()

    def returned(self, error: BaseException | None = None) -> None:
        """Says that the training has ended."""
        self._messages.put(Returned(error))

    def next_message(self, seconds: float) -> Report | Returned:
        """Returns the next message. Raises queue.Empty if there is none in time."""
        return self._messages.get(timeout=seconds)


def recipe_of(trial: Trial, trainer: Trainer) -> dict[str, Level]:
    """The fields of the recipe that a trainer reads."""
    return {name: getattr(trial.recipe, name) for name in ("epochs", *trainer.recipe)}


def checked(metrics: Mapping[str, Any], trainer: Trainer) -> dict[str, float]:
    """Returns the reported metrics as numbers.

    Raises:
        AblateError: a metric is missing, unknown or not a number.
    """
    names = [metric.name for metric in trainer.metrics]
    missing = [name for name in names if name not in metrics]
    unknown = [name for name in metrics if name not in names]
    if missing or unknown:
        wrong = [f"{name} is missing" for name in missing]
        wrong += [f"{name} is not declared" for name in unknown]
        raise AblateError(
            f"trainer {trainer.name} declares the metrics {', '.join(names)}; it"
            f" reported {', '.join(metrics) or 'none'}: {', '.join(wrong)}"
        )
    values = {}
    for name in names:
        try:
            value = metrics[name]
            # A tensor may still carry its gradient.
            detach = getattr(value, "detach", None)
            values[name] = float(detach() if detach else value)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            printed = repr(metrics[name])
            if hasattr(metrics[name], "shape"):
                printed = f"an array of {tuple(metrics[name].shape)}"
            raise AblateError(
                f"trainer {trainer.name} reported {name} = {shortened(printed)}; it must"
                " be one number"
            ) from error
    return values


def not_finite(metrics: Mapping[str, float]) -> str:
    """The metrics that are not finite numbers, in words; empty if all are."""
    return ", ".join(
        f"{name} is {value}"
        for name, value in metrics.items()
        if not math.isfinite(value)
    )
