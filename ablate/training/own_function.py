"""Trains a trial with the user's own function, epoch by epoch.

What it guarantees: the same as the built-in loop, as far as the user's code allows it.
Each epoch is reported once. A checkpoint belongs to a report, so that metrics and weights
agree. A trial that is interrupted, pruned or killed goes on after its last checkpoint; on
a CPU it gives the same bits, if `save` and `resume` keep all of the training's state.

How: the function runs in another thread, in a worker in the main thread, and waits within
each report until the next epoch is wanted. Only one of the two threads runs at any time,
so random states are those of the training. Saving happens while the function waits, so it
may use the function's variables.

What would break it: calling `save` after the function went on, or anything here that
draws a random number.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ablate.errors import AblateError, CheckpointError
from ablate.machine import main_thread
from ablate.records import Epoch, Trial
from ablate.training.checkpoint import (
    State,
    epoch_of,
    random_states,
    seed_everything,
    set_random_states,
)
from ablate.training.energy import EnergyMeter
from ablate.training.own_base import LOOK_SECONDS, STOP_SECONDS, OwnTraining
from ablate.training.own_trial import (
    OwnTrial,
    Report,
    Returned,
    Saver,
    Stopped,
)

# The largest file or folder that `save` may write, in bytes: it passes through memory.
MOST_SAVED = 32 * 1024**3


class FunctionTraining(OwnTraining):
    """The training of one trial by a user's function.

    Args:
        folder: where the checkpoint is.
        device: `cpu` or `cuda`.
        meter: measures the energy of an epoch.
    """

    def __init__(
        self,
        trial: Trial,
        folder: str | Path,
        *,
        device: str,
        threads: int,
        meter: EnergyMeter | None = None,
    ) -> None:
        super().__init__(trial, folder, meter)
        torch.set_num_threads(threads)
        self._threads = threads
        self._thread: main_thread.Running | None = None
        self._state: State = {}
        self._save: Saver | None = None
        self._is_first_report = True
        self._clock: int | None = None
        self._worked = -1.0
        # What `save` wrote after the last epoch, before the function went on to its
        # end.
        self._last_files: State | None = None
        try:
            self._state = self._checkpoint.load() or {}
            self.epochs = [epoch_of(epoch) for epoch in self._state.get("epochs", [])]
            self._own = OwnTrial(trial, self._trainer, device, threads, self._resume)
        except BaseException:
            self.close()
            raise

    def epoch(self) -> Epoch:
        """Lets the function train until its next report.

        Raises:
            Diverged: a metric is not a finite number.
            AblateError: the function returned too early or reported too often.
        """
        # Prints of the function must not mix with the results on stdout.
        with contextlib.redirect_stdout(sys.stderr):
            return self._epoch()

    def _epoch(self) -> Epoch:
        began = self._begin_epoch()
        if self._thread is None:
            self._start()
        else:
            self._own.go_on()
        report = self._next()
        if isinstance(report, Returned):
            self._refuse_return(report)
        assert isinstance(report, Report)
        if self.epochs and not self._own.resumed and self._is_first_report:
            # The function began again although there is a checkpoint.
            self.epochs.clear()
        self._is_first_report = False
        self._save = report.save
        epoch = self._finish_epoch(dict(report.metrics), began)
        if self.finished:
            self._run_to_end()
        return epoch

    def save(self, *, weights_only: bool = False) -> None:
        """Writes the checkpoint of the last report.

        Without `save` in the report there is nothing to resume from. Then only a
        finished trial is written.

        Args:
            weights_only: has no effect, as only the function knows what its files hold.
        """
        files = self._last_files
        if files is None and self._save is not None and self.epochs:
            files = written_by(self._save)
        if files is None and not self.finished:
            return
        self._checkpoint.save(
            {
                "epochs": [asdict(epoch) for epoch in self.epochs],
                "files": files or {},
                "random": random_states(self._order) if self._thread else {},
            }
        )

    def close(self) -> None:
        """Ends the function if it has not ended, and releases the trial's folder."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            self._own.stop()
            thread.join(STOP_SECONDS)
        self._thread = None
        self._checkpoint.release()

    def _start(self) -> None:
        self._thread = main_thread.start(self._run)

    def _run(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            # Not every system can tell the time of a thread to another one.
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        try:
            # Of this thread: torch keeps the number of threads for each.
            torch.set_num_threads(self._threads)
            self._order = seed_everything(self._trial.seed)
            assert self._trainer.train is not None
            self._trainer.train(self._own)
        except Stopped:
            self._own.returned()
        except BaseException as error:
            self._own.returned(error)
        else:
            self._own.returned()

    def _resume(self, load: Callable[[Path], object]) -> int:
        """Restores the checkpoint in the function's thread; returns its epochs."""
        files = self._state.get("files")
        if not self.epochs or not files:
            return 0
        with restored(files) as path:
            load(path)
        if self._state.get("random"):
            set_random_states(self._state["random"], self._order)
        return len(self.epochs)

    def _next(self) -> Report | Returned:
        """Waits for the function; gives a sign of life while it works."""
        assert self._thread is not None
        while True:
            try:
                return self._own.next_message(LOOK_SECONDS)
            except queue.Empty:
                if self._has_worked():
                    self._beat()

    def _has_worked(self) -> bool:
        """Whether the function's thread has used a processor since the last call."""
        if self._clock is None:
            return True
        try:
            now = time.clock_gettime(self._clock)
        except OSError:
            # The thread has ended.
            return False
        before, self._worked = self._worked, now
        return now > before

    def _refuse_return(self, returned: Returned) -> None:
        if returned.error is not None:
            raise returned.error
        raise AblateError(
            f"trainer {self._trainer.name} returned after {len(self.epochs)} of"
            f" {self._trial.recipe.epochs} epochs; call trial.report once for each of"
            " trial.epochs()"
        )

    def _run_to_end(self) -> None:
        """Lets the function return after its last report."""
        if self._save is not None:
            self._last_files = written_by(self._save)
        self._own.go_on()
        report = self._next()
        if isinstance(report, Report):
            raise AblateError(
                f"trainer {self._trainer.name} reported more than"
                f" {self._trial.recipe.epochs} epochs; loop over trial.epochs()"
            )
        if report.error is not None:
            raise report.error


def written_by(save: Saver) -> State:
    """Returns what `save` wrote, by relative path; a single file has the path "".

    Raises:
        CheckpointError: it wrote nothing.
    """
    with _folder() as folder:
        path = folder / "checkpoint"
        save(path)
        if path.is_file():
            return {"": _bytes_of(path)}
        files = {
            file.relative_to(path).as_posix(): _bytes_of(file)
            for file in sorted(path.rglob("*"))
            if file.is_file()
        }
        if not files:
            raise CheckpointError(
                "save= of trial.report wrote nothing to the path that it received"
            )
        return files


@contextlib.contextmanager
def restored(files: State) -> Iterator[Path]:
    """Gives a path with the content that `written_by` returned."""
    with _folder() as folder:
        path = folder / "checkpoint"
        if set(files) == {""}:
            path.write_bytes(_content(files[""]))
        else:
            for name, content in files.items():
                target = path / name
                if not target.resolve().is_relative_to(path.resolve()):
                    raise CheckpointError(
                        f"the checkpoint is refused: its file {name} would be written"
                        " outside of its folder"
                    )
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_content(content))
        yield path


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="ablate-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bytes_of(file: Path) -> torch.Tensor:
    size = file.stat().st_size
    if size > MOST_SAVED:
        raise CheckpointError(
            f"save= of trial.report wrote {size / 1e9:.3g} GB; at most"
            f" {MOST_SAVED / 1e9:.3g} GB fit into a checkpoint"
        )
    # Tensors and plain values are all that a checkpoint may hold.
    if not size:
        return torch.zeros(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8).clone()


def _content(stored: Any) -> bytes:
    return bytes(stored.numpy().tobytes())
