"""What the inline and the Ray executor do with one job."""

from __future__ import annotations

import gc
import os
import socket
import time
import traceback
from collections.abc import Iterator

from ablate.errors import ExecutorError, TrialBusy
from ablate.execution.trial_log import TrialLog, epoch_line
from ablate.machine.environment import CHECKPOINT_SECONDS
from ablate.own import registry
from ablate.records import (
    Ended,
    Event,
    Job,
    Measured,
    Place,
    Progressed,
    Resources,
    Started,
    Status,
)
from ablate.training import Diverged, Training
from ablate.training.energy import EnergyMeter
from ablate.training.own import make_own
from ablate.training.own_base import OwnTraining

# How a log names the end of an attempt.
ENDINGS = {Status.RUNNING: "interrupted; it can be resumed"}

# Errors that end a trial but not the run: code of a trial that calls `sys.exit` ends
# only that trial.
FAILURES = (Exception, SystemExit)


def device_of(resources: Resources) -> str:
    """Returns `cuda` for a trial with any share of a GPU, else `cpu`.

    A trial without a share runs on the CPU even if the machine has a GPU.

    Raises:
        ExecutorError: the trial asks for a GPU and the process sees none.
    """
    if not resources.gpus:
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        raise ExecutorError(
            f"resources.gpus = {resources.gpus:g}, but this process sees no GPU; set"
            " resources: {gpus: 0}"
        )
    if resources.gpus > torch.cuda.device_count():
        raise ExecutorError(
            f"resources.gpus = {resources.gpus:g}, but this process sees"
            f" {torch.cuda.device_count()}; lower it in the space"
        )
    return "cuda"


class TrialRun:
    """Trains one job in this process, step by step.

    Nothing of a job outlives `close`. The next job starts from its own seed, network,
    threads and data order, in a process in which only the imports and the data are
    warm.

    Args:
        in_worker: whether this process is a worker. The nursery has hidden its imports
            from the garbage collector, and what it prints goes to the trial's log.
    """

    def __init__(self, job: Job, executor: str, *, in_worker: bool = False) -> None:
        self._job, self._trial = job, job.trial.hash
        self._training: Training | OwnTraining | None = None
        self._place = Place(
            executor, socket.gethostname(), os.getpid(), "", job.resources.threads
        )
        self._saved = time.monotonic()
        self._diagnosis_error = ""
        self._frozen = in_worker
        self._log = TrialLog(job.log, captures=in_worker)
        self._froze = False
        self.status = Status.RUNNING

    def start(self) -> Iterator[Event]:
        """Builds the network, loads the checkpoint, and reports finished epochs."""
        self._freeze()
        device = device_of(self._job.resources)
        processes = self._job.resources.processes
        place = Place(
            **{
                **self._place.__dict__,
                "device": device if processes == 1 else f"{device} x{processes}",
            }
        )
        self._log.begin(place.host, place.device)
        folder = f"{self._job.checkpoints}/{self._trial}"
        try:
            self._training = self._make_training(folder, device, place.threads)
        except TrialBusy as error:
            # The worker of another driver still trains this trial: it outlived its
            # driver, or its driver lost the lease. Its result or checkpoint is still to
            # come.
            yield Started(self._trial, place, 0)
            # Not RUNNING, so that the executor does not go on with this job. The event
            # says RUNNING, so that the queue hands the trial out again.
            self.status = Status.PLANNED
            yield Ended(self._trial, Status.RUNNING, str(error))
            return
        except FAILURES:
            yield Started(self._trial, place, 0)
            yield self._failed()
            return
        done = tuple(self._training.epochs)
        yield Started(
            trial=self._trial,
            place=place,
            epoch=len(done),
            weights=self._training.weights,
        )
        if done:
            yield Progressed(self._trial, done)
        # A beginning (the same trial with fewer epochs) took diagnostics at its own
        # last epoch, which may not be an epoch of interest for this trial.
        due = [
            m
            for m in self._training.measurements
            if self._job.diagnostics.due(
                m.epoch, is_last=self._training.finished and m.epoch == len(done)
            )
        ]
        if self._job.beginnings and self._job.diagnostics.names:
            self._training.measurements = due
        if self._training.measurements:
            yield Measured(self._trial, tuple(self._training.measurements))
        if done:
            # A kill may have come after the last epoch and before its diagnostics.
            yield from self._diagnose(len(done))
        if self._training.finished:
            yield self._end(Status.COMPLETED, self._diagnosis_error)

    def _make_training(
        self, folder: str, device: str, threads: int
    ) -> Training | OwnTraining:
        """The built-in loop, or the user's own training."""
        job = self._job
        registry.load_sources(job.sources)
        registry.verify({**job.trial.architecture.code, **job.trial.code})
        meter = EnergyMeter(device, job.resources.gpus, job.resources.cpus)
        if job.trial.architecture.trainer:
            return make_own(
                job.trial,
                folder,
                device=device,
                threads=threads,
                meter=meter,
                hear=self._log.write,
                checkout=job.checkout,
            )
        return Training(
            job.trial,
            folder,
            device=device,
            threads=threads,
            processes=job.resources.processes,
            meter=meter,
            beginnings={key: f"{job.checkpoints}/{key}" for key in job.beginnings},
        )

    def step(self) -> Iterator[Event]:
        """Trains one epoch."""
        assert self._training is not None
        try:
            epoch = self._training.epoch()
            # The checkpoint is written before the epoch is reported: a trial must not
            # be completed in the store while its checkpoint is missing.
            if (
                self._training.finished
                or time.monotonic() - self._saved > CHECKPOINT_SECONDS
            ):
                self.save(
                    weights_only=self._training.finished and self._job.keep == "best"
                )
        except Diverged as error:
            yield self._end(Status.DIVERGED, str(error))
            return
        except FAILURES:
            yield self._failed()
            return
        self._log.write(f"{epoch_line(epoch)}\n")
        self._log.trim()
        yield Progressed(self._trial, (epoch,))
        yield from self._diagnose(epoch.number)
        if self._training.finished:
            yield self._end(Status.COMPLETED, self._diagnosis_error)

    def _diagnose(self, epoch: int) -> Iterator[Event]:
        """Takes diagnostics of the network if they are due.

        A diagnostic that fails does not stop training. The trial continues, and its end
        carries the error.
        """
        assert self._training is not None
        chosen = self._job.diagnostics
        is_due = chosen.due(epoch, is_last=self._training.finished)
        if not is_due or self._training.diagnosed(chosen.names):
            return
        try:
            yield Measured(self._trial, self._training.diagnose(chosen))
        except FAILURES:
            self._diagnosis_error = traceback.format_exc(limit=-8)

    def save(self, *, weights_only: bool = False) -> None:
        """Writes a checkpoint now.

        Args:
            weights_only: of a finished trial, write only the weights.
        """
        if self._training is not None:
            self._training.save(weights_only=weights_only)
            self._saved = time.monotonic()

    def interrupt(self) -> Ended:
        """Saves a checkpoint and leaves the job to be resumed."""
        return self._saved_and_ended(Status.RUNNING)

    def prune(self) -> Ended:
        """Saves a checkpoint and ends the job early.

        From the checkpoint, another study can continue the training.
        """
        return self._saved_and_ended(Status.PRUNED)

    def _saved_and_ended(self, status: Status) -> Ended:
        try:
            self.save()
        except FAILURES:
            if not self._job.trial.architecture.trainer:
                raise
            # The user's `save` failed. That ends the trial, not the run.
            return self._failed()
        return self._end(status)

    def close(self) -> None:
        """Releases the training and its memory."""
        if self._training is not None:
            self._training.close()
            self._training = None
        self._log.close()
        # A network that could not be built may be garbage too.
        gc.collect()
        if self._froze:
            gc.unfreeze()
            self._froze = False

    def _freeze(self) -> None:
        """Hides the objects that exist already from the garbage collector.

        The collection in `close` then visits only those of the trial. A process that
        has imported torch and timm holds about a million others, and to visit them
        takes half a second per trial.
        """
        # `get_freeze_count` visits every frozen object. In a worker, where there are a
        # million, this takes longer than to build a small network.
        if not self._frozen and gc.get_freeze_count() == 0:
            gc.freeze()
            self._froze = True

    def _end(self, status: Status, error: str = "") -> Ended:
        self.status = status
        if error and status != Status.FAILED:
            self._log.write(f"{error.rstrip()}\n")
        self._log.write(f"--- {ENDINGS.get(status, status)} ---\n")
        if self._training is None or status != Status.COMPLETED:
            return Ended(trial=self._trial, status=status, error=error)
        return Ended(
            trial=self._trial,
            status=status,
            error=error,
            tested=self._training.tested,
            correct=self._training.correct,
        )

    def _failed(self) -> Ended:
        # The store keeps the end of it.
        self._log.write(traceback.format_exc())
        return self._end(Status.FAILED, traceback.format_exc(limit=-8))
