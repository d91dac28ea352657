"""Decides when a trial is stopped early, with Ray Tune's schedulers.

What it guarantees: a decision takes the stored epochs of all trials into account,
whichever run trained them. The rule is the same for the inline, simulated and Ray
executors.

How: Tune's scheduler is called directly, epoch by epoch, and its state is rebuilt from
stored epochs at the start of each run.

What would break it: feeding an epoch twice (`_seen` prevents it), or a version of Ray
whose schedulers read more of a trial than its ID.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass
from typing import Any

from ablate.records import EarlyStop, Epoch, Order

# Keep the interface of Tune that this module is written for. Workers, and what a user's
# trainer does with Ray, have the user's own setting.
_users = os.environ.get("RAY_TRAIN_V2_ENABLED")
os.environ["RAY_TRAIN_V2_ENABLED"] = "0"

try:
    from ray.tune.schedulers import (
        AsyncHyperBandScheduler,
        MedianStoppingRule,
        TrialScheduler,
    )
finally:
    del os.environ["RAY_TRAIN_V2_ENABLED"]
    if _users is not None:
        os.environ["RAY_TRAIN_V2_ENABLED"] = _users


@dataclass(frozen=True)
class _Known:
    """The only attribute of Tune's trial that these schedulers read."""

    trial_id: str


class _Brackets(AsyncHyperBandScheduler):
    """HyperBand's brackets, run asynchronously.

    Ray draws the bracket of a trial at random in each run. Here the trial's hash
    determines it, so that it stays the same after a restart.
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
    """The median stopping rule, without pausing.

    While there is too little to compare with, Ray pauses a trial; here it continues.
    """

    def _on_insufficient_samples(
        self, tune_controller: Any, trial: Any, time: float
    ) -> str:
        return str(TrialScheduler.CONTINUE)


class StoppingRule:
    """Decides after each epoch whether a trial should be stopped.

    The stored epochs of trials that resume, and of trials that another run finished,
    count too: rungs and medians are those of everything that is known.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        # By group, because only the trials of one group are compared.
        self._schedulers: dict[str, TrialScheduler] = {}
        self._groups: dict[str, str] = {}
        self._seen = dict[str, int]()
        # Trials that are trained to their end.
        self._kept: dict[str, EarlyStop] = {}
        for key, epochs in sorted(order.peers.items()):
            self.add(key, epochs, group=order.groups.get(key, ""))

    def add(
        self,
        key: str,
        history: tuple[Epoch, ...],
        *,
        early_stop: EarlyStop = "allowed",
        group: str = "",
    ) -> None:
        """Adds a trial, with its known epochs.

        Args:
            early_stop: whether it may be stopped, and if not, whether the others are
                compared with it.
            group: the trials that it is compared with.
        """
        if group not in self._schedulers:
            self._schedulers[group] = _make(self._order)
        self._groups[key] = group
        if early_stop != "allowed":
            self._kept[key] = early_stop
        if early_stop != "apart" and key not in self._seen:
            self._seen[key] = 0
            self._schedulers[group].on_trial_add(None, _Known(key))
            self.stops(key, history)

    def stops(self, key: str, epochs: tuple[Epoch, ...]) -> bool:
        """Whether a trial should be stopped after the last of these epochs.

        Epochs that were seen before are skipped.
        """
        if self._kept.get(key) == "apart":
            return False
        decided = TrialScheduler.CONTINUE
        scheduler = self._schedulers[self._groups[key]]
        for epoch in epochs:
            if epoch.number > self._seen[key]:
                self._seen[key] = epoch.number
                result = {"epoch": epoch.number, **epoch.metrics}
                decided = scheduler.on_trial_result(None, _Known(key), result)
                if key in self._kept:
                    # The median rule refuses epochs of a trial that it has stopped.
                    getattr(scheduler, "_stopped_trials", set()).discard(_Known(key))
        return bool(decided == TrialScheduler.STOP) and key not in self._kept


def _make(order: Order) -> TrialScheduler:
    declared, epochs = order.scheduler, max(order.epochs, 1)
    grace = min(declared.grace_epochs, epochs)
    if declared.name == "median":
        return _Median(
            "epoch",
            order.metric,
            order.direction,
            grace_period=grace,
            min_samples_required=declared.samples,
        )
    if declared.name == "asha":
        brackets = 1
    else:
        brackets = 1 + int(
            math.log(epochs / grace) / math.log(declared.reduction) + 1e-9
        )
    return _Brackets(
        "epoch",
        order.metric,
        order.direction,
        max_t=epochs,
        grace_period=grace,
        reduction_factor=declared.reduction,
        brackets=brackets,
    )
