"""What the trials of a study have printed, and what they print now."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ablate.errors import AblateError
from ablate.records import RESOLVED, Status
from ablate.records.stored import TrialRow
from ablate.scheduling.options import Options
from ablate.store.reader import Reader
from ablate.text.masking import masked

# How often a followed log is looked at.
LOOK_SECONDS = 0.3
# The most bytes of a log that are shown: at least what a log keeps.
MOST_BYTES = 16_000_000
# How much of its end is read at first.
FIRST_BYTES = 64_000
# Sequences that change the colour of a terminal or move its cursor.
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class LogOfTrial:
    """The log of one trial.

    Attributes:
        row, seed: its place; if several rows share it, that of the smallest number.
        path: the file; it need not exist.
        host: if the file is missing, the machine of the last attempt; empty if there was
            none.
    """

    trial: str
    row: int
    seed: int
    status: Status
    path: Path
    host: str

    @property
    def title(self) -> str:
        return (
            f"row {self.row}, seed {self.seed}, trial {self.trial[:8]}: {self.status}"
        )

    def last_lines(self, number: int | None = None) -> list[str]:
        """Its lines as a terminal shows them, or the last ones of them.

        If there is no log, one line says why.
        """
        if not self.path.is_file() or self.path.is_symlink():
            return [self._why_missing()]
        text, left_out = _end_of(self.path, number)
        lines = shown_lines(text)
        if number is not None:
            return lines[len(lines) - min(number, len(lines)) :]
        if left_out:
            return [f"--- {left_out:,} bytes before this are not shown ---", *lines]
        return lines

    def _why_missing(self) -> str:
        if not self.host:
            return "(no output: it has not begun)"
        return (
            f"(no output: {self.path} is missing; the trial was trained on {self.host},"
            " or by a version of ablate that kept no logs)"
        )


def logs_of(
    word: str, options: Options, row: int | None = None, seed: int | None = None
) -> list[LogOfTrial]:
    """Returns the logs of a study, or of one trial, by row and seed.

    Args:
        word: the name of a study, or the hash of a trial or its beginning.

    Raises:
        AblateError: there is no such study or trial, or no trial in the row with the
            seed.
    """
    with Reader(options.url) as reader:
        study, key = reader.studies.target(word)
        reader.studies.get(study).refuse_reported()
        trials = reader.trials.of(study, beside=True)
        folder = options.logs_of(reader.store_id())
        chosen = [
            trial
            for trial in trials
            if (key is None or trial.trial == key)
            and (row is None or trial.row == row)
            and (seed is None or trial.seed == seed)
        ]
        if not chosen:
            raise AblateError(_none_chosen(study, trials, row, seed))
        logs = dict[str, LogOfTrial]()
        for trial in chosen:
            # Rows that train the same share their trials.
            if trial.trial not in logs:
                logs[trial.trial] = _log_of(trial, folder, reader)
        return list(logs.values())


def _log_of(trial: TrialRow, folder: Path, reader: Reader) -> LogOfTrial:
    path = folder / f"{trial.trial}.txt"
    host = ""
    if trial.attempts and not path.is_file():
        host = reader.trials.attempts(trial.trial)[-1].host
    return LogOfTrial(
        trial=trial.trial,
        row=trial.row,
        seed=trial.seed,
        status=Status(trial.status),
        path=path,
        host=host,
    )


def _none_chosen(
    study: str, trials: Sequence[TrialRow], row: int | None, seed: int | None
) -> str:
    rows = {trial.row for trial in trials}
    if row is not None and row not in rows:
        listed = ", ".join(map(str, sorted(rows)))
        return f"--row {row}: {study} has trials in the rows {listed}"
    seeds = sorted({trial.seed for trial in trials if row in (None, trial.row)})
    where = study if row is None else f"row {row} of {study}"
    return f"--seed {seed}: {where} has the seeds {', '.join(map(str, seeds))}"


def _end_of(path: Path, number: int | None) -> tuple[bytes, int]:
    """Returns the end of a file, and how many bytes are before it.

    Args:
        number: how many lines the end has at least; None: as many as are shown.
    """
    size = _size(path)
    part = MOST_BYTES if number is None else FIRST_BYTES
    with _opened(path) as stream:
        while True:
            begin = max(0, size - part)
            stream.seek(begin)
            text = stream.read(size - begin)
            has_enough = number is not None and text.count(b"\n") > number
            if begin == 0 or has_enough or part >= MOST_BYTES:
                return text, begin
            part *= 4


def shown_lines(text: bytes) -> list[str]:
    """Returns the lines of a log as a terminal shows them.

    A progress bar goes back to the beginning of its line: only its last state is shown.
    Colours are left out, and secrets are masked.
    """
    plain = COLOURS.sub("", text.decode(errors="replace")).replace("\r\n", "\n")
    plain = masked(plain)
    lines = plain.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def follow(
    logs: Sequence[LogOfTrial],
    options: Options,
    lines: int | None,
    print_line: Callable[[LogOfTrial, str], None],
) -> None:
    """Passes on the last lines of logs and then each new one, until all trials ended.

    Args:
        lines: how many lines of each log to begin with; None: all.
    """
    position = dict[str, int]()
    rest = dict[str, bytes]()
    for log in logs:
        # Read once: the trial may print meanwhile.
        begin = max(0, _size(log.path) - MOST_BYTES)
        text, position[log.trial] = _new(log.path, begin)
        whole, _, rest[log.trial] = text.rpartition(b"\n")
        shown = shown_lines(whole + b"\n") if whole else []
        for line in shown if lines is None else shown[len(shown) - lines :]:
            print_line(log, line)
    while True:
        # Before the files are read: what a trial printed before it ended is in its log.
        left = _running(logs, options)
        for log in logs:
            new = _new(log.path, position[log.trial])
            position[log.trial] = new[1]
            text = rest[log.trial] + new[0]
            whole, _, rest[log.trial] = text.rpartition(b"\n")
            for line in shown_lines(whole + b"\n") if whole else []:
                print_line(log, line)
            if not left and rest[log.trial]:
                # Its last line has no end.
                print_line(log, *shown_lines(rest[log.trial]))
        if not left:
            return
        time.sleep(LOOK_SECONDS)


def _running(logs: Sequence[LogOfTrial], options: Options) -> bool:
    """Whether a trial has not ended."""
    with Reader(options.url) as reader:
        known = reader.trials.known((log.trial for log in logs), with_epochs=False)
    return any(trial.status not in RESOLVED for trial in known.values())


def _new(path: Path, position: int) -> tuple[bytes, int]:
    """What was appended to a file since a position, and the next position."""
    try:
        with _opened(path) as stream:
            size = stream.seek(0, 2)
            if size < position:
                # Its beginning was removed.
                position = 0
            stream.seek(position)
            text = stream.read(MOST_BYTES)
            return text, position + len(text)
    except OSError:
        return b"", position


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _opened(path: Path) -> BinaryIO:
    """Opens a log. A link could show any file."""
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
