"""What runs in a Ray worker: one job after another in one warm process."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

from ray import tune

from ablate.records import Event, Progressed, Status

if TYPE_CHECKING:
    from ablate.execution.work import Work

# Epochs shorter than this are told together: each report costs the driver several
# milliseconds.
REPORT_SECONDS = 1.0


class TrialWorker(tune.Trainable):
    """A warm worker: trains one job after another in one process."""

    def setup(self, config: dict[str, Any], batch: bool = True) -> None:
        # What was imported stays for ever: collecting between trials need not look at
        # it again.
        gc.collect()
        gc.freeze()
        self._batch = batch
        self._work: Work | None = None
        self._told: list[Event] = []
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._leave()
        self._take(new_config)
        return True

    def step(self) -> dict[str, Any]:
        assert self._work is not None
        events, self._told = self._told, []
        start = time.monotonic()
        while self._work.status == Status.RUNNING:
            events += self._work.step()
            if not self._batch or time.monotonic() - start > REPORT_SECONDS:
                break
        result: dict[str, Any] = {
            "events": events,
            "done": self._work.status != Status.RUNNING,
        }
        epochs = [
            epoch
            for event in events
            if isinstance(event, Progressed)
            for epoch in event.epochs
        ]
        if epochs:
            last = epochs[-1]
            result |= {
                "epoch": last.number,
                "top1": last.top1,
                "top5": last.top5,
                "loss": last.loss,
            }
        return result

    def cleanup(self) -> None:
        self._leave()

    def _take(self, config: dict[str, Any]) -> None:
        # Here and not above: the driver, which imports this module too, trains nothing
        # and need not wait for torch and timm.
        from ablate.execution.work import Work

        self._work = Work(config["parcel"].job, "ray")
        self._told = list(self._work.start())

    def _leave(self) -> None:
        """A job that is left before its end was stopped: its checkpoint lets it go on."""
        if self._work is not None:
            if self._work.status == Status.RUNNING:
                self._work.save()
            self._work.close()
            self._work = None
