"""What runs in the driver: the jobs for Tune, its scheduler, and the callback that passes events on."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune import Callback
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from ablate.errors import ExecutorError
from ablate.execution import Emit, Stop
from ablate.execution.ray_tune.watch import DIED, Watch, dead_parts
from ablate.execution.ray_tune.worker import TrialWorker
from ablate.records import Ended, Epoch, Event, Job, Order, Status

if TYPE_CHECKING:
    from ray.tune.experiment import Trial as TuneTrial

MAX_FAILURES = 8
"""How often one trial may lose its worker before it is given up."""
STAGED_AHEAD = 16
"""Trials that Tune may stage ahead, so that a warm worker is never given up for want of a next one."""


class PlanSearcher(Searcher):
    """Tells Tune the jobs in their order, and that there are no more."""

    def __init__(self, jobs: tuple[Job, ...]) -> None:
        super().__init__()
        self._waiting = [job.trial.hash for job in reversed(jobs)]

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> Any:
        return {"trial": self._waiting.pop()} if self._waiting else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass

    def save(self, checkpoint_path: str) -> None:
        pass

    def restore(self, checkpoint_path: str) -> None:
        pass


class Interrupted(Exception):
    """The run was asked to stop."""


class Teller(Callback):
    """Passes the workers' events on, and asks between them whether to stop."""

    def __init__(self, emit: Emit, stop: Stop, watch: Watch) -> None:
        self._emit, self._stop, self._watch = emit, stop, watch
        self.open: set[str] = set()
        self.failure: Exception | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its callbacks to restore a run, which nobody here ever does.
        return {}

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        if self._stop():
            raise Interrupted
        self._watch.look(trials)

    def on_trial_result(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, result: dict[str, Any], **info: Any
    ) -> None:
        for event in result.get("events", ()):
            self.tell(event)

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        key = str(trial.config["trial"])
        if key in self.open:
            # It ended without saying so: the scheduler stopped it.
            self.tell(Ended(key, Status.PRUNED))

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self.tell(Ended(str(trial.config["trial"]), Status.FAILED, _last_words(trial)))

    def tell(self, event: Event) -> None:
        if self.failure is not None:
            # What cannot be stored ended the run; its workers may still have something to say.
            return
        self._watch.told(event.trial)
        if isinstance(event, Ended):
            self.open.discard(event.trial)
        else:
            self.open.add(event.trial)
        try:
            self._emit(event)
        except Exception as error:
            # Tune makes its own error of any other.
            self.failure = error
            raise


def _last_words(trial: TuneTrial) -> str:
    try:
        with open(trial.error_file) as stream:
            text = stream.read()[-4000:]
    except (OSError, TypeError):
        text = "no message"
    return f"its worker died {MAX_FAILURES + 1} times; the last time: {text}"


class ReplayedASHA(AsyncHyperBandScheduler):
    """ASHA whose rungs hold what is already known: epochs stored by earlier runs are replayed, not trained again."""

    def __init__(self, order: Order) -> None:
        longest = max(job.trial.recipe.epochs for job in order.jobs)
        grace = min(order.scheduler.grace_epochs, longest)
        super().__init__(
            "epoch", order.metric, order.direction, max_t=longest, grace_period=grace, reduction_factor=order.scheduler.reduction
        )
        self._curves = {job.trial.hash: job.history for job in order.jobs}
        for key, epochs in sorted(order.peers.items()):
            peer: Any = SimpleNamespace(trial_id=f"known-{key}", config={"trial": key})
            super().on_trial_add(None, peer)
            self._replay(peer, epochs)

    def on_trial_add(self, tune_controller: Any, trial: TuneTrial) -> None:
        super().on_trial_add(tune_controller, trial)
        self._replay(trial, self._curves[trial.config["trial"]])

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        # A trial that has had all its epochs ends by itself, and one that diverged or failed says so.
        return str(TrialScheduler.CONTINUE if result.get("done") else super().on_trial_result(tune_controller, trial, result))

    def _replay(self, trial: Any, epochs: tuple[Epoch, ...]) -> None:
        for epoch in epochs:
            super().on_trial_result(
                None, trial, {"epoch": epoch.number, "top1": epoch.top1, "top5": epoch.top5, "loss": epoch.loss}
            )


def _scheduler(order: Order) -> TrialScheduler:
    return ReplayedASHA(order) if order.scheduler.name == "asha" else FIFOScheduler()


def train(order: Order, emit: Emit, stop: Stop) -> None:
    """Runs an order on the Ray that this process is connected to."""
    resources = order.jobs[0].resources
    jobs = {job.trial.hash: job for job in order.jobs}
    trainable = tune.with_parameters(TrialWorker, jobs=jobs, batch=order.scheduler.name == "fifo")
    teller = Teller(emit, stop, Watch(order.jobs[0].checkpoints))
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(min(STAGED_AHEAD, len(jobs)))
    # Nothing in Tune's own folder is ever read again.
    folder = tempfile.mkdtemp(prefix="ablate-ray-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": resources.cpus, "gpu": resources.gpus}),
            tune_config=tune.TuneConfig(
                search_alg=PlanSearcher(order.jobs), scheduler=_scheduler(order), num_samples=len(jobs), reuse_actors=True
            ),
            run_config=tune.RunConfig(
                name="run",
                storage_path=folder,
                callbacks=[teller],
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        try:
            tuner.fit()
        except Interrupted:
            for key in sorted(teller.open):
                teller.tell(Ended(key, Status.RUNNING))
        except Exception as error:
            # Where a part of Ray has died, that is the cause, whatever broke first.
            parts = dead_parts()
            if teller.failure is None and parts and not isinstance(error, ExecutorError):
                raise ExecutorError(DIED.format(parts[0])) from None
            raise (teller.failure or error) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
