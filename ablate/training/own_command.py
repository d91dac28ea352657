"""Trains a trial with the user's command, in a process of its own.

What it guarantees: the process ends with the worker, however the worker ends. An epoch is
reported once. A script that keeps its own checkpoint goes on from it.

How: the script prints a line of JSON after each epoch, and may run ahead of what ablate
has read. When it is stopped, the rest of its reports is read and written down. After a
kill, its checkpoint may be ahead of the reports: if it resumes beyond an epoch that was
never reported, its checkpoint is removed and the trial begins again.

What would break it: a script whose report is not flushed (PYTHONUNBUFFERED is set for
Python), or one that closes its output.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from ablate import registry
from ablate.errors import AblateError, CheckpointError
from ablate.records import Epoch, Trial
from ablate.training.checkpoint import epoch_of
from ablate.training.energy import Meter
from ablate.training.errors import Diverged
from ablate.training.own_base import LOOK_SECONDS, STOP_SECONDS, OwnTraining
from ablate.training.own_trial import checked, recipe_of

# Lines of output that an error shows.
KEPT_LINES = 40
LONGEST_LINE = 2_000
# Runs the command, and has the kernel kill it when the process that started it ends.
# Only Linux can do so.
START = (
    "import ctypes, os, sys\n"
    "try: ctypes.CDLL(None).prctl(1, 9)\n"
    "except Exception: pass\n"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class CommandTraining(OwnTraining):
    """The training of one trial by a user's command. See `FunctionTraining`."""

    def __init__(
        self,
        trial: Trial,
        folder: str | Path,
        *,
        device: str,
        threads: int,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(trial, folder, meter)
        self._threads = threads
        self._device = device
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._output: deque[str] = deque(maxlen=KEPT_LINES)
        self._worked = -1.0
        self._resumed = False
        try:
            self._place = self._checkpoint_path(folder)
            state = self._checkpoint.load() or {}
            self.epochs = [epoch_of(one) for one in state.get("epochs", [])]
            if not self.finished and not (self._place and self._place.exists()):
                # The script cannot resume, so it begins again.
                self.epochs.clear()
        except BaseException:
            self.close()
            raise

    def _checkpoint_path(self, folder: str | Path) -> Path | None:
        """Where the script keeps its checkpoint; None if it keeps none."""
        if "{checkpoint}" not in " ".join(self._trainer.command):
            return None
        place = str(folder).removeprefix("file://")
        if "://" in place:
            raise CheckpointError(
                f"trainer {self._trainer.name} keeps its own checkpoint, which cannot be"
                f" at the URL {folder}; use a folder that all nodes mount"
            )
        path = Path(place, "script").resolve()
        path.mkdir(exist_ok=True)
        return path / "checkpoint"

    def epoch(self) -> Epoch:
        """Waits for the script's next report.

        Raises:
            Diverged: a metric is not a finite number.
            AblateError: the script failed, or ended too early.
        """
        began = self._begin_epoch()
        while True:
            if self._process is None:
                self._start()
            report = self._next_report()
            if report is not None and report[0] <= len(self.epochs) + 1:
                break
            if not self._resumed:
                raise AblateError(self._ended_early())
            # It resumed beyond what it has reported: a kill came in between.
            self._end_process()
            self._remove_checkpoint()
            self.epochs.clear()
        epoch = self._add(*report, began)
        self._write_down()
        if self.finished:
            self._wait_for_end()
        return epoch

    def _add(self, number: int, metrics: Mapping[str, Any], began: float) -> Epoch:
        # A script that went back reports epochs again.
        del self.epochs[number - 1 :]
        return self._finish_epoch(checked(metrics, self._trainer), began)

    def save(self, *, weights_only: bool = False) -> None:
        """Writes down the reported epochs. The script saves its own state."""
        self._write_down()

    def _write_down(self) -> None:
        self._checkpoint.save({"epochs": [asdict(epoch) for epoch in self.epochs]})

    def close(self) -> None:
        """Ends the script's process, and releases the trial's folder."""
        was_running = self._process is not None
        self._end_process()
        if was_running:
            # The script may have saved epochs whose reports were not read yet.
            with contextlib.suppress(queue.Empty, AblateError, Diverged, OSError):
                self._read_rest()
        self._checkpoint.release()

    def _read_rest(self) -> None:
        """Writes down the reports that the script made before it was ended."""
        known = len(self.epochs)
        while not self.finished:
            line = self._lines.get(timeout=STOP_SECONDS)
            if line is None:
                break
            report = self._report_in(line)
            if report is not None and report[0] <= len(self.epochs) + 1:
                self._add(*report, time.perf_counter())
        if len(self.epochs) > known:
            self._write_down()

    def _words(self) -> list[str]:
        """The command line, with the levels of the trial in their places."""
        recipe = recipe_of(self._trial, self._trainer)
        values: dict[str, object] = dict(self._trial.architecture.settings)
        values |= {f"recipe.{name}": level for name, level in recipe.items()}
        values |= {
            "seed": self._trial.seed,
            "epochs": self._trial.recipe.epochs,
            "checkpoint": self._place,
        }
        words = []
        for word in self._trainer.command:
            for name, value in values.items():
                word = word.replace(f"{{{name}}}", _text(value))
            words.append(word)
        if words[0] in ("python", "python3"):
            words[0] = sys.executable
        return words

    def _start(self) -> None:
        words = self._words()
        folder = registry.folder_of("trainer", self._trainer.name)
        if (
            shutil.which(words[0], path=None) is None
            and not Path(folder, words[0]).is_file()
        ):
            raise AblateError(
                f"trainer {self._trainer.name}: there is no program {words[0]}"
            )
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": str(self._threads),
        }
        if self._device == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        self._output.clear()
        self._resumed = self._place is not None and self._place.exists()
        self._lines = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", START, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # A group of its own: Ctrl-C goes to ablate, which stops the script between
            # two epochs.
            start_new_session=True,
        )
        threading.Thread(
            target=_read_lines, args=(self._process, self._lines), daemon=True
        ).start()

    def _next_report(self) -> tuple[int, dict[str, Any]] | None:
        """The number of the next reported epoch, and its metrics.

        Returns:
            None if the script ended without a failure.
        """
        assert self._process is not None
        while True:
            line = self._next_line()
            if line is None:
                if self._process.wait():
                    raise AblateError(self._ended_early())
                return None
            report = self._report_in(line)
            if report is not None:
                return report
            self._output.append(line[:LONGEST_LINE].rstrip())

    def _report_in(self, line: str) -> tuple[int, dict[str, Any]] | None:
        """The report in a line of output; None if the line is something else."""
        report = _object_in(line)
        if report is None:
            return None
        number = report.pop("epoch", len(self.epochs) + 1)
        if type(number) is not int or number < 1:
            raise AblateError(
                f"trainer {self._trainer.name} reported the epoch {number!r}; epochs"
                " are numbered from 1"
            )
        return number, report

    def _next_line(self) -> str | None:
        """The next line of output; None at its end."""
        while True:
            try:
                return self._lines.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                worked = self._seconds_worked()
                if worked > self._worked:
                    self._worked = worked
                    self._beat()

    def _seconds_worked(self) -> float:
        """Time of processors that the script and its children have used."""
        assert self._process is not None
        total = 0.0
        with contextlib.suppress(psutil.Error):
            script = psutil.Process(self._process.pid)
            for one in (script, *script.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = one.cpu_times()
                    total += times.user + times.system
        return total

    def _ended_early(self) -> str:
        assert self._process is not None
        status = self._process.wait()
        if status:
            how = f"ended with status {status}"
            if status < 0:
                how = f"was killed by signal {-status}"
        else:
            wanted = ", ".join(metric.name for metric in self._trainer.metrics)
            how = (
                f"ended after {len(self.epochs)} of {self._trial.recipe.epochs} epochs;"
                f' after each, print a line such as {{"epoch": 1, ...}} with {wanted}'
            )
        words = " ".join(self._words())
        self._process = None
        output = "\n".join(self._output) or "(no output)"
        return f"trainer {self._trainer.name} {how}: {words}\n{output}"

    def _wait_for_end(self) -> None:
        """Lets the script end after its last report."""
        while True:
            line = self._next_line()
            if line is None:
                break
            if self._report_in(line) is not None:
                raise AblateError(
                    f"trainer {self._trainer.name} reported more than"
                    f" {self._trial.recipe.epochs} epochs; train {{epochs}} epochs"
                )
            self._output.append(line[:LONGEST_LINE].rstrip())
        assert self._process is not None
        if self._process.wait():
            raise AblateError(self._ended_early())
        self._process = None

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
                break
        # Children that outlived the script.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _remove_checkpoint(self) -> None:
        if self._place is not None:
            shutil.rmtree(self._place.parent, ignore_errors=True)
            self._place.parent.mkdir()


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _object_in(line: str) -> dict[str, Any] | None:
    """The JSON object in a line of output; None if the line is something else."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return None
    return dict(found) if isinstance(found, Mapping) else None


def _read_lines(
    process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]
) -> None:
    assert process.stdout is not None
    with contextlib.suppress(ValueError, OSError), process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put(None)
