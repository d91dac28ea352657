"""What runs in the driver: the jobs for Tune, its scheduler, and the callback that
passes events on.
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
from ablate.execution import NO_LOGS, Emit, Logs, Stop
from ablate.execution.ray_tune.loggers import Loggers
from ablate.execution.ray_tune.rules import Rule
from ablate.execution.ray_tune.warden import MARK, PREFIX
from ablate.execution.ray_tune.watch import HANG_SECONDS, Watch, dead_parts, died
from ablate.execution.ray_tune.worker import TrialWorker
from ablate.records import Ended, Event, Job, Order, Progressed, Status

if TYPE_CHECKING:
    from ray.tune.experiment import Trial as TuneTrial

# How often one trial may lose its worker before it is given up.
MAX_FAILURES = 8
# More trials than there will be: the searcher says when it is done.
NO_END = 10**9
# Trials that Tune may stage ahead, so that a warm worker is never given up for want of
# a next one.
STAGED_AHEAD = 16


class Parcel:
    """A job in Tune's configuration of a trial, which prints as the trial's hash: Tune
    makes names of what it prints.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def __repr__(self) -> str:
        return self.job.trial.hash


class JobSearcher(Searcher):
    """Tells Tune one job after another, that there is none now, or that there will be
    no more.

    Tune tries a trial again whose worker died while it trained. It gives up a trial at
    once whose warm worker died after the trial before it. This class hands such a job
    out again, as another trial of Tune's.
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
        # Tune saves its searcher to restore a run, which nobody here ever does.
        return {}

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        return True

    def suggest(self, trial_id: str) -> Any:
        if self._stop():
            # With nothing running, Tune asks again and again here and nowhere else.
            raise Interrupted
        try:
            job = self._again.popleft() if self._again else next(self._jobs)
        except StopIteration:
            # One that is out may have to be told again.
            if self._out:
                return None
            return Searcher.FINISHED
        if job is None:
            return None
        self._out[trial_id] = job
        self._follow(job)
        return {"trial": job.trial.hash, "parcel": Parcel(job)}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if not error:
            self._out.pop(trial_id, None)

    def given_up(self, trial: TuneTrial) -> int:
        """How often a trial has failed that Tune has given up; 0 where its job is
        handed out again.
        """
        job = self._out.pop(trial.trial_id)
        key = job.trial.hash
        # Ray does not count the loss of a worker that a cloud has taken back.
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


class Teller(Callback):
    """Passes the workers' events on, and asks between them whether to stop."""

    def __init__(self, emit: Emit, stop: Stop, watch: Watch, loggers: Loggers) -> None:
        self._emit = emit
        self._stop = stop
        self._watch = watch
        self._loggers = loggers
        self.given_up: Callable[[TuneTrial], int] = lambda trial: 1
        self.open: set[str] = set()
        self.failure: Exception | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its callbacks to restore a run, which nobody here ever does.
        return {}

    def follow(self, job: Job) -> None:
        """Takes note of a job before its worker starts."""
        self._watch.follow(job.trial.hash, job.checkpoints)
        self._loggers.follow(job)

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        if self._stop():
            raise Interrupted
        self._watch.look(trials)

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
            # It ended without saying so: the scheduler stopped it.
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
            # What cannot be stored ended the run; its workers may still have something
            # to say.
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
        self._loggers.tell(event)


def _lost_its_worker(trial: TuneTrial) -> bool:
    """Whether the last failure of a trial was the death of its worker, and no mistake
    of its own.
    """
    try:
        with open(trial.pickled_error_file, "rb") as stream:
            # Tune's own file in this run's private folder.
            return isinstance(cloudpickle.load(stream), RayActorError)
    except Exception:
        # The file is missing or cut, so the cause is unknown. A callback that raises
        # would end the whole run.
        return False


def _last_words(trial: TuneTrial, failures: int) -> str:
    try:
        with open(trial.error_file) as stream:
            text = stream.read()[-4000:]
    except (OSError, TypeError):
        text = "no message"
    return f"its worker failed, {failures} in all; the last time: {text}"


class RuledScheduler(FIFOScheduler):
    """First come, first served, but stopped where the rule says so."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self._rule = rule

    def on_trial_add(self, tune_controller: Any, trial: TuneTrial) -> None:
        self._rule.add(trial.config["trial"], trial.config["parcel"].job.history)

    def on_trial_result(
        self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]
    ) -> str:
        epochs = [
            epoch
            for event in result.get("events", ())
            if isinstance(event, Progressed)
            for epoch in event.epochs
        ]
        stops = self._rule.stops(trial.config["trial"], tuple(epochs))
        # A trial that has had all its epochs ends by itself, and one that diverged or
        # failed says so.
        return str(
            TrialScheduler.STOP
            if stops and not result.get("done")
            else TrialScheduler.CONTINUE
        )


def train(
    order: Order, emit: Emit, stop: Stop, logs: Logs = NO_LOGS, *, local: bool = True
) -> None:
    """Runs an order on the Ray that this process is connected to; `local` says that all
    of it is on this machine.
    """
    fifo = order.scheduler.name == "fifo"
    trainable = tune.with_parameters(TrialWorker, batch=fifo)
    watch = Watch(patience=HANG_SECONDS if local else 0.0)
    loggers = Loggers(logs)
    teller = Teller(emit, stop, watch, loggers)
    searcher = JobSearcher(order.jobs, stop, teller.follow)
    teller.given_up = searcher.given_up
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(STAGED_AHEAD)
    # Nothing in Tune's own folder is ever read again.
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=os.environ.get(MARK))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuner = tune.Tuner(
            tune.with_resources(
                trainable, {"cpu": order.resources.cpus, "gpu": order.resources.gpus}
            ),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=FIFOScheduler() if fifo else RuledScheduler(Rule(order)),
                num_samples=NO_END,
                reuse_actors=True,
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
            if (
                teller.failure is None
                and parts
                and not isinstance(error, ExecutorError)
            ):
                raise ExecutorError(died(parts[0])) from None
            raise (teller.failure or error) from None
        finally:
            loggers.close()
            shutil.rmtree(folder, ignore_errors=True)
