"""Trains a trial with the user's command, in a process of its own.

What it guarantees: the process ends with the worker, however the worker ends. An epoch is
reported once. A script that keeps its own checkpoint goes on from it.

How: the script prints a line of JSON after each epoch, or what a pattern finds, or writes
a file that is read (`readers`). It may run ahead of what ablate has read. When it is
stopped, the rest of its reports is read and written down. After a kill, its checkpoint may
be ahead of the reports: if it resumes beyond an epoch that was never reported, its
checkpoint is removed and the trial begins again.

A script that fails before its first report although it had a checkpoint begins again
too: the checkpoint may be damaged.

What would break it: a script whose report is not flushed (PYTHONUNBUFFERED is set for
Python), or one that closes its output.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, TypeAlias

import psutil

from ablate.errors import AblateError, CheckpointError
from ablate.own import registry
from ablate.own.commits import Checkout
from ablate.readers import FileReader, LineReader, Report
from ablate.records import Epoch, Trial
from ablate.records.own_parts import PLACEHOLDER
from ablate.training.checkpoint import epoch_of
from ablate.training.energy import EnergyMeter
from ablate.training.errors import Diverged
from ablate.training.own_base import LOOK_SECONDS, STOP_SECONDS, OwnTraining
from ablate.training.own_trial import checked, recipe_of

# What a process passes on: a line of output, a report in a file, a mistake in one, or None
# at its end.
Line: TypeAlias = str | Report | AblateError | None
# Lines of output that an error shows.
KEPT_LINES = 40
LONGEST_LINE = 2_000
# The program of the process that runs the command and waits for it. It holds one end of
# a pipe whose other end the worker holds. If the worker ends, however it ends, the pipe
# closes, and the process kills its whole group: the script with all its children.
START = """
import os, signal, sys, threading
pipe = int(sys.argv[1])
script = os.fork()
if script == 0:
    os.close(pipe)
    os.execvp(sys.argv[2], sys.argv[2:])
# The script decides how it ends; this process ends after it.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def watch():
    os.read(pipe, 1)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
_, status = os.waitpid(script, 0)
code = os.waitstatus_to_exitcode(status)
# As a shell does: a signal is 128 and its number.
os._exit(code if code >= 0 else 128 - code)
"""


class CommandTraining(OwnTraining):
    """The training of one trial by a user's command. See `FunctionTraining`.

    Args:
        hear: receives each line that the command prints, as soon as it is read.
        checkout: where the files of its commit are; None: those beside its declaration.
    """

    def __init__(
        self,
        trial: Trial,
        folder: str | Path,
        *,
        device: str,
        threads: int,
        meter: EnergyMeter | None = None,
        hear: Callable[[str], None] | None = None,
        checkout: Checkout | None = None,
    ) -> None:
        super().__init__(trial, folder, meter)
        self._hear = hear or _ignore
        self._checkout = checkout
        self._folder = registry.folder_of("trainer", self._trainer.name)
        if checkout is not None:
            self._folder = checkout.folder
        self._threads = threads
        self._device = device
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._reader: LineReader | None = None
        self._files: FileReader | None = None
        self._output: deque[str] = deque(maxlen=KEPT_LINES)
        self._errors: deque[str] = deque(maxlen=KEPT_LINES)
        self._worked = -1.0
        self._resumed = False
        self._place: Path | None = None
        self._output_folder: Path | None = None
        try:
            self._place = self._checkpoint_path(folder)
            state = self._checkpoint.load() or {}
            self.epochs = [epoch_of(epoch) for epoch in state.get("epochs", [])]
            if not self.finished and not (self._place and self._place.exists()):
                # The script cannot resume, so it begins again.
                self.epochs.clear()
        except BaseException:
            self.close()
            raise

    def _checkpoint_path(self, folder: str | Path) -> Path | None:
        """Where the script keeps its checkpoint; None if it keeps none."""
        words = " ".join((*self._trainer.command, *self._trainer.resume))
        words += self._trainer.reports.files
        if "{checkpoint}" not in words and "{output}" not in words:
            return None
        text = str(folder).removeprefix("file://")
        if "://" in text:
            raise CheckpointError(
                f"trainer {self._trainer.name} writes its own checkpoints, and its"
                f" command cannot write to the URL {folder}; use a folder that all"
                " nodes mount"
            )
        path = Path(text, "script").resolve()
        path.mkdir(exist_ok=True)
        self._output_folder = path / "output"
        if self._trainer.resume:
            return Path(self._folder, self._filled(self._trainer.resume)[-1])
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
                raise AblateError(self._why_not(report))
            # It resumed beyond what it has reported, because a kill came in between. Or
            # it failed to read its checkpoint.
            self._end_process()
            self._set_checkpoint_aside()
            self.epochs.clear()
        self._resumed = False
        if report[0] >= self._trial.recipe.epochs:
            # Before the last epoch counts: a script that fails at its end has failed.
            self._wait_for_end()
        epoch = self._add(*report, began)
        self._write_down()
        return epoch

    def _why_not(self, report: tuple[int, dict[str, Any]] | None) -> str:
        if report is None:
            return self._ended_early()
        self._end_process()
        hint = ""
        if self._reader is not None or self._files is not None:
            hint = (
                "; first= and every= declare how the script counts, such as first=100,"
                " every=100 for a report every 100 steps"
            )
        return (
            f"trainer {self._trainer.name} reported epoch {report[0]} after epoch"
            f" {len(self.epochs)}; report each epoch once, from 1{hint}"
        )

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
        stored_epochs = len(self.epochs)
        while not self.finished:
            line = self._lines.get(timeout=STOP_SECONDS)
            if line is None or isinstance(line, AblateError):
                break
            report = self._report_in(line)
            if report is not None and report[0] <= len(self.epochs) + 1:
                self._add(*report, time.perf_counter())
        if len(self.epochs) > stored_epochs:
            self._write_down()

    def _words(self) -> list[str]:
        """The command line, with the levels of the trial in their places."""
        words = self._filled(self._trainer.command)
        if self._resumed:
            words += self._filled(self._trainer.resume)
        if words[0] in ("python", "python3"):
            words[0] = sys.executable
        return words

    def _filled(
        self, words: Sequence[str], escape: Callable[[str], str] = str
    ) -> list[str]:
        """Words with the levels of the trial in their places."""
        recipe = recipe_of(self._trial, self._trainer)
        epochs = self._trial.recipe.epochs
        reports = self._trainer.reports
        values: dict[str, object] = dict(self._trial.architecture.settings)
        values |= {f"recipe.{name}": level for name, level in recipe.items()}
        values |= {
            "seed": self._trial.seed,
            "epochs": epochs,
            "last": reports.first + reports.every * (epochs - 1),
            "checkpoint": self._place,
            "output": self._output_folder,
        }

        def text(place: re.Match[str]) -> str:
            value = values[place[1]]
            return escape(repr(value) if place[2] else _text(value))

        # In one pass, so that braces in a level stay.
        filled = [(word, PLACEHOLDER.sub(text, word)) for word in words]
        # An empty level stands for no word: a flag that is not set.
        return [
            word
            for declared, word in filled
            if word or not PLACEHOLDER.fullmatch(declared)
        ]

    def debug(self) -> int:
        """Runs a Python script under pdb, which stops where it fails.

        It has the terminal of this process. Returns its exit status.
        """
        words = self._words()
        if words[0] != sys.executable:
            raise AblateError(
                f"trainer {self._trainer.name}: --pdb is for a command that begins"
                f" with python, this one begins with {words[0]}"
            )
        words[1:1] = ["-m", "pdb", "-c", "continue"]
        if self._output_folder is not None:
            self._output_folder.mkdir(exist_ok=True)
        return subprocess.call(words, cwd=self._folder, env=self._environment())

    def _environment(self) -> dict[str, str]:
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": str(self._threads),
        }
        if self._device == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        if self._checkout is not None:
            before = environment.get("PYTHONPATH", "")
            paths = [*self._checkout.path, *filter(None, [before])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        return environment

    def _start(self) -> None:
        self._resumed = self._place is not None and self._place.exists()
        if self._output_folder is not None:
            if not self._resumed:
                # What an earlier process wrote is of no use, and would be read again.
                shutil.rmtree(self._output_folder, ignore_errors=True)
            self._output_folder.mkdir(exist_ok=True)
        self._make_readers()
        words = self._words()
        if (
            shutil.which(words[0], path=None) is None
            and not Path(self._folder, words[0]).is_file()
        ):
            raise AblateError(
                f"trainer {self._trainer.name}: there is no program {words[0]}"
            )
        self._output.clear()
        self._errors.clear()
        self._lines = queue.SimpleQueue()
        theirs, self._pipe = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", START, str(theirs), *words],
            pass_fds=[theirs],
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # A group of its own: Ctrl-C goes to ablate, which stops the script between
            # two epochs.
            start_new_session=True,
        )
        os.close(theirs)
        threading.Thread(
            target=_read_streams,
            args=(self._process, self._lines, self._files, self._hear),
            daemon=True,
        ).start()

    def _make_readers(self) -> None:
        reports = self._trainer.reports
        names = [metric.name for metric in self._trainer.metrics]
        if reports.patterns:
            self._reader = LineReader(reports, names)
        if reports.files:
            # Only what the user wrote is a pattern.
            (path,) = self._filled([reports.files], glob.escape)
            self._files = FileReader(reports, names, path, known=len(self.epochs))

    def _next_report(self) -> tuple[int, dict[str, Any]] | None:
        """The number of the next reported epoch, and its metrics.

        Returns:
            None if the script ended.
        """
        while True:
            line = self._next_line()
            if line is None:
                return None
            report = self._report_in(line)
            if report is not None:
                return report
            self._keep(line)

    def _report_in(self, line: str | Report) -> tuple[int, dict[str, Any]] | None:
        """The report in a line of output; None if the line is something else."""
        if self._reader is not None and isinstance(line, str):
            line = self._reader.report(line) or line
        if isinstance(line, Report):
            return line.epoch or len(self.epochs) + 1, dict(line.metrics)
        if self._reader is not None or self._files is not None:
            return None
        metrics = [metric.name for metric in self._trainer.metrics]
        report = _object_in(line, metrics)
        if report is None:
            return None
        number = report.pop("epoch", len(self.epochs) + 1)
        if type(number) is not int or number < 1:
            raise AblateError(
                f"trainer {self._trainer.name} reported the epoch {number!r}; epochs"
                " are numbered from 1"
            )
        return number, report

    def _next_line(self) -> str | Report | None:
        """The next line of output, or report of a file; None at the end."""
        silent = 0.0
        while True:
            try:
                line = self._lines.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                worked = self._seconds_worked()
                # It may fall, when children of the script end.
                if worked != self._worked:
                    self._worked = worked
                    self._beat()
                silent += LOOK_SECONDS
                if self._has_ended() and silent > STOP_SECONDS / 2:
                    # A child of the script keeps the output open.
                    self._kill_group()
                continue
            self._beat()
            if isinstance(line, AblateError):
                raise line
            return line

    def _keep(self, line: str | Report) -> None:
        """Keeps a line that is no report, to show it if the script fails."""
        if isinstance(line, Report):
            return
        kept = self._errors if isinstance(line, _ErrorLine) else self._output
        kept.append(line[:LONGEST_LINE].rstrip())

    def _has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _seconds_worked(self) -> float:
        """Time of processors that the script and its children have used."""
        assert self._process is not None
        total = 0.0
        with contextlib.suppress(psutil.Error):
            script = psutil.Process(self._process.pid)
            for process in (script, *script.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    total += times.user + times.system
        return total

    def _ended_early(self) -> str:
        assert self._process is not None
        status = self._process.wait()
        if status:
            how = f"ended with status {status}"
            if status < 0 or status > 128:
                how = f"was killed by signal {-status if status < 0 else status - 128}"
        else:
            how = (
                f"ended after {len(self.epochs)} of {self._trial.recipe.epochs} epochs;"
                f" {self._advice()}"
            )
        words = " ".join(self._words())
        self._end_process()
        # The output first: lists of errors show the last line.
        # The order of lines between the two outputs is not known: errors come last.
        lines = [*self._output, *self._errors]
        output = "\n".join([*lines, ""])
        last = next((line for line in reversed(lines) if line.strip()), "")
        if status and last:
            how += f" ({last})"
        return f"{output}trainer {self._trainer.name} {how}: {words}"

    def _advice(self) -> str:
        """What a script that ended without a report should do."""
        names = ", ".join(metric.name for metric in self._trainer.metrics)
        if self.epochs and not any(
            "{epochs}" in word for word in self._trainer.command
        ):
            return (
                "recipe.epochs is how often it reports, and the command does not mention"
                " {epochs}; write recipe: {epochs: 1} into the space for a script that"
                " reports once, or give it --epochs {epochs}"
            )
        if self._files is not None:
            return self._files.problem()
        if self._reader is not None:
            return f"no line of its output completes {names} as pattern= says"
        return f'after each, print a line such as {{"epoch": 1, ...}} with {names}'

    def _wait_for_end(self) -> None:
        """Lets the script end after its last report."""
        while True:
            line = self._next_line()
            if line is None:
                break
            if self._report_in(line) is not None:
                raise AblateError(
                    f"trainer {self._trainer.name} reported more than"
                    f" {self._trial.recipe.epochs} epochs; train {{epochs}} epochs, or"
                    " write recipe: {epochs: N} for a script that reports N times"
                )
            self._keep(line)
        assert self._process is not None
        if self._process.wait():
            raise AblateError(self._ended_early())
        self._end_process()

    def _end_process(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        # Also children that outlived the script.
        self._kill_group()
        self._process.wait()
        self._process = None
        os.close(self._pipe)

    def _kill_group(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _set_checkpoint_aside(self) -> None:
        if self._place is not None and self._place.exists():
            aside = self._place.with_name(f"{self._place.name}.unreadable")
            shutil.rmtree(aside, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                aside.unlink()
            self._place.replace(aside)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _object_in(line: str, metrics: Collection[str]) -> dict[str, Any] | None:
    """Returns the JSON object in a line of output; None if the line is something else.

    An object that begins in the middle of a line, behind a progress bar, is a report
    only if it has all metrics: other lines may show objects too.
    """
    before, brace, after = line.partition("{")
    if not brace:
        return None
    try:
        report = json.loads(brace + after)
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, Mapping):
        return None
    if before.strip() and not report.keys() >= set(metrics):
        return None
    return dict(report)


def _ignore(line: str) -> None:
    """What a command prints is of interest only if it fails."""


class _ErrorLine(str):
    """A line of standard error."""

    __slots__ = ()


def _read_streams(
    process: subprocess.Popen[str],
    lines: queue.SimpleQueue[Line],
    files: FileReader | None,
    hear: Callable[[str], None],
) -> None:
    """Passes on the lines of both outputs of a process, and None at their end.

    They are read apart: a progress bar on one of them ends no line of the other. Reports
    in files come in between.
    """
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(files, lines, ended), daemon=True)
    watching.start()
    errors = threading.Thread(
        target=_read_lines,
        args=(process.stderr, lines, _ErrorLine, hear),
        daemon=True,
    )
    errors.start()
    _read_lines(process.stdout, lines, str, hear)
    errors.join()
    ended.set()
    watching.join()
    lines.put(None)


def _watch(
    files: FileReader | None, lines: queue.SimpleQueue[Line], ended: threading.Event
) -> None:
    """Passes on the reports of files until a process has ended."""
    if files is None:
        return
    try:
        while not ended.wait(LOOK_SECONDS):
            for report in files.new():
                lines.put(report)
        for report in files.new(ended=True):
            lines.put(report)
    except AblateError as error:
        lines.put(error)
    except Exception as error:
        # Nothing else would tell that no more reports come.
        lines.put(AblateError(f"{type(error).__name__}: {error}"))


def _read_lines(
    stream: IO[str] | None,
    lines: queue.SimpleQueue[Line],
    kind: type[str],
    hear: Callable[[str], None],
) -> None:
    assert stream is not None
    with contextlib.suppress(ValueError, OSError), stream:
        for line in stream:
            hear(line)
            lines.put(kind(line))
