"""Live logging: each epoch, once it is stored, is also told to TensorBoard, MLflow or Weights & Biases by Tune's own callbacks.

The store stays the truth. A trial is one run there too: what a process tells of a trial replaces what an earlier one told of it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ray.tune.logger import LoggerCallback

from ablate.errors import ExecutorError
from ablate.execution import Logs
from ablate.identity import canonical_json
from ablate.records import Ended, Event, Job, Measured, Progressed, Started, Status, Trial

NAME_LENGTH = 120
"""Characters of a run's name that tell its levels; file systems take 255."""
LOGIN = (
    "--log wandb: nobody is logged in to Weights & Biases; type `wandb login`, or set WANDB_MODE=offline and upload later with "
    "`wandb sync`"
)


class Run:
    """A trial as Tune's callbacks look at it: they ask a trial of Tune's for these and for nothing else."""

    def __init__(self, trial: Trial, factors: tuple[str, ...]) -> None:
        told = {**_levels(trial), "seed": trial.seed}
        cell = ",".join(f"{name}={told[name]}" for name in factors if name in told) or "baseline"
        cell = re.sub(r"[^\w.,=+-]+", "-", cell)[:NAME_LENGTH]
        self.trial_id = trial.hash
        self.experiment_dir_name = cell
        """Runs of one cell are a group of Weights & Biases."""
        self.config = self.evaluated_params = {**told, "trial": trial.hash}
        self._name = f"{cell},seed={trial.seed},{trial.hash[:8]}"
        self.local_path = ""
        self.epochs = 0

    def __str__(self) -> str:
        return self._name

    def init_local_path(self) -> None:
        Path(self.local_path).mkdir(parents=True, exist_ok=True)


def _levels(trial: Trial) -> dict[str, str | int | float]:
    """By the names of factors, what a trial is; what these services cannot show as it is, as JSON."""
    architecture = trial.architecture
    found = {
        "backbone": architecture.backbone,
        "data.name": trial.data.name,
        "data.image_size": architecture.image_size,
        **architecture.settings,
        **{f"recipe.{name}": value for name, value in asdict(trial.recipe).items()},
    }
    return {name: value if isinstance(value, str | int | float) else canonical_json(value) for name, value in found.items()}


class Service:
    """One of Tune's callbacks, what it is called, and how it is made ready for a run: `prepare` names the run's folder, and takes
    back what was told of the run before."""

    def __init__(self, name: str, callback: LoggerCallback, prepare: Callable[[Run], Path]) -> None:
        self.name, self._callback, self._prepare = name, callback, prepare
        self._runs: dict[str, Run] = {}

    def tell(self, event: Event, job: Job, factors: tuple[str, ...]) -> None:
        """Passes on what happened to a job."""
        run: Any = self._runs.get(event.trial)
        if isinstance(event, Started) and run is None:
            run = Run(job.trial, factors)
            run.local_path = str(self._prepare(run))
            self._runs[event.trial] = run
            self._callback.log_trial_start(run)
        elif run is None:
            return
        elif isinstance(event, Progressed):
            for epoch in event.epochs:
                # After a lost worker the same epochs are told again.
                if epoch.number > run.epochs:
                    run.epochs = epoch.number
                    told = asdict(epoch)
                    self._result(run, told.pop("number"), {name: value for name, value in told.items() if value is not None})
        elif isinstance(event, Measured):
            for one in event.measurements:
                if one.value is not None:
                    self._result(run, one.epoch, {f"{one.name}/layer {one.layer}": one.value})
        elif isinstance(event, Ended):
            if event.tested is not None:
                tested = {f"test/{name}": value for name, value in asdict(event.tested).items() if name != "epoch"}
                self._result(run, run.epochs, tested)
            self._callback.log_trial_end(run, failed=event.status in (Status.FAILED, Status.DIVERGED))
            del self._runs[event.trial]

    def _result(self, run: Any, epoch: int, values: dict[str, float]) -> None:
        self._callback.log_trial_result(epoch, run, {"training_iteration": epoch, **values})

    def close(self) -> None:
        """Waits until what was told has been written."""
        self._callback.on_experiment_end(trials=[])


class Loggers:
    """Passes events on to the services that were asked for. One that fails is left, and said to be: results are stored anyway.

    Raises:
        ExecutorError: a service cannot be reached, or nobody is logged in.
    """

    def __init__(self, logs: Logs) -> None:
        self._factors = logs.factors
        self._jobs: dict[str, Job] = {}
        self._services = [_MAKERS[name](logs) for name in logs.services]

    def follow(self, job: Job) -> None:
        """Takes note of a job that is about to start."""
        self._jobs[job.trial.hash] = job

    def tell(self, event: Event) -> None:
        """Passes an event on, after it was stored."""
        job = self._jobs[event.trial]
        for service in list(self._services):
            try:
                service.tell(event, job, self._factors)
            except Exception as error:
                self._leave(service, error)
        if isinstance(event, Ended):
            del self._jobs[event.trial]

    def close(self) -> None:
        """Ends the services."""
        for service in list(self._services):
            try:
                service.close()
            except Exception as error:
                self._leave(service, error)

    def _leave(self, service: Service, error: Exception) -> None:
        self._services.remove(service)
        told = str(error).partition("\n")[0] or type(error).__name__
        print(f"--log {service.name} stopped: {told}. Training goes on, and the store has everything.", file=sys.stderr)


def _tensorboard(logs: Logs) -> Service:
    from ray.tune.logger import TBXLoggerCallback

    def prepare(run: Run) -> Path:
        folder = logs.folder / "tensorboard" / logs.study / str(run)
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    return Service("tensorboard", TBXLoggerCallback(), prepare)


def _mlflow(logs: Logs) -> Service:
    import logging

    import mlflow
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    # It tells of each table that it makes.
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logs.folder.mkdir(parents=True, exist_ok=True)
    users = os.environ.get("MLFLOW_TRACKING_URI")
    address = users or f"sqlite:///{logs.folder.resolve() / 'mlflow.db'}"
    callback = MLflowLoggerCallback(tracking_uri=address, experiment_name=logs.study)
    try:
        callback.setup()
        client = mlflow.MlflowClient(address)
        experiment = client.get_experiment_by_name(logs.study)
    except Exception as error:
        raise ExecutorError(f"--log mlflow: {address} cannot be used: {str(error).partition(chr(10))[0]}") from error
    finally:
        # Its setup puts the address there, where the next study of this process would take it for the user's own.
        if users is None:
            os.environ.pop("MLFLOW_TRACKING_URI", None)

    def prepare(run: Run) -> Path:
        for old in client.search_runs([experiment.experiment_id] if experiment else [], f"tags.trial_name = '{run}'"):
            client.delete_run(old.info.run_id)
        return logs.folder

    return Service("mlflow", callback, prepare)


def _wandb(logs: Logs) -> Service:
    from ray.air.integrations.wandb import WandbLoggerCallback

    folder = logs.folder.resolve() / "wandb"
    project = os.environ.get("WANDB_PROJECT") or logs.study.replace("/", "-")
    callback = WandbLoggerCallback(project=project, dir=str(folder.parent), settings={"silent": True})
    try:
        callback.setup()
    except ValueError as error:
        raise ExecutorError(LOGIN) from error

    def prepare(run: Run) -> Path:
        # What was uploaded of a run is replaced there by the run of the same id.
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"offline-run-*-{run.trial_id}"):
            shutil.rmtree(old)
        return folder

    return Service("wandb", callback, prepare)


_MAKERS: dict[str, Callable[[Logs], Service]] = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}
