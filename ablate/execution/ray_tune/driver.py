"""What runs in the driver: a searcher, a scheduler and a callback for Tune.

What it guarantees: each job of an order runs until it ends, is stopped by the rule, or
has lost its worker more than MAX_FAILURES times. Every event that a worker reports
reaches `emit` in order, and nothing is read from Tune's own files after the run.

How: `JobSearcher` hands Tune one job after another, `RuledScheduler` stops trials
early, and `EventForwarder` forwards events. To stop a run, a callback raises `Interrupted`,
because Tune offers no other way to leave `fit`.

What would break it: a callback that raises anything but `Interrupted` or an error that
should end the run; or a searcher that says FINISHED while a job is out, since that job
may have to be handed out again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ray import cloudpickle, tune
from ray.exceptions import RayActorError
from ray.tune import Callback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from ablate.errors import ExecutorError
from ablate.execution.executor import NO_LOGS, Emit, Logs, Stop
from ablate.execution.ray_tune.loggers import Loggers
from ablate.execution.ray_tune.monitor import HANG_SECONDS, Monitor, dead_parts, died
from ablate.execution.ray_tune.stopping import StoppingRule
from ablate.execution.ray_tune.warden import MARK, PREFIX
from ablate.execution.ray_tune.worker import TrialWorker
from ablate.records import Ended, Event, Job, Order, Status, epochs_of

if TYPE_CHECKING:
    from ray.tune.experiment import Trial as TuneTrial

# How often one trial may lose its worker and start again. With the next loss it has
# failed.
MAX_FAILURES = 8
# More trials than there will ever be: the searcher says when it is finished.
NO_END = 10**9
# Trials that Tune may stage ahead. Tune ends a warm worker if no next trial is staged
# when its trial ends.
STAGED_AHEAD = 16


class NamedJob:
    """A job in the configuration of one of Tune's trials; its repr is the trial's hash.

    Tune builds names from the repr.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def __repr__(self) -> str:
        return self.job.trial.hash


class JobSearcher(Searcher):
    """Hands Tune one job after another.

    It returns None if there is no job now, and FINISHED if there will be no more. Tune
    retries a trial whose worker died while training it. But if a warm worker died
    between two trials, Tune gives the second one up at once. This class hands such a
    job out again, as another trial of Tune's.
    """

    def __init__(
        self, jobs: Iterable[Job | None], stop: Stop, follow: Callable[[Job], None]
    ) -> None:
        super().__init__()
        self._jobs = iter(jobs)
        self._stop = stop
        self._follow = follow
        self._out: dict[str, Job] = {}
        self._again: deque[Job] = deque()
        self._losses: Counter[str] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its searcher to restore a run later. A run is never restored
        # here, and an iterator of jobs cannot be pickled.
        return {}

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        return True

    def suggest(self, trial_id: str) -> Any:
        if self._stop():
            # While nothing is running, Tune calls only this method, again and again. No
            # callback could stop the run.
            raise Interrupted
        try:
            job = self._again.popleft() if self._again else next(self._jobs)
        except StopIteration:
            # A job that is out may lose its worker and have to be handed out again.
            if self._out:
                return None
            return Searcher.FINISHED
        if job is None:
            return None
        self._out[trial_id] = job
        self._follow(job)
        return {"trial": job.trial.hash, "parcel": NamedJob(job)}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Forgets a job that ended; `given_up` decides on a failed one."""
        if not error:
            self._out.pop(trial_id, None)

    def given_up(self, trial: TuneTrial) -> int:
        """Decides on a trial that Tune has given up.

        Returns how often it has failed, or 0 if its job is handed out again.
        """
        job = self._out.pop(trial.trial_id)
        key = job.trial.hash
        # Ray does not count the loss of a worker on a preempted node. Counting it here
        # bounds the number of retries.
        self._losses[key] += max(1, trial.num_failures)
        if self._losses[key] > MAX_FAILURES or not _lost_its_worker(trial):
            return self._losses[key]
        self._again.append(job)
        return 0

    def save(self, checkpoint_path: str) -> None:
        pass

    def restore(self, checkpoint_path: str) -> None:
        pass


class Interrupted(Exception):
    """The run was asked to stop."""


class EventForwarder(Callback):
    """Forwards the events of workers, and checks between them whether to stop."""

    def __init__(
        self, emit: Emit, stop: Stop, watch: Monitor, loggers: Loggers
    ) -> None:
        self._emit = emit
        self._stop = stop
        self._watch = watch
        self._loggers = loggers
        self.given_up: Callable[[TuneTrial], int] = lambda trial: 1
        self.open: set[str] = set()
        self.failure: Exception | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its callbacks to restore a run later. A run is never restored
        # here.
        return {}

    def follow(self, job: Job) -> None:
        """Records a job before its worker starts."""
        self._watch.follow(job.trial.hash, job.checkpoints)
        self._loggers.follow(job)

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        if self._stop():
            raise Interrupted
        self._watch.check(trials)

    def on_trial_result(
        self,
        iteration: int,
        trials: list[TuneTrial],
        trial: TuneTrial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        for event in result.get("events", ()):
            self.tell(event)

    def on_trial_complete(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        key = str(trial.config["trial"])
        if key in self.open:
            # The trial ended without an Ended event, so the scheduler stopped it.
            self.tell(Ended(key, Status.PRUNED))

    def on_trial_error(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        failures = self.given_up(trial)
        if failures:
            self.tell(
                Ended(
                    str(trial.config["trial"]),
                    Status.FAILED,
                    _last_words(trial, failures),
                )
            )

    def tell(self, event: Event) -> None:
        if self.failure is not None:
            # Storing an earlier event failed, which ends the run. Workers may still
            # send events.
            return
        self._watch.told(event.trial)
        if isinstance(event, Ended):
            self.open.discard(event.trial)
        else:
            self.open.add(event.trial)
        try:
            self._emit(event)
        except Exception as error:
            # Tune wraps every error in its own type; `train` raises this one instead.
            self.failure = error
            raise
        self._loggers.tell(event)


def _lost_its_worker(trial: TuneTrial) -> bool:
    """Whether the last failure of a trial was the death of its worker.

    An error in the trial itself is not.
    """
    try:
        with open(trial.pickled_error_file, "rb") as stream:
            # Unpickling is safe here: Tune wrote this file, in the private folder of
            # this run.
            return isinstance(cloudpickle.load(stream), RayActorError)
    except Exception:
        # The file is missing or truncated, so the cause is unknown. An exception in a
        # callback would end the whole run.
        return False


def _last_words(trial: TuneTrial, failures: int) -> str:
    try:
        with open(trial.error_file) as stream:
            text = stream.read()[-4000:]
    except (OSError, TypeError):
        text = "no message"
    return f"its worker failed, {failures} in all; the last time: {text}"


class RuledScheduler(FIFOScheduler):
    """First come, first served; trials are stopped early when the rule says so."""

    def __init__(self, rule: StoppingRule) -> None:
        super().__init__()
        self._rule = rule

    def on_trial_add(self, tune_controller: Any, trial: TuneTrial) -> None:
        self._rule.add(trial.config["trial"], trial.config["parcel"].job.history)

    def on_trial_result(
        self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]
    ) -> str:
        epochs = epochs_of(result.get("events", ()))
        stops = self._rule.stops(trial.config["trial"], tuple(epochs))
        # A trial that has reached its last epoch ends by itself, and one that diverged
        # or failed reports that. Stopping it here would mark it as pruned.
        return str(
            TrialScheduler.STOP
            if stops and not result.get("done")
            else TrialScheduler.CONTINUE
        )


def train(
    order: Order, emit: Emit, stop: Stop, logs: Logs = NO_LOGS, *, local: bool = True
) -> None:
    """Runs an order on the Ray that this process is connected to.

    Args:
        local: whether all of this Ray is on this machine.
    """
    fifo = order.scheduler.name == "fifo"
    trainable = tune.with_parameters(TrialWorker, batch=fifo)
    watch = Monitor(patience=HANG_SECONDS if local else 0.0)
    loggers = Loggers(logs)
    forwarder = EventForwarder(emit, stop, watch, loggers)
    searcher = JobSearcher(order.jobs, stop, forwarder.follow)
    forwarder.given_up = searcher.given_up
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(STAGED_AHEAD)
    # Tune insists on a folder for its state. It is a temporary one, because nothing in
    # it is read after the run.
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=os.environ.get(MARK))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuner = tune.Tuner(
            tune.with_resources(
                trainable, {"cpu": order.resources.cpus, "gpu": order.resources.gpus}
            ),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=FIFOScheduler()
                if fifo
                else RuledScheduler(StoppingRule(order)),
                num_samples=NO_END,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="run",
                storage_path=folder,
                callbacks=[forwarder],
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        try:
            tuner.fit()
        except Interrupted:
            for key in sorted(forwarder.open):
                forwarder.tell(Ended(key, Status.RUNNING))
        except Exception as error:
            # If a part of Ray has died, that is the cause, whatever error came first.
            parts = dead_parts()
            if (
                forwarder.failure is None
                and parts
                and not isinstance(error, ExecutorError)
            ):
                raise ExecutorError(died(parts[0])) from None
            raise (forwarder.failure or error) from None
        finally:
            loggers.close()
            shutil.rmtree(folder, ignore_errors=True)
