"""When a trial is stopped early: Ray Tune's schedulers, asked epoch by epoch, whose
state is rebuilt from stored epochs.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    MedianStoppingRule,
    TrialScheduler,
)

from ablate.records import Epoch, Order


@dataclass(frozen=True)
class _Known:
    """All that these schedulers read of Tune's trial."""

    trial_id: str


class _Brackets(AsyncHyperBandScheduler):
    """HyperBand's brackets, run asynchronously.

    Ray draws a trial's bracket anew in each run; here it is the trial's own.
    """

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        largest = max(len(bracket._rungs) for bracket in self._brackets)
        weights = [
            math.exp(len(bracket._rungs) - largest) for bracket in self._brackets
        ]
        self._trial_info[trial.trial_id] = random.Random(trial.trial_id).choices(
            self._brackets, weights
        )[0]


class _Median(MedianStoppingRule):
    """Median stopping that goes on, not to sleep, while there is too little to compare
    with.
    """

    def _on_insufficient_samples(
        self, tune_controller: Any, trial: Any, time: float
    ) -> str:
        return str(TrialScheduler.CONTINUE)


class Rule:
    """Tells after each epoch whether a trial is to be stopped.

    A trial that goes on in a later run, and one that another run finished, bring their
    stored epochs: rungs and medians are those of all that is known.
    """

    def __init__(self, order: Order) -> None:
        self._scheduler = _make(order)
        self._seen = dict[str, int]()
        for key, epochs in sorted(order.peers.items()):
            self.add(key, epochs)

    def add(self, key: str, history: tuple[Epoch, ...]) -> None:
        """A trial that is to be compared, with the epochs that are known of it."""
        if key not in self._seen:
            self._seen[key] = 0
            self._scheduler.on_trial_add(None, _Known(key))
            self.stops(key, history)

    def stops(self, key: str, epochs: tuple[Epoch, ...]) -> bool:
        """Whether a trial is to be stopped after the last of these epochs.

        Those that were told before are passed over.
        """
        decided = TrialScheduler.CONTINUE
        for epoch in epochs:
            if epoch.number > self._seen[key]:
                self._seen[key] = epoch.number
                result = {
                    "epoch": epoch.number,
                    "top1": epoch.top1,
                    "top5": epoch.top5,
                    "loss": epoch.loss,
                }
                decided = self._scheduler.on_trial_result(None, _Known(key), result)
        return bool(decided == TrialScheduler.STOP)


def _make(order: Order) -> TrialScheduler:
    said, epochs = order.scheduler, max(order.epochs, 1)
    grace = min(said.grace_epochs, epochs)
    if said.name == "median":
        return _Median(
            "epoch",
            order.metric,
            order.direction,
            grace_period=grace,
            min_samples_required=said.samples,
        )
    if said.name == "asha":
        brackets = 1
    else:
        brackets = 1 + int(math.log(epochs / grace) / math.log(said.reduction) + 1e-9)
    return _Brackets(
        "epoch",
        order.metric,
        order.direction,
        max_t=epochs,
        grace_period=grace,
        reduction_factor=said.reduction,
        brackets=brackets,
    )
