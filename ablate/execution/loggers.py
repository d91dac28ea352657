"""Live logging of stored epochs to TensorBoard, MLflow or Weights & Biases.

What it guarantees: an epoch is logged only after it is stored, a service that fails or
hangs does not delay a trial, and a trial is one run in a service too: a later process
replaces what an earlier one logged about the trial.

How: each service is a small class on the service's own client (`Service`). It runs in a
thread of its own (`_Thread`), which receives events from a queue.

What would break it: using a service from another thread than its own.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import queue
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import psutil

from ablate.errors import ExecutorError
from ablate.execution.logs import Logs
from ablate.identity import canonical_json
from ablate.records import (
    Ended,
    Event,
    Measured,
    Progressed,
    Started,
    Status,
    Trial,
)
from ablate.text import escape
from ablate.text.advice import option

# Characters of a run's name that show its levels; file systems allow 255 in all.
NAME_LENGTH = 120
# Events are gathered until none has arrived for this long: an epoch, its diagnostics
# and its test become one step of the service.
GATHER_SECONDS = 1.0
# After this long they are forwarded even if more events arrive.
LONGEST_SECONDS = 10.0
# How long the end of a run waits for a service before it says so, and after that.
SILENT_SECONDS, CLOSE_SECONDS = 3.0, 30.0
# How long a service may take to answer when a run begins.
START_SECONDS = 10.0


@dataclass
class Run:
    """A trial, as the services log it.

    Attributes:
        key: the hash of the trial.
        name: its levels, seed and hash.
        group: its levels; all seeds of a cell share it.
        config: what defines the trial, by the names of factors.
        last: the last epoch.
        waiting: the values that are still to be logged, by epoch.
    """

    key: str
    name: str
    group: str
    config: dict[str, str | int | float]
    last: int = 0
    waiting: dict[int, dict[str, float]] = field(default_factory=dict)
    _measured: set[tuple[int, str]] = field(default_factory=set)

    @classmethod
    def of(cls, trial: Trial, factors: tuple[str, ...]) -> Run:
        levels = {**_levels(trial), "seed": trial.seed}
        group = ",".join(f"{name}={levels[name]}" for name in factors if name in levels)
        group = re.sub(r"[^\w.,=+-]+", "-", group or "baseline")[:NAME_LENGTH]
        return cls(
            key=trial.hash,
            name=f"{group},seed={trial.seed},{trial.hash[:8]}",
            group=group,
            config={**levels, "trial": trial.hash},
        )

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
            for measured in event.measurements:
                name = f"{measured.name}/layer_{measured.layer}"
                key = (measured.epoch, name)
                if measured.value is not None and key not in self._measured:
                    self._measured.add(key)
                    self.waiting.setdefault(measured.epoch, {})[name] = measured.value
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


class Service(Protocol):
    """A service that receives the epochs of trials. One thread uses it.

    Its constructor raises ExecutorError if the service cannot be used, and leaves
    nothing behind then.
    """

    def start(self, run: Run) -> None:
        """Begins a run, and deletes what was logged about this trial before."""

    def log(self, run: Run, epoch: int, values: Mapping[str, float]) -> None:
        """Logs the values of one epoch."""

    def end(self, run: Run, status: Status) -> None:
        """Ends a run. It is not called for a run that did not start."""

    def close(self) -> None:
        """Ends what the service has started, also after a failure."""

    def give_up(self) -> None:
        """Lets the process end although a call hangs. Any thread may call it."""


class TensorBoard:
    """Files for TensorBoard, below the folder of the study."""

    def __init__(self, logs: Logs) -> None:
        self._folder = logs.folder / "tensorboard" / logs.study
        self._writers: dict[str, Any] = {}
        # The values of the last epoch, by which the page of hyperparameters compares.
        self._last: dict[str, dict[str, float]] = {}

    def start(self, run: Run) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        folder = self._folder / run.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # Not a SummaryWriter: each has a thread, and writes again when Python ends.
        self._writers[run.key] = EventsWriter(str(folder / "events"))

    def log(self, run: Run, epoch: int, values: Mapping[str, float]) -> None:
        from tensorboardX.summary import scalar

        writer = self._writers[run.key]
        for name, value in values.items():
            writer.write_event(_tensorboard_event(scalar(name, value), epoch))
        writer.flush()
        self._last[run.key] = dict(values)

    def end(self, run: Run, status: Status) -> None:
        from tensorboardX.summary import hparams

        writer = self._writers.pop(run.key)
        last = self._last.pop(run.key, None)
        if last:
            for summary in hparams(hparam_dict=run.config, metric_dict=last):
                writer.write_event(_tensorboard_event(summary, 0))
        writer.close()

    def close(self) -> None:
        for writer in self._writers.values():
            with contextlib.suppress(OSError):
                writer.close()
        self._writers.clear()

    def give_up(self) -> None:
        pass


def _tensorboard_event(summary: Any, step: int) -> Any:
    from tensorboardX.proto.event_pb2 import Event

    return Event(wall_time=time.time(), step=step, summary=summary)


class MLflow:
    """Runs of an MLflow experiment with the name of the study."""

    def __init__(self, logs: Logs) -> None:
        # MLflow's default is to wait four minutes for a server.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        import mlflow

        # MLflow logs a line for each table that it creates.
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logs.folder.mkdir(parents=True, exist_ok=True)
        users = os.environ.get("MLFLOW_TRACKING_URI")
        address = users or f"sqlite:///{logs.folder.resolve() / 'mlflow.db'}"
        try:
            self._client = mlflow.MlflowClient(address)
            experiment = self._client.get_experiment_by_name(logs.study)
            if experiment is None:
                self._experiment = self._client.create_experiment(logs.study)
            else:
                self._experiment = experiment.experiment_id
        except Exception as error:
            raise ExecutorError(
                f"{option('log')} mlflow: {address} cannot be used: {_reason(error)}"
            ) from error
        self._runs: dict[str, str] = {}

    def start(self, run: Run) -> None:
        from mlflow.entities import Param

        tag = f"tags.trial_name = '{run.name}'"
        for old in self._client.search_runs([self._experiment], tag):
            self._client.delete_run(old.info.run_id)
        begun = self._client.create_run(
            self._experiment, tags={"trial_name": run.name}, run_name=run.name
        )
        self._runs[run.key] = begun.info.run_id
        params = [Param(name, str(value)) for name, value in run.config.items()]
        self._client.log_batch(begun.info.run_id, params=params)

    def log(self, run: Run, epoch: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        # One transaction per epoch instead of one per value.
        self._client.log_batch(
            self._runs[run.key],
            [Metric(name, value, now, epoch) for name, value in values.items()],
        )

    def end(self, run: Run, status: Status) -> None:
        if status in (Status.RUNNING, Status.PRUNED):
            word = "KILLED"
        elif status in (Status.FAILED, Status.DIVERGED):
            word = "FAILED"
        else:
            word = "FINISHED"
        self._client.set_terminated(self._runs.pop(run.key), word)

    def close(self) -> None:
        pass

    def give_up(self) -> None:
        pass


class WeightsAndBiases:
    """Runs of a project of Weights & Biases; the seeds of a cell form a group."""

    def __init__(self, logs: Logs) -> None:
        import wandb

        logging.getLogger("wandb").setLevel(logging.ERROR)
        self._folder = logs.folder.resolve() / "wandb"
        self._project = os.environ.get("WANDB_PROJECT") or logs.study.replace("/", "-")
        self._settings = wandb.Settings(
            silent=True, console="off", init_timeout=START_SECONDS
        )
        is_offline = os.environ.get("WANDB_MODE") in ("offline", "disabled")
        # It names the file in which it has found the key.
        with contextlib.redirect_stderr(io.StringIO()):
            is_ready = is_offline or wandb.login(prompt=False, verify=False)
        if not is_ready:
            # It would remember the settings of this try.
            wandb.teardown()
            raise ExecutorError(
                f"{option('log')} wandb: not logged in to Weights & Biases; type `wandb"
                " login`, or set WANDB_MODE=offline and upload later with `wandb sync`"
            )
        self._runs: dict[str, Any] = {}

    def start(self, run: Run) -> None:
        import wandb

        # An uploaded run is replaced by the next run with the same ID. Offline runs are
        # not, so their folders are removed here.
        self._folder.mkdir(parents=True, exist_ok=True)
        for old in self._folder.glob(f"offline-run-*-{run.key}"):
            shutil.rmtree(old)
        users = os.environ.get("WANDB_SERVICE")
        self._runs[run.key] = wandb.init(
            project=self._project,
            dir=str(self._folder.parent),
            id=run.key,
            name=run.name,
            group=run.group,
            config=dict(run.config),
            reinit="create_new",
            settings=self._settings,
        )
        # A user's program that logs by itself must not use the service of this process.
        if users is None:
            os.environ.pop("WANDB_SERVICE", None)

    def log(self, run: Run, epoch: int, values: Mapping[str, float]) -> None:
        self._runs[run.key].log({"epoch": epoch, **values}, step=epoch)

    def end(self, run: Run, status: Status) -> None:
        failed = status in (Status.FAILED, Status.DIVERGED)
        self._runs.pop(run.key).finish(exit_code=int(failed))

    def close(self) -> None:
        import wandb

        wandb.teardown()

    def give_up(self) -> None:
        # The end of this process would wait for its service without limit.
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if process.name() == "wandb-core":
                    process.kill()


ADAPTERS: dict[str, Callable[[Logs], Service]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


class _Thread:
    """Passes events on to a service, in a thread.

    If the service fails, a line says so and the service is dropped: results are stored
    anyway.
    """

    def __init__(self, name: str, service: Service) -> None:
        self._name = name
        self._service = service
        self._runs: dict[str, Run] = {}
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
        if not self._thread.is_alive():
            return
        service = f"{option('log')} {self._name}"
        _say(f"Waiting up to {CLOSE_SECONDS:.0f} s for {service} ...")
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self._service.give_up()
            _say(f"{service} has not taken everything; the store has it.")

    def _live(self) -> None:
        try:
            self._pass_on()
        except Exception as error:
            _say(
                f"{option('log')} {self._name} stopped: {_reason(error)}. Training goes"
                " on, and the store has everything."
            )
        with contextlib.suppress(Exception):
            self._service.close()

    def _pass_on(self) -> None:
        flushed = time.monotonic()
        while True:
            quiet = False
            try:
                message = self._events.get(timeout=GATHER_SECONDS)
                if message is None:
                    break
                self._take(*message)
            except queue.Empty:
                quiet = True
            if quiet or time.monotonic() - flushed > LONGEST_SECONDS:
                for run in self._runs.values():
                    self._flush(run)
                flushed = time.monotonic()
        for run in list(self._runs.values()):
            self._end(run, Status.RUNNING)

    def _take(self, event: Event, begun: Run | None) -> None:
        run = self._runs.get(event.trial)
        if run is None and begun is not None:
            self._service.start(begun)
            run = self._runs[event.trial] = begun
        if run is not None:
            run.collect(event)
            if isinstance(event, Ended):
                self._end(run, event.status)

    def _end(self, run: Run, status: Status) -> None:
        self._flush(run)
        self._service.end(run, status)
        del self._runs[run.key]

    def _flush(self, run: Run) -> None:
        for epoch, values in sorted(run.waiting.items()):
            self._service.log(run, epoch, values)
        run.waiting.clear()


def _say(text: str) -> None:
    print(escape.line(text), file=sys.stderr, flush=True)


def _reason(error: Exception) -> str:
    """Returns the first line of an error, at most 200 characters of it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[0].rstrip(".")
    return line if len(line) <= 200 else f"{line[:200]} ..."


class Loggers:
    """The services that the user asked for.

    Raises:
        ExecutorError: a service cannot be reached, or the user is not logged in.
    """

    def __init__(self, logs: Logs) -> None:
        self._factors = logs.factors
        self._trials: dict[str, Trial] = {}
        # Weights & Biases first: it checks the login and writes nothing, while MLflow
        # makes its experiment at once. A run that is refused leaves nothing behind.
        names = sorted(set(logs.services), key=lambda name: name != "wandb")
        services = [(name, ADAPTERS[name](logs)) for name in names]
        self._threads = [_Thread(name, service) for name, service in services]

    def follow(self, trial: Trial) -> None:
        """Records a trial that is about to start."""
        self._trials[trial.hash] = trial

    def tell(self, event: Event) -> None:
        """Forwards an event after it was stored."""
        trial = self._trials.get(event.trial)
        if trial is None:
            return
        for thread in self._threads:
            starts = isinstance(event, Started)
            thread.tell(event, Run.of(trial, self._factors) if starts else None)
        if isinstance(event, Ended):
            del self._trials[event.trial]

    def close(self) -> None:
        """Ends the services."""
        for thread in self._threads:
            thread.close()
