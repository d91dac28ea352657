"""What runs in a Ray worker: one job after another in one warm process.

What it guarantees: a job that Tune takes away before its end has a checkpoint, and the
end of a trial is reported only after its checkpoint was written.

How: it is one of Tune's trainables with `reset_config`, so that Tune reuses the process
for the next job instead of starting a new one.

What would break it: keeping anything of a job after `_leave`, or importing torch at the
head of this module, as the driver imports it too.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

from ray import tune

from ablate.records import Event, Status, epochs_of

if TYPE_CHECKING:
    from ablate.execution.trial_run import TrialRun

# Epochs shorter than this are reported together: each report costs the driver several
# milliseconds. What a killed worker has not reported, its successor reports from the
# checkpoint or trains again.
REPORT_SECONDS = 1.0


class TrialWorker(tune.Trainable):
    """A warm worker: trains one job after another in one process."""

    def setup(self, config: dict[str, Any], batch: bool = True) -> None:
        # Imported modules stay until the process ends, so the garbage collector need
        # not scan them again between trials.
        gc.collect()
        gc.freeze()
        self._batch = batch
        self._work: TrialRun | None = None
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
            # A stopping rule must see every epoch before the next one is trained.
            if not self._batch or time.monotonic() - start > REPORT_SECONDS:
                break
        result: dict[str, Any] = {
            "events": events,
            "done": self._work.status != Status.RUNNING,
        }
        epochs = epochs_of(events)
        if epochs:
            last = epochs[-1]
            result |= {"epoch": last.number, **last.metrics}
        return result

    def cleanup(self) -> None:
        self._leave()

    def _take(self, config: dict[str, Any]) -> None:
        # Imported here and not above: the driver imports this module too, but trains
        # nothing and need not wait for torch and timm.
        from ablate.execution.trial_run import TrialRun

        self._work = TrialRun(config["parcel"].job, "ray")
        self._told = list(self._work.start())

    def _leave(self) -> None:
        """Ends the current job. If it has not finished, a checkpoint lets it resume."""
        if self._work is not None:
            if self._work.status == Status.RUNNING:
                self._work.save()
            self._work.close()
            self._work = None
