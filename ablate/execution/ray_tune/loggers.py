"""Live logging of stored epochs to TensorBoard, MLflow or Weights & Biases.

What it guarantees: an epoch is logged only after it is stored, a service that fails or
hangs does not delay a trial, and a trial is one run in a service too: a later process
replaces what an earlier one logged about the trial.

How: Tune's own callbacks talk to the services. Each of them runs in a thread of its own
and receives a `Run` in place of one of Tune's trials.

What would break it: a version of Ray whose callbacks read more attributes of a trial
than `Run` has, or logging through a callback outside the thread of its service.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from ray.tune.logger import LoggerCallback

from ablate.errors import ExecutorError
from ablate.execution.executor import Logs
from ablate.identity import canonical_json
from ablate.records import (
    Ended,
    Event,
    Job,
    Measured,
    Progressed,
    Started,
    Status,
    Trial,
)
from ablate.text import escape
from ablate.text.advice import option

T = TypeVar("T")
# Characters of a run's name that show its levels; file systems allow 255 in all.
NAME_LENGTH = 120
# Events are gathered until none has arrived for this long: an epoch, its diagnostics
# and its test become one step of the service.
GATHER_SECONDS = 1.0
# After this long they are forwarded even if more events arrive.
LONGEST_SECONDS = 10.0
# How long the end of a run waits for a service before it says so, and after that. A
# minute after its parts have ended, Ray would kill the process.
SILENT_SECONDS, CLOSE_SECONDS = 3.0, 30.0
# How long a service may then take to end the call that it is in.
CALL_SECONDS = 10.0


class Run:
    """A trial in the form that Tune's callbacks expect.

    They read only these attributes of one of Tune's trials.
    """

    def __init__(self, trial: Trial, factors: tuple[str, ...]) -> None:
        told = {**_levels(trial), "seed": trial.seed}
        cell = (
            ",".join(f"{name}={told[name]}" for name in factors if name in told)
            or "baseline"
        )
        cell = re.sub(r"[^\w.,=+-]+", "-", cell)[:NAME_LENGTH]
        self.trial_id = trial.hash
        self.experiment_dir_name = cell
        """The runs of one cell form a group in Weights & Biases."""
        self.config = self.evaluated_params = {**told, "trial": trial.hash}
        self._name = f"{cell},seed={trial.seed},{trial.hash[:8]}"
        self.local_path = ""
        self.last = 0
        self.waiting: dict[int, dict[str, float]] = {}
        """The values that are still to be logged, by epoch."""
        self._measured: set[tuple[int, str]] = set()

    def __str__(self) -> str:
        return self._name

    def init_local_path(self) -> None:
        Path(self.local_path).mkdir(parents=True, exist_ok=True)

    def collect(self, event: Event) -> None:
        """Collects the values of an event by epoch.

        After a worker is lost, the same values are reported again; only the first ones
        count.
        """
        if isinstance(event, Progressed):
            for epoch in event.epochs:
                if epoch.number > self.last:
                    self.last = epoch.number
                    values = dict(epoch.metrics)
                    for name in ("lr", "seconds", "joules"):
                        value = getattr(epoch, name)
                        if value is not None:
                            values[name] = value
                    self.waiting[epoch.number] = values
        # Diagnostics of an epoch arrive after its metrics, and are logged with them.
        elif isinstance(event, Measured):
            for one in event.measurements:
                name = f"{one.name}/layer {one.layer}"
                if one.value is not None and (one.epoch, name) not in self._measured:
                    self._measured.add((one.epoch, name))
                    self.waiting.setdefault(one.epoch, {})[name] = one.value
        elif isinstance(event, Ended) and event.tested is not None:
            tested = {
                f"test/{name}": value for name, value in event.tested.metrics.items()
            }
            self.waiting.setdefault(self.last, {}).update(tested)


def _levels(trial: Trial) -> dict[str, str | int | float]:
    """Returns what defines a trial, by the names of factors.

    A value that the services cannot show becomes JSON.
    """
    architecture = trial.architecture
    levels: dict[str, Any] = {
        "backbone": architecture.backbone,
        "data.name": trial.data.name,
        "data.image_size": architecture.image_size,
        **architecture.settings,
        **{f"recipe.{name}": value for name, value in asdict(trial.recipe).items()},
    }
    if trial.start is not None:
        levels["pretrained"] = trial.start.identity
    if trial.teacher is not None:
        levels["teacher"] = trial.teacher.identity
    return {
        name: value if isinstance(value, str | int | float) else canonical_json(value)
        for name, value in levels.items()
    }


class _GivenUp(Exception):
    """The run has ended without waiting longer for a service."""


class Service:
    """Runs one of Tune's callbacks in a thread of its own.

    If it fails, a line says so and the service is dropped: results are stored anyway.
    After `close`, it begins no call: Ray ends then, and a call that uses Ray would end
    the process. A call that hangs longer than `CALL_SECONDS` can still be running.

    Args:
        prepare: returns the folder of a run, and deletes what was logged about the run
            before.
        ended: receives how a run ended, if the `failed` flag of the callback is not
            enough.
        check: raises if something that the callback started elsewhere has failed;
            returns True while it is still running.
    """

    def __init__(
        self,
        name: str,
        callback: LoggerCallback,
        prepare: Callable[[Run], Path],
        ended: Callable[[Run, Status], None] = lambda run, status: None,
        check: Callable[[], bool] = lambda: False,
    ) -> None:
        self._name = name
        self._callback = callback
        self._prepare = prepare
        self._ended = ended
        self._check = check
        self._runs: dict[str, Run] = {}
        self._given_up = False
        # Held during each call.
        self._calling = threading.Lock()
        self._events: queue.SimpleQueue[tuple[Event, Run | None] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(
            target=self._live, name=f"log-{name}", daemon=True
        )
        self._thread.start()

    def tell(self, event: Event, begun: Run | None) -> None:
        """Queues an event without waiting.

        Args:
            event: what happened to a trial.
            begun: the run, if the trial has just started.
        """
        if self._thread.is_alive():
            self._events.put((event, begun))

    def close(self) -> None:
        """Waits a limited time until everything has been written."""
        self._events.put(None)
        self._thread.join(SILENT_SECONDS)
        if self._thread.is_alive():
            print(
                escape.line(
                    f"Waiting up to {CLOSE_SECONDS:.0f} s for {option('log')} {self._name} ..."
                ),
                file=sys.stderr,
                flush=True,
            )
            self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self._given_up = True
            # Wait for a call that has begun.
            if self._calling.acquire(timeout=CALL_SECONDS):
                self._calling.release()
            print(
                escape.line(
                    f"{option('log')} {self._name} has not taken everything; the store has it."
                ),
                file=sys.stderr,
                flush=True,
            )

    def _live(self) -> None:
        try:
            self._pass_on()
        except _GivenUp:
            return
        except Exception as error:
            told = (
                f"{option('log')} {self._name} stopped: {_reason(error)}. Training goes on, and"
                " the store has everything."
            )
            print(escape.line(told), file=sys.stderr)

    def _pass_on(self) -> None:
        flushed = time.monotonic()
        while True:
            quiet = False
            try:
                event = self._events.get(timeout=GATHER_SECONDS)
                if event is None:
                    break
                self._take(*event)
            except queue.Empty:
                quiet = True
            if quiet or time.monotonic() - flushed > LONGEST_SECONDS:
                self._flush(*self._runs.values())
                self._call(self._check)
                flushed = time.monotonic()
        for run in list(self._runs.values()):
            self._end(run, Status.RUNNING)
        while self._call(self._check):
            time.sleep(0.1)

    def _call(self, function: Callable[..., T], *values: Any, **more: Any) -> T:
        """Calls a function of the service.

        Raises:
            _GivenUp: `close` has given up.
        """
        with self._calling:
            if self._given_up:
                raise _GivenUp
            return function(*values, **more)

    def _take(self, event: Event, begun: Run | None) -> None:
        run: Any = self._runs.get(event.trial)
        if run is None and begun is not None:
            run = self._runs[event.trial] = begun
            run.local_path = str(self._call(self._prepare, run))
            self._call(self._callback.log_trial_start, run)
        if run is not None:
            run.collect(event)
            if isinstance(event, Ended):
                self._end(run, event.status)

    def _end(self, run: Any, status: Status) -> None:
        self._flush(run)
        failed = status in (Status.FAILED, Status.DIVERGED)
        self._call(self._callback.log_trial_end, run, failed=failed)
        self._call(self._ended, run, status)
        del self._runs[run.trial_id]

    def _flush(self, *runs: Any) -> None:
        for run in runs:
            for epoch, values in sorted(run.waiting.items()):
                result = {"training_iteration": epoch, **values}
                self._call(self._callback.log_trial_result, epoch, run, result)
            run.waiting.clear()


def _reason(error: Exception) -> str:
    """Returns the first line of an error.

    For an error from one of Ray's processes, which has a traceback, it is the last
    line.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    told = lines[
        -1 if lines[0].startswith("ray::") or "Traceback" in str(error) else 0
    ].rstrip(".")
    if len(told) <= 200:
        return told
    return f"{told[:200]} ..."


class Loggers:
    """The services that the user asked for.

    Raises:
        ExecutorError: a service cannot be reached, or the user is not logged in.
    """

    def __init__(self, logs: Logs) -> None:
        self._factors = logs.factors
        self._jobs: dict[str, Job] = {}
        # Weights & Biases first: it checks the login and writes nothing, while MLflow
        # makes its experiment at once. A run that is refused leaves nothing behind.
        names = sorted(set(logs.services), key=lambda name: name != "wandb")
        self._services = [_MAKERS[name](logs) for name in names]

    def follow(self, job: Job) -> None:
        """Records a job that is about to start."""
        self._jobs[job.trial.hash] = job

    def tell(self, event: Event) -> None:
        """Forwards an event after it was stored."""
        job = self._jobs.get(event.trial)
        if job is None:
            return
        for service in self._services:
            service.tell(
                event,
                Run(job.trial, self._factors) if isinstance(event, Started) else None,
            )
        if isinstance(event, Ended):
            del self._jobs[event.trial]

    def close(self) -> None:
        """Ends the services."""
        for service in self._services:
            service.close()


def _tensorboard(logs: Logs) -> Service:
    from ray.tune.logger import TBXLoggerCallback

    def prepare(run: Run) -> Path:
        folder = logs.folder / "tensorboard" / logs.study / str(run)
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    return Service("tensorboard", TBXLoggerCallback(), prepare)


def _mlflow(logs: Logs) -> Service:
    import logging

    # MLflow's default is to wait four minutes for a server.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    import mlflow
    from mlflow.entities import Metric
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    class Batched(MLflowLoggerCallback):
        """Logs one transaction per epoch instead of one per value."""

        def log_trial_result(
            self, iteration: int, trial: Any, result: dict[str, float]
        ) -> None:
            now = int(1000 * time.time())
            client.log_batch(
                self._trial_runs[trial],
                [Metric(name, value, now, iteration) for name, value in result.items()],
            )

    # MLflow logs a line for each table that it creates.
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logs.folder.mkdir(parents=True, exist_ok=True)
    users = os.environ.get("MLFLOW_TRACKING_URI")
    address = users or f"sqlite:///{logs.folder.resolve() / 'mlflow.db'}"
    callback = Batched(tracking_uri=address, experiment_name=logs.study)
    try:
        callback.setup()
        client = mlflow.MlflowClient(address)
        experiment = client.get_experiment_by_name(logs.study)
    except Exception as error:
        raise ExecutorError(
            f"{option('log')} mlflow: {address} cannot be used: {_reason(error)}"
        ) from error
    finally:
        # MLflow's setup sets this variable. The next study in this process would take
        # it for the user's own setting.
        if users is None:
            os.environ.pop("MLFLOW_TRACKING_URI", None)

    def prepare(run: Run) -> Path:
        for old in client.search_runs(
            [experiment.experiment_id] if experiment else [],
            f"tags.trial_name = '{run}'",
        ):
            client.delete_run(old.info.run_id)
        return logs.folder

    def ended(run: Run, status: Status) -> None:
        if status in (Status.RUNNING, Status.PRUNED):
            # Tune's callback marks the run as finished.
            client.set_terminated(callback._trial_runs[run], "KILLED")

    return Service("mlflow", callback, prepare, ended)


def _wandb(logs: Logs) -> Service:
    import ray
    from ray.air.integrations.wandb import WandbLoggerCallback

    folder = logs.folder.resolve() / "wandb"
    project = os.environ.get("WANDB_PROJECT") or logs.study.replace("/", "-")
    callback = WandbLoggerCallback(
        project=project, dir=str(folder.parent), settings={"silent": True}
    )
    try:
        callback.setup()
    except ValueError as error:
        raise ExecutorError(
            f"{option('log')} wandb: not logged in to Weights & Biases; type `wandb"
            " login`, or set WANDB_MODE=offline and upload later with `wandb sync`"
        ) from error

    def prepare(run: Run) -> Path:
        # An uploaded run is replaced by the next run with the same ID. Offline runs are
        # not, so their folders are removed here.
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"offline-run-*-{run.trial_id}"):
            shutil.rmtree(old)
        return folder

    seen: dict[Any, None] = {}

    def check() -> bool:
        # Each run is logged by a Ray process of its own; its errors would stay unseen
        # if they were not collected here.
        seen.update(dict.fromkeys(callback._trial_logging_futures.values()))
        if seen:
            done, working = ray.wait(list(seen), num_returns=len(seen), timeout=0)
        else:
            done, working = ([], [])
        for future in done:
            del seen[future]
            ray.get(future)
        return bool(working)

    return Service("wandb", callback, prepare, check=check)


_MAKERS: dict[str, Callable[[Logs], Service]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}
